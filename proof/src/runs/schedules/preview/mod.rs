//! The preview of a cron is what fires: random patterns and zones, through the library's apply and
//! refill, claims at each fire by the test clock, and a search minute by minute around clock changes.

mod brute;
mod pattern;

use std::collections::HashMap;

use anyhow::{Context, Result};
use dueq::{Client, Queue, Schedule};
use dueq_testkit::Server;
use dueq_testkit::report::{Report, Violations};
use dueq_testkit::scripts::Raw;
use fastrand::Rng;
use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use self::brute::Minutes;
use self::pattern::{Pattern, ZONES};
use super::Arguments;
use crate::kit::law;

const NAME: &str = "cron";
const DAY_S: i64 = 86_400;
const YEARS: i64 = 5;
/// The library refills lists of fewer fires.
const LOW: usize = 200;
/// One claim in so many is tried a millisecond early, too.
const EARLY_ONE_IN: usize = 16;

#[derive(Default)]
struct Counts {
    fired: usize,
    compared: usize,
    changes: usize,
    never: u64,
}

pub(super) async fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let server = Server::start(&[])?;
    let client = Client::connect(&server.url()).await?;
    let mut raw = Raw::connect(&server.url(), arguments.preset.scripts.as_deref())?;
    let now_s = Timestamp::now().as_second().div_euclid(60) * 60;
    eprintln!("preview: reads the clock changes of {} zones", ZONES.len());
    let changes = changes_of_zones(now_s, &TimeZoneDatabase::bundled())?;
    let mut rng = Rng::with_seed(arguments.preset.seed);
    let (mut violations, mut counts) = (Violations::default(), Counts::default());
    for number in 0..arguments.patterns {
        let pattern = Pattern::random(&mut rng);
        let schedule = Schedule::cron(&pattern.text)?.zone(pattern.zone).name(NAME);
        let what = format!("{:?} in {}", pattern.text, pattern.zone);
        let changes = changes.get(pattern.zone).context("a zone")?;
        for minutes in changes {
            let preview = preview(&schedule, minutes.begin_ms(), minutes.end_ms())?;
            let searched = minutes.fires(&pattern);
            counts.compared += searched.len();
            counts.changes += 1;
            differ(&mut violations, &what, "the search", &preview, &searched);
        }
        let queue = client.queue(&format!("preview-{number}"))?;
        let endless = schedule.clone();
        fire(
            &mut raw,
            &queue,
            endless,
            arguments.fires,
            &what,
            &mut violations,
            &mut counts,
        )
        .await?;
        // One of the clock changes, as a schedule of these days.
        if !changes.is_empty() {
            let minutes = &changes[rng.usize(..changes.len())];
            let queue = client.queue(&format!("preview-{number}-change"))?;
            let time = |ms| std::time::UNIX_EPOCH + std::time::Duration::from_millis(ms);
            let days = schedule
                .start(time(minutes.begin_ms()))
                .end(time(minutes.end_ms() - 1));
            fire(
                &mut raw,
                &queue,
                days,
                arguments.fires.max(3_000),
                &what,
                &mut violations,
                &mut counts,
            )
            .await?;
        }
        if number % 50 == 49 {
            eprintln!("preview: {} patterns, {} fires", number + 1, counts.fired);
        }
    }
    report.violations(&violations);
    report.figure("patterns", arguments.patterns);
    report.figure("ticks equal to the preview", counts.fired);
    report.figure("clock changes searched", counts.changes);
    report.figure("fires of the search", counts.compared);
    report.figure("schedules without a fire", counts.never);
    Ok(())
}

/// The two days around each clock change of five years, by zone.
fn changes_of_zones(
    now_s: i64,
    rules: &TimeZoneDatabase,
) -> Result<HashMap<&'static str, Vec<Minutes>>> {
    let mut all = HashMap::new();
    for name in ZONES {
        let zone = rules.get(name)?;
        let changes = changes(&zone, now_s, now_s + YEARS * 366 * DAY_S);
        let around = |at_s: &i64| Minutes::new(&zone, at_s - DAY_S, at_s + DAY_S);
        all.insert(*name, changes.iter().map(around).collect());
    }
    Ok(all)
}

