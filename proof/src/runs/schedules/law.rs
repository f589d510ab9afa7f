//! Crons in six time zones, over four clock changes of each, with an injected clock that jumps.
//! Every fire must become a tick, or be counted as missed, overlapped or paused.

use anyhow::{Context, Result};
use dueq::schedules::{MissedPolicy, OverlapPolicy, Schedule, ScheduleInfo};
use dueq::{Client, Queue};
use dueq_testkit::Server;
use dueq_testkit::report::{Report, Violations};
use dueq_testkit::scripts::{Granted, Raw};
use fastrand::Rng;
use jiff::Timestamp;

use super::Arguments;
use crate::kit::law::{self, Counts};

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
/// The simulated time: two years, in which clocks change four times in each zone.
const SPAN_MS: u64 = 2 * 365 * 24 * HOUR_MS;

pub(super) async fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let server = Server::start(&[])?;
    let client = Client::connect(&server.url()).await?;
    let mut raw = Raw::connect(&server.url(), arguments.preset.scripts.as_deref())?;
    let mut rng = Rng::with_seed(arguments.preset.seed);
    let mut violations = Violations::default();
    let (mut fires, mut ticks, mut dropped) = (0, 0, 0);
    for zone in ZONES {
        eprintln!("law: two years in {zone}");
        for (number, pattern) in PATTERNS.iter().enumerate() {
            let queue = client.queue(&format!("law-{}-{number}", zone.replace('/', "-")))?;
            let missed = [
                MissedPolicy::One,
                MissedPolicy::Skip,
                MissedPolicy::All { max: 50 },
            ];
            let overlap = [
                OverlapPolicy::Allow,
                OverlapPolicy::Skip,
                OverlapPolicy::Replace,
            ];
            let schedule = Schedule::cron(pattern)?
                .zone(zone)
                .name(NAME)
                .missed(missed[rng.usize(..3)])
                .overlap(overlap[rng.usize(..3)]);
            let made = jump(&mut raw, &queue, schedule, &mut rng).await?;
            let info = queue.schedule(NAME).get().await?.context("a schedule")?;
            let all = fires_of(&info)?;
            let what = format!("{pattern:?} in {zone}, {}", info.spec);
            let counts = Counts {
                made: info.made,
                missed: info.missed,
                overlapped: info.overlapped,
                paused: info.paused,
            };
            let breaches = [
                counts.breach(all.len() as u64),
                counts.breach_of_granted(made.len() as u64, 0, 0),
                law::misfit(&all, &made),
            ];
            for breach in breaches.into_iter().flatten() {
                violations.add(format!("{what}: {breach}"));
            }
            fires += all.len();
            ticks += made.len();
            dropped += all.len() - made.len().min(all.len());
        }
    }
    report.violations(&violations);
    report.figure("schedules", ZONES.len() * PATTERNS.len());
    report.figure("fires", fires);
    report.figure("ticks", ticks);
    report.figure("missed, overlapped or paused", dropped);
    Ok(())
}

/// Simulates two years in jumps of up to three days. Returns the nominal times of the ticks.
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
            let (_, nominal) = law::tick(&granted.id).context("a tick")?;
            made.push(nominal);
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

/// Every fire from the first counted one to the last past one, computed by the preview.
fn fires_of(info: &ScheduleInfo) -> Result<Vec<u64>> {
    let fires = info.schedule.fires(info.since_ms - 1)?;
    let fires = fires.map(|fire| fire.nominal_ms);
    Ok(fires.take_while(|ms| *ms <= info.last_ms).collect())
}
