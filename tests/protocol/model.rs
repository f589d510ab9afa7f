//! Makes random calls to a queue and a model of it, and compares each reply and the whole state.
//!
//! `DUEQ_MODEL_SEED` names the seeds of further runs, such as `7` or `7,8,9`. `DUEQ_MODEL_STEPS`
//! sets the length of each run. A failure names its seed and step.

/// The random client.
mod client {
    pub(crate) mod arguments;
    pub(crate) mod choices;
    pub(crate) mod choices_of_schedules;
    pub(crate) mod driver;
    pub(crate) mod items;
    pub(crate) mod operation;
    pub(crate) mod plans;
    pub(crate) mod plans_of_ends;
}
/// The part of the model for schedules.
pub(crate) mod schedules {
    pub(crate) mod fields;
    pub(crate) mod fires;
    pub(crate) mod schedule;
    pub(crate) mod verbs;
    #[cfg(feature = "schedules")]
    pub(crate) mod zones;
}

mod claims;
mod consumers;
mod coverage;
mod expected;
mod history;
mod history_of_pushes;
mod memory;
mod message;
mod partitions;
mod producers;
mod pushes;
pub(crate) mod reads;
pub(crate) mod repairs;
mod soft_limits;
mod structure;
mod windows;
mod world;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::queue::{Calls, Queue};
use crate::reply::{Reply, Text, words};
use client::driver::Driver;
use client::operation::Operation;
use coverage::{REQUIRED, REQUIRED_OF_SCHEDULES};
use history::History;
pub(crate) use structure::check_structure;
use world::{Now, World};

const STEPS: usize = 6_000;
const SEEDS: [u64; 4] = [1, 2, 3, 4];
const PLAIN_SEED: u64 = 1;
const SCHEDULES_SEED: u64 = 9;

/// How many of the last calls a failure shows.
const SHOWN: usize = 12;

/// How often each verb gave each kind of result.
type Coverage = BTreeMap<String, usize>;

struct Run {
    queue: Queue,
    world: World,
    driver: Driver,
    history: History,
    shown: VecDeque<(Now, Operation)>,
    coverage: Coverage,
}

#[derive(Clone, Copy)]
enum Kind {
    Mixed,
    /// A run in which no call stores anything in attrs, so that claims take their fast path.
    Plain,
    /// A run at the partition with this tag, whose map changes.
    Partition(&'static str),
    /// A run in which most calls are about schedules.
    Schedules,
}

/// Makes the run of a seed on its own server. It stops early when another run has failed.
fn run(seed: u64, kind: Kind, steps: usize, calls: Calls, failed: &AtomicBool) -> Result<Coverage> {
    let mut run = Run::start(seed, kind, calls)?;
    for step in 0..steps {
        if failed.load(Ordering::Relaxed) {
            break;
        }
        run.step()
            .inspect_err(|_| failed.store(true, Ordering::Relaxed))
            .with_context(|| {
                let calls: Vec<String> = run
                    .shown
                    .iter()
                    .map(|(now, operation)| format!("  {now:?} {operation:?}"))
                    .collect();
                format!(
                    "DUEQ_MODEL_SEED={seed}, step {step}; the last calls:\n{}",
                    calls.join("\n")
                )
            })?;
    }
    let counted = run
        .world
        .counters
        .iter()
        .map(|(name, count)| ((*name).to_owned(), *count as usize));
    run.coverage.extend(counted);
    run.coverage.extend(run.world.met);
    Ok(run.coverage)
}

impl Run {
    fn start(seed: u64, kind: Kind, calls: Calls) -> Result<Self> {
        let mut run = Self {
            queue: Queue::start()?,
            world: World {
                is_home: true,
                ..World::default()
            },
            driver: Driver::new(seed, matches!(kind, Kind::Plain)),
            history: History::default(),
            shown: VecDeque::new(),
            coverage: Coverage::new(),
        };
        if let Kind::Partition(tag) = kind {
            run.queue.enter(tag)?;
            run.driver.has_map = true;
            run.world.is_home = tag == "-";
        }
        run.queue.through(calls)?;
        run.history.is_mixed = calls == Calls::BesideFrozen;
        run.driver.has_old_rights = calls == Calls::ByRoleOf01;
        // The scripts of release 0.1 refuse layout 3.
        run.driver.may_have_layout_3 = ![Calls::ByRoleOf01, Calls::BesideFrozen].contains(&calls);
        run.driver.of_schedules = match (kind, calls) {
            (Kind::Schedules, _) => 60,
            (Kind::Mixed, Calls::InTurn | Calls::ByRole) => 12,
            _ => 0,
        };
        Ok(run)
    }

