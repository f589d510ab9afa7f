//! Crons in six zones over four clock changes of each, by an injected clock that jumps: every fire
//! became a tick, or was counted as missed, overlapped or paused.

use anyhow::{Context, Result};
use dueq::{Client, Missed, Overlap, Queue, Schedule, ScheduleInfo};
use dueq_testkit::Server;
use fastrand::Rng;
use jiff::Timestamp;

use super::Arguments;
use super::raw::{Granted, Raw};
use crate::uniqueness::outcome::{Outcome, Violations};

const NAME: &str = "cron";
const ZONES: [&str; 6] = [
    "Europe/Paris",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "Africa/Cairo",
    "America/Santiago",
];
const PATTERNS: [&str; 4] = ["30 2 * * *", "0 * * * *", "*/20 0-4 * * *", "15 0 * * 0"];
const HOUR_MS: u64 = 3_600_000;
/// Two years: clocks change four times in each of the zones.
const SPAN_MS: u64 = 2 * 365 * 24 * HOUR_MS;

pub(super) async fn run(arguments: &Arguments) -> Result<Outcome> {
    let server = Server::start(&[])?;
    let client = Client::connect(&server.url()).await?;
    let mut raw = Raw::connect(&server.url(), arguments.scripts.as_deref())?;
    let mut rng = Rng::with_seed(arguments.seed);
    let mut violations = Violations::default();
    let (mut fires, mut ticks, mut dropped) = (0, 0, 0);
    for zone in ZONES {
        eprintln!("law: two years in {zone}");
        for (number, pattern) in PATTERNS.iter().enumerate() {
            let queue = client.queue(&format!("law-{}-{number}", zone.replace('/', "-")))?;
            let missed = [Missed::One, Missed::Skip, Missed::All { max: 50 }];
            let overlap = [Overlap::Allow, Overlap::Skip, Overlap::Replace];
            let schedule = Schedule::cron(pattern)?
                .zone(zone)
                .name(NAME)
                .missed(missed[rng.usize(..3)])
                .overlap(overlap[rng.usize(..3)]);
            let made = jump(&mut raw, &queue, schedule, &mut rng).await?;
            let info = queue.schedule(NAME).get().await?.context("a schedule")?;
            let all = fires_of(&info)?;
            let what = format!("{pattern:?} in {zone}, {}", info.spec);
            let counted = info.made + info.missed + info.overlapped + info.paused;
            for violation in judge(info.made, counted, &all, &made) {
                violations.add(format!("{what}: {violation}"));
            }
            fires += all.len();
            ticks += made.len();
            dropped += all.len() - made.len().min(all.len());
        }
    }
    let mut outcome = Outcome::new(violations);
    outcome.figure("schedules", ZONES.len() * PATTERNS.len());
    outcome.figure("fires", fires);
    outcome.figure("ticks", ticks);
    outcome.figure("missed, overlapped or paused", dropped);
    Ok(outcome)
}

/// Two years in jumps of up to three days. Returns the nominal times of the ticks.
async fn jump(raw: &mut Raw, queue: &Queue, schedule: Schedule, rng: &mut Rng) -> Result<Vec<u64>> {
    let name = queue.name();
    raw.allow_test_clock(name)?;
    queue.schedules("set").apply([schedule]).await?;
    let begin_ms = u64::try_from(Timestamp::now().as_millisecond())?;
    let (mut now_ms, mut made, mut held): (_, _, Vec<Granted>) = (begin_ms, Vec::new(), Vec::new());
    while now_ms < begin_ms + SPAN_MS {
        now_ms += match rng.u8(..4) {
            0 => rng.u64(1..HOUR_MS),
            1 => rng.u64(1..24 * HOUR_MS),
            _ => rng.u64(1..72 * HOUR_MS),
        };
        match rng.u8(..12) {
            0 => drop(raw.call("amend", name, now_ms, &["pause", NAME])?),
            1..4 => drop(raw.call("amend", name, now_ms, &["resume", NAME])?),
            _ => {}
        }
        if rng.u8(..4) == 0 {
            queue.refill_schedules().await?;
        }
        for granted in raw.claim_many(name, now_ms, rng.usize(1..4))? {
            let (_, nominal) = granted.id.split_once('@').context("a tick")?;
            made.push(nominal.parse()?);
            held.push(granted);
        }
        while !held.is_empty() && rng.u8(..3) > 0 {
            let granted = held.swap_remove(rng.usize(..held.len()));
            raw.ack(name, now_ms, &granted)?;
        }
    }
    raw.call("amend", name, now_ms, &["resume", NAME])?;
    Ok(made)
}

/// Every fire from the first that counts to the last that is over, by the preview.
fn fires_of(info: &ScheduleInfo) -> Result<Vec<u64>> {
    let fires = info.schedule.fires(info.since_ms - 1)?;
    let fires = fires.map(|fire| fire.nominal_ms);
    Ok(fires.take_while(|ms| *ms <= info.last_ms).collect())
}

/// The counts of ticks and of fires, beside all fires and the granted ticks.
fn judge(counted_ticks: u64, counted: u64, all: &[u64], made: &[u64]) -> Vec<String> {
    let mut found = Vec::new();
    if counted != all.len() as u64 {
        found.push(format!("{counted} fires are counted, {} were", all.len()));
    }
    if counted_ticks != made.len() as u64 {
        found.push(format!(
            "{counted_ticks} ticks are counted, {} were granted",
            made.len()
        ));
    }
    if !made.windows(2).all(|pair| pair[0] < pair[1]) {
        found.push("a nominal time is granted twice, or after a later one".to_owned());
    }
    if let Some(other) = made.iter().find(|ms| all.binary_search(ms).is_err()) {
        found.push(format!("{other} is no fire"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::judge;

    #[test]
    fn each_breach_of_the_law_is_found() {
        let all = [10, 20, 30];
        assert!(judge(2, 3, &all, &[10, 30]).is_empty());
        assert_eq!(judge(2, 4, &all, &[10, 30]).len(), 1, "counted twice");
        assert_eq!(judge(3, 3, &all, &[10, 30]).len(), 1, "a tick is lost");
        assert_eq!(judge(2, 3, &all, &[10, 10]).len(), 1, "twice");
        assert_eq!(judge(2, 3, &all, &[10, 25]).len(), 1, "no fire");
    }
}
