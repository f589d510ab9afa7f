//! Crons of six time zones over four clock changes of each. The library computes their fires.

use anyhow::{Context, Result, ensure};
use dueq::schedules::Schedule as Cron;

use crate::model::client::driver::Driver;
use crate::model::client::operation::Operation;
use crate::model::schedules::fields::{Declaration, Refill};
use crate::model::schedules::schedule::Schedule;
use crate::model::world::World;
use crate::model::{Kind, Run};
use crate::queue::{Calls, DAY, HOUR, T0};

const ZONES: [&str; 6] = [
    "Europe/Paris",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "Africa/Cairo",
    "America/Santiago",
];
const PATTERNS: [&str; 3] = ["30 2 * * *", "*/20 0-4 * * *", "15 0 * * 0"];
/// The length of the run: two years.
const SPAN_MS: u64 = 730 * DAY;

/// The next fires of a cron after this time.
fn fires(schedule: &Schedule, after: u64, count: usize) -> Result<Vec<u64>> {
    let cron = Cron::cron(&schedule.pattern)?.zone(&*schedule.zone);
    let fires = cron.name(&*schedule.name).fires(after)?;
    Ok(fires.map(|fire| fire.nominal_ms).take(count).collect())
}

impl Driver {
    /// Declares a cron for each zone and pattern.
    fn crons(&mut self) -> Result<Operation> {
        let mut schedules = Vec::new();
        for (number, zone) in ZONES.iter().enumerate() {
            for (other, pattern) in PATTERNS.iter().enumerate() {
                let mut schedule = Schedule {
                    name: format!("{number}/{other}"),
                    zone: (*zone).to_owned(),
                    pattern: (*pattern).to_owned(),
                    rules: "2026a".to_owned(),
                    missed: self.pick(&["one", "skip", "all"]),
                    overlap: self.pick(&["allow", "skip", "replace"]),
                    jitter: self.pick(&[0, 0, 600_000, 3 * HOUR]),
                    within: self.pick(&[None, None, Some(HOUR), Some(9 * DAY)]),
                    payload: "payload".into(),
                    ..Schedule::default()
                };
                schedule.max = Some(5).filter(|_| schedule.missed == "all" && self.chance(50));
                schedule.list = fires(&schedule, T0, 40)?;
                schedules.push(schedule);
            }
        }
        Ok(Operation::Schedule(Declaration {
            set: "zones".to_owned(),
            revision: None,
            prune: false,
            now: false,
            dry_run: false,
            schedules,
        }))
    }

    fn refill_of_crons(&mut self, world: &World) -> Result<Operation> {
        let mut items = Vec::new();
        for one in world.schedules.values().filter(|one| one.list.len() < 20) {
            // Newer rules replace the list, even if they list the same fires.
            let is_newer = self.chance(3);
            let after = if is_newer { one.last } else { one.last_listed };
            items.push(Refill {
                name: one.name.clone(),
                version: one.version,
                last_listed: one.last_listed,
                rules: format!("{}{}", one.rules, if is_newer { "a" } else { "" }),
                is_final: false,
                fires: fires(one, after, 100)?,
            });
        }
        match items.is_empty() {
            true => Ok(self.claim_of_ticks()),
            false => Ok(Operation::Refill(items)),
        }
    }

    fn claim_of_ticks(&mut self) -> Operation {
        Operation::Claim {
            count: self.pick(&[3, 20, 50]),
            token: self.token(),
            lease: DAY,
        }
    }

    fn call_of_zones(&mut self, world: &World) -> Result<Operation> {
        let names: Vec<String> = world.schedules.keys().cloned().collect();
        let held = Self::current(world);
        Ok(match self.random.u32(0..100) {
            0..12 if !held.is_empty() => Operation::Ack(held),
            12..30 => self.refill_of_crons(world)?,
            30..40 => Operation::Amend {
                change: self.pick(&["pause", "resume", "resume"]),
                names: vec![self.pick(&names)],
            },
            40..42 => {
                let name = self.pick(&names);
                let last = world.schedules[&name].last;
                Operation::Trigger {
                    name,
                    times: Some(vec![last]),
                }
            }
            42..50 => Operation::Promote(1_000),
            50..54 => Operation::Purge {
                state: self.pick(&["ready", "scheduled", "dead"]),
                limit: 1_000,
            },
            _ => self.claim_of_ticks(),
        })
    }
}

impl Run {
    fn call(&mut self, operation: Operation) -> Result<()> {
        self.driver.planned = vec![(None, operation)];
        self.driver.at_once = true;
        let failed = format!("{:?}", self.driver.planned);
        self.step().context(failed)
    }

    /// Checks that the counts of each schedule match the fires that the library computes, and that
    /// each tick belongs to one of these. Returns the number of fires.
    fn all_fires_are_counted(&self) -> Result<usize> {
        let mut count = 0;
        for one in self.world.schedules.values() {
            let cron = Cron::cron(&one.pattern)?.zone(&*one.zone);
            let all = cron.name(&*one.name).fires(one.since - 1)?;
            let all = all.map(|fire| fire.nominal_ms);
            let all: Vec<u64> = all.take_while(|fire| *fire <= one.last).collect();
            let counted = one.counts.iter().sum::<u64>();
            ensure!(
                counted == all.len() as u64,
                "{counted} of {} fires: {one:?}",
                all.len()
            );
            let of_it = format!("{}@", one.name);
            let ticks: Vec<u64> = self
                .history
                .fired
                .iter()
                .filter_map(|id| id.text().strip_prefix(&of_it)?.parse().ok())
                .collect();
            ensure!(
                ticks.len() as u64 == one.counts[0],
                "{} ticks: {one:?}",
                ticks.len()
            );
            let other = ticks.iter().find(|tick| all.binary_search(tick).is_err());
            ensure!(other.is_none(), "{other:?} is no fire: {one:?}");
            count += all.len();
        }
        Ok(count)
    }
}

#[test]
fn crons_of_six_zones_match_the_model_over_clock_changes() -> Result<()> {
    let mut run = Run::start(10, Kind::Schedules, Calls::Evalsha)?;
    let crons = run.driver.crons()?;
    run.call(crons)?;
    let start = run.driver.now.floor();
    while run.driver.now.floor() < start + SPAN_MS {
        let ms = match run.driver.random.u8(0..4) {
            0 => run.driver.random.u64(1..HOUR),
            1 => run.driver.random.u64(1..DAY),
            _ => run.driver.random.u64(1..3 * DAY),
        };
        run.driver.now.0 += 1_000 * ms;
        for _ in 0..2 {
            let operation = run.driver.call_of_zones(&run.world)?;
            run.call(operation)?;
        }
    }
    let count = run.all_fires_are_counted()?;
    let ticks = run.history.fired.len();
    println!("{ticks} ticks of {count} fires: {:?}", run.world.met);
    ensure!(count > 60_000, "only {count} fires were over");
    ensure!(ticks > 500, "only {ticks} ticks were made");
    Ok(())
}