    fn step(&mut self) -> Result<()> {
        self.driver.pass_time(&self.world);
        if self.world.wake > 0 && self.driver.chance(30) {
            let wake = self.queue.key("wake");
            self.queue.command(words!["LPOP", wake])?;
            self.world.wake -= 1;
        }
        let (now, (number, operation)) = (self.driver.now, self.driver.next(&self.world));
        if self.shown.len() == SHOWN {
            self.shown.pop_front();
        }
        self.shown.push_back((now, operation.clone()));

        let known = self.driver.known(&self.world, &operation);
        let clock = known.map_or(now.word(), |epoch| {
            format!("m{epoch} {}", now.word().text()).into()
        });
        let reply = self
            .queue
            .call(operation.verb(), clock, operation.words())?;
        let refused = self.world.refusal(&operation, known);
        ensure!(reply.code() == refused, "{reply:?}, not {refused:?}");
        let after = self.queue.state()?;
        if let Some(code) = refused {
            *self.coverage.entry(code.to_owned()).or_default() += 1;
            let difference = after.difference(&self.world.expected());
            ensure!(difference.is_none(), "a refused call: {difference:?}");
            return Ok(());
        }
        let call_at = (!operation.is_quiet()).then_some(now);
        check_structure(&after, call_at)?;
        self.history.note(number, now, &operation, &reply, &after)?;
        self.cover(&operation, &reply)?;
        if let Operation::Claim { token, .. } = &operation {
            if !self.queue.was_frozen {
                history::no_delivery_has_expired(now, &reply)?;
            }
            let deliveries = reply.deliveries()?;
            let ids = deliveries.iter().map(|[id, ..]| id.bytes().cloned());
            self.driver.learn(ids.collect::<Result<_>>()?, token);
        }

        self.world.is_frozen = self.queue.was_frozen;
        let (was_full, rate_until) = (self.world.is_full, self.world.rate_until);
        let expected = self.world.apply(now, &operation, &after)?;
        if matches!(operation, Operation::Claim { .. }) {
            let fills = (!was_full && self.world.is_full).then_some("claim fills");
            let closes = (rate_until != self.world.rate_until).then_some("claim closes");
            for met in [fills, closes].into_iter().flatten() {
                *self.coverage.entry(met.to_owned()).or_default() += 1;
            }
        }
        let reply = match operation {
            Operation::Audit { part, .. } => {
                repairs::looked_at_all(part, &reply)?;
                repairs::header_and_findings(&reply)?
            }
            _ => without_reasons(reply),
        };
        ensure!(
            reply == expected,
            "the reply\n    is       {reply:?}\n    expected {expected:?}"
        );
        for schedule in self.world.schedules.values() {
            ensure!(
                schedule.is_conserved(),
                "a fire is lost or counted twice: {schedule:?}"
            );
        }
        if let Some(difference) = after.difference(&self.world.expected()) {
            anyhow::bail!("the state is not as expected: {difference}");
        }
        Ok(())
    }
}

/// Removes the reason after a refusal's code: the model compares the codes only.
fn without_reasons(reply: Reply) -> Reply {
    let refusal = |text: &Text| {
        ["INVALID", "FULL"]
            .into_iter()
            .find(|code| text.0.starts_with(format!("{code} ").as_bytes()))
    };
    let item = |item: Reply| match &item {
        Reply::Text(text) => refusal(text).map_or(item, Reply::from),
        _ => item,
    };
    let part = |part: Reply| match part {
        Reply::List(items) => Reply::List(items.into_iter().map(item).collect()),
        other => other,
    };
    match reply {
        Reply::List(parts) => Reply::List(parts.into_iter().map(part).collect()),
        other => other,
    }
}

/// The results that these runs have met, added up.
fn met_by(runs: impl IntoIterator<Item = Result<Coverage>>) -> Result<Coverage> {
    let mut met = Coverage::new();
    for run in runs {
        for (answer, count) in run? {
            *met.entry(answer).or_default() += count;
        }
    }
    Ok(met)
}

/// Checks that the runs have met all required results. Short runs are excepted.
fn all_are_met(required: &[&str], met: &Coverage, steps: usize) -> Result<()> {
    let missed: Vec<_> = required
        .iter()
        .filter(|answer| !met.contains_key(**answer))
        .collect();
    ensure!(
        missed.is_empty() || steps < STEPS,
        "no run met these results: {missed:?}"
    );
    Ok(())
}

/// The seeds of `DUEQ_MODEL_SEED`.
fn named_seeds() -> Result<Vec<u64>> {
    let named = std::env::var("DUEQ_MODEL_SEED").unwrap_or_default();
    let named = named.split(',').filter(|seed| !seed.is_empty());
    Ok(named.map(str::parse).collect::<Result<_, _>>()?)
}

fn steps() -> Result<usize> {
    Ok(std::env::var("DUEQ_MODEL_STEPS").map_or(Ok(STEPS), |steps| steps.parse())?)
}

#[test]
fn every_reply_and_state_matches_the_model() -> Result<()> {
    let named = named_seeds()?;
    let (start, steps) = (Instant::now(), steps()?);
    let mut seeds: Vec<_> = SEEDS
        .into_iter()
        .chain(named.iter().copied())
        .map(|seed| (seed, Kind::Mixed))
        .collect();
    seeds.push((named.first().copied().unwrap_or(PLAIN_SEED), Kind::Plain));
    let failed = AtomicBool::new(false);
    let runs: Vec<Result<Coverage>> = std::thread::scope(|scope| {
        let start = |&(seed, kind)| {
            let failed = &failed;
            scope.spawn(move || run(seed, kind, steps, Calls::Evalsha, failed))
        };
        let runs: Vec<_> = seeds.iter().map(start).collect();
        runs.into_iter()
            .map(|run| {
                run.join()
                    .unwrap_or_else(|_| Err(anyhow::anyhow!("a run panicked")))
            })
            .collect()
    });
    let met = met_by(runs)?;
    println!(
        "{} seeds of {steps} steps in {:?}: {met:#?}",
        seeds.len(),
        start.elapsed()
    );
    all_are_met(REQUIRED, &met, steps)
}

/// Most random calls are about schedules and claims of their ticks.
#[test]
fn schedules_and_their_ticks_match_the_model() -> Result<()> {
    let steps = steps()?;
    let seeds = [vec![SCHEDULES_SEED], named_seeds()?].concat();
    let start = |seed| {
        run(
            seed,
            Kind::Schedules,
            steps,
            Calls::Evalsha,
            &AtomicBool::new(false),
        )
    };
    let met = met_by(seeds.into_iter().map(start))?;
    println!("{met:#?}");
    all_are_met(REQUIRED_OF_SCHEDULES, &met, steps)
}

/// Scripts and functions call one queue in turn. Every reply and every state must match the model.
#[test]
fn functions_and_scripts_share_a_queue() -> Result<()> {
    mixed(4, Calls::InTurn)
}

/// Users with only one role make the calls of that role. The role's rights suffice on every path.
#[test]
fn each_role_has_the_rights_for_its_verbs() -> Result<()> {
    mixed(5, Calls::ByRole)
}

/// The rights of release 0.1 suffice for everything that it could do.
#[test]
fn the_rights_of_release_0_1_suffice_for_its_verbs() -> Result<()> {
    mixed(5, Calls::ByRoleOf01)
}

fn mixed(seed: u64, calls: Calls) -> Result<()> {
    let failed = AtomicBool::new(false);
    let coverage = run(seed, Kind::Mixed, steps()?, calls, &failed)?;
    println!(
        "{} answers of {} kinds",
        coverage.values().sum::<usize>(),
        coverage.len()
    );
    Ok(())
}

/// Release 0.1's scripts and functions and today's scripts call one queue, as the model expects.
#[test]
fn frozen_release_and_todays_scripts_share_a_queue() -> Result<()> {
    mixed(6, Calls::BesideFrozen)
}
