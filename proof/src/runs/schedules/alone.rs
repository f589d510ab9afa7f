//! No process of the library: after one refill, consumers that only call the scripts get every
//! minute's tick for eight hours of injected time.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use dueq_testkit::Server;
use dueq_testkit::report::{Report, Violations};
use dueq_testkit::scripts::{Raw, fires, texts};

use super::Arguments;
use crate::kit::law;

const QUEUE: &str = "alone";
const NAME: &str = "minutely";
const MINUTE_MS: u64 = 60_000;
const MINUTES: u64 = 480;
/// Fires of the apply. The refill adds the others.
const APPLIED: u64 = 100;
const LISTED: u64 = 512;
/// 2026-01-01, a whole minute.
const BEGIN_MS: u64 = 1_767_225_600_000;
/// One claim in so many minutes is half a minute late, behind an apply that changes nothing.
const LATE_ONE_IN: u64 = 60;

/// What the consumer got: the time and the id.
type Got = (u64, String);

pub(super) fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let server = Server::start(&[])?;
    let (got, changes) = consume(&server.url(), arguments.preset.scripts.as_deref())?;
    let mut violations = judge(&got);
    for change in changes {
        violations.add(change);
    }
    report.violations(&violations);
    report.figure("minutes", MINUTES);
    report.figure("ticks", got.len());
    Ok(())
}

/// Returns the claimed ticks, and the results of repeated applies that were not `KEPT`.
fn consume(url: &str, scripts: Option<&Path>) -> Result<(Vec<Got>, Vec<String>)> {
    let mut raw = Raw::connect(url, scripts)?;
    raw.allow_test_clock(QUEUE)?;
    let minute = |number: u64| BEGIN_MS + number * MINUTE_MS;
    let applied = fires((1..=APPLIED).map(minute));
    let spec = "zone=UTC missed=one overlap=allow";
    let apply = [
        "set",
        "1",
        "prune",
        NAME,
        spec,
        "* * * * *",
        "",
        &applied,
        "x",
    ];
    let reply = raw.call("schedule", QUEUE, BEGIN_MS, &apply)?;
    let created = texts(&reply[2])?;
    ensure!(created == [format!("CREATED {}", minute(1))], "{created:?}");
    let reply = raw.call("schedules", QUEUE, BEGIN_MS, &[NAME])?;
    let items: Vec<Vec<redis::Value>> = redis::from_redis_value(reply[2].clone())?;
    let item = items.first().context("no schedule")?;
    let version: String = redis::from_redis_value(item[10].clone())?;
    let added = fires((APPLIED + 1..=LISTED).map(minute));
    let refill = [NAME, &version, &minute(APPLIED).to_string(), &added];
    let reply = raw.call("refill", QUEUE, BEGIN_MS, &refill)?;
    let refilled = texts(&reply[1])?;
    ensure!(refilled == [format!("OK {LISTED}")], "{refilled:?}");

    let (mut got, mut changes) = (Vec::new(), Vec::new());
    for number in 1..=MINUTES {
        let is_late = number % LATE_ONE_IN == 0;
        if is_late {
            // A service starts again, and applies what is there, while a fire waits.
            let now_ms = minute(number) + MINUTE_MS / 2;
            let more = fires((number + 1..number + 9).map(minute));
            let mut again = apply;
            again[7] = &more;
            let reply = raw.call("schedule", QUEUE, now_ms, &again)?;
            let kept = texts(&reply[2])?;
            if kept != [format!("KEPT {}", minute(number))] {
                changes.push(format!(
                    "an equal apply at minute {number} answers {kept:?}"
                ));
            }
        }
        for offset in [-1, 0, 20_000, 40_000] {
            let now_ms = minute(number).saturating_add_signed(offset);
            if is_late && offset < 40_000 {
                continue;
            }
            if offset == 20_000 {
                raw.call("promote", QUEUE, now_ms, &["100"])?;
            }
            while let Some(granted) = raw.claim(QUEUE, now_ms)? {
                raw.ack(QUEUE, now_ms, &granted)?;
                ensure!(got.len() < 10_000, "claims grant ticks without an end");
                got.push((now_ms, granted.id));
            }
        }
    }
    Ok((got, changes))
}

fn judge(got: &[Got]) -> Violations {
    let mut violations = Violations::default();
    let mut ticks = Vec::new();
    for (now_ms, id) in got {
        match law::tick(id).filter(|(name, _)| *name == NAME) {
            Some((_, nominal)) => {
                ticks.push(nominal);
                if nominal > *now_ms {
                    violations.add(format!("{id} is granted early, at {now_ms}"));
                }
            }
            None => violations.add(format!("{id} is no tick")),
        }
    }
    let fires: Vec<_> = (1..=MINUTES)
        .map(|number| BEGIN_MS + number * MINUTE_MS)
        .collect();
    if let Some(difference) = law::differ(&fires, &ticks) {
        violations.add(difference);
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks() -> Vec<Got> {
        let tick = |number| BEGIN_MS + number * MINUTE_MS;
        let got = |number| (tick(number), format!("{NAME}@{}", tick(number)));
        (1..=MINUTES).map(got).collect()
    }

    #[test]
    fn each_minute_has_one_tick() {
        assert_eq!(judge(&ticks()).summary(), None);
        let mut lost = ticks();
        lost.remove(7);
        assert!(judge(&lost).texts()[0].contains("fire 7 must be"));
        let mut doubled = ticks();
        doubled.push(doubled[3].clone());
        assert!(judge(&doubled).summary().is_some());
        let mut early = ticks();
        early[0].0 -= 1;
        assert!(judge(&early).texts()[0].contains("early"));
    }

    #[test]
    fn scripts_alone_make_every_tick() -> Result<()> {
        let server = Server::start(&[])?;
        let (got, changes) = consume(&server.url(), None)?;
        assert_eq!((judge(&got).summary(), changes.len()), (None, 0));
        Ok(())
    }
}