/// The instants of the hours in which the offset changes, to the minute.
fn changes(zone: &TimeZone, from_s: i64, until_s: i64) -> Vec<i64> {
    let offset = |at_s| Timestamp::from_second(at_s).map(|at| zone.to_offset(at).seconds());
    let differs = |from, until| offset(from).ok() != offset(until).ok();
    let hours = (from_s..until_s).step_by(3_600);
    let changed = hours.filter(|at_s| differs(*at_s, at_s + 3_600));
    let minute = |at_s: i64| {
        let minutes = (at_s..at_s + 3_600).step_by(60);
        minutes
            .map(|at_s| at_s + 60)
            .find(|at_s| differs(at_s - 60, *at_s))
    };
    changed.filter_map(minute).collect()
}

/// The preview of `[from, until)`.
fn preview(schedule: &Schedule, from_ms: u64, until_ms: u64) -> Result<Vec<u64>> {
    let fires = schedule.fires(from_ms - 1)?.map(|fire| fire.nominal_ms);
    Ok(fires.take_while(|ms| *ms < until_ms).collect())
}

/// Applies the schedule, and claims at each of its next fires.
async fn fire(
    raw: &mut Raw,
    queue: &Queue,
    schedule: Schedule,
    most: usize,
    what: &str,
    violations: &mut Violations,
    counts: &mut Counts,
) -> Result<()> {
    let name = queue.name();
    raw.allow_test_clock(name)?;
    let applied = queue.schedules("set").apply([schedule.clone()]).await;
    let applied = match applied {
        // Patterns such as `0 0 31 2 *`, which the generator does not make, or an end before the first fire.
        Err(error) if error.to_string().contains("does not fire") => {
            counts.never += 1;
            return Ok(());
        }
        applied => applied?,
    };
    if applied
        .created
        .iter()
        .all(|created| created.next_ms.is_none())
    {
        counts.never += 1;
        return Ok(());
    }
    let expected = queue.schedule(NAME).next(most).await?;
    let mut made = Vec::new();
    for (index, fire) in expected.iter().enumerate() {
        if index % LOW == LOW - 1 {
            queue.refill_schedules().await?;
        }
        if index % EARLY_ONE_IN == 0
            && let Some(early) = raw.claim(name, fire.due_ms - 1)?
        {
            violations.add(format!(
                "{what}: {} is granted before {}",
                early.id, fire.due_ms
            ));
            raw.ack(name, fire.due_ms, &early)?;
        }
        let Some(granted) = raw.claim(name, fire.due_ms)? else {
            continue;
        };
        let (_, nominal) = law::tick(&granted.id).context("a tick")?;
        made.push(nominal);
        raw.ack(name, fire.due_ms, &granted)?;
    }
    let expected: Vec<_> = expected.iter().map(|fire| fire.nominal_ms).collect();
    counts.fired += made.len();
    differ(violations, what, "the ticks", &expected, &made);
    Ok(())
}

/// Adds a violation if the other times are not those of the preview.
fn differ(violations: &mut Violations, what: &str, other: &str, preview: &[u64], times: &[u64]) {
    if let Some(difference) = law::differ(preview, times) {
        violations.add(format!("{what}, {other} by the preview: {difference}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-03-29 and 2026-10-25 in Paris.
    #[test]
    fn search_follows_the_rules_of_gaps_and_overlaps() -> Result<()> {
        let zone = TimeZoneDatabase::bundled().get("Europe/Paris")?;
        let from_s = "2026-01-01T00:00:00Z".parse::<Timestamp>()?.as_second();
        let found = changes(&zone, from_s, from_s + 365 * DAY_S);
        let shown: Vec<_> = found
            .iter()
            .map(|at_s| Timestamp::from_second(*at_s).map(|at| at.to_string()))
            .collect::<Result<_, _>>()?;
        assert_eq!(shown, ["2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z"]);
        let mut rng = Rng::with_seed(7);
        let mut fixed = 0;
        for _ in 0..300 {
            let mut pattern = Pattern::random(&mut rng);
            pattern.zone = "Europe/Paris";
            fixed += usize::from(pattern.is_fixed());
            let schedule = Schedule::cron(&pattern.text)?.zone(pattern.zone).name(NAME);
            for at_s in &found {
                let minutes = Minutes::new(&zone, at_s - DAY_S / 4, at_s + DAY_S / 4);
                let preview = preview(&schedule, minutes.begin_ms(), minutes.end_ms())?;
                assert_eq!(minutes.fires(&pattern), preview, "{}", pattern.text);
            }
        }
        assert!(fixed > 10);
        Ok(())
    }
}
