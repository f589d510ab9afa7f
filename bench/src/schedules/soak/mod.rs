//! Two hundred schedules on three nodes that are killed and stopped, across failovers: the law of
//! conservation for each schedule, and no tick twice.

mod declared;
mod history;
mod judge;
mod operator;
mod servers;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use dueq::{Client, queue_keys};
use dueq_testkit::cluster;

use self::declared::Declared;
use self::history::{Grant, History};
use self::judge::{Counted, Judged, Run, due_ms, judge, tick};
use self::operator::{Done, Operator, apply};
use self::servers::Servers;
use super::Arguments;
use crate::limits::node::{Crew, Work};
use crate::limits::record::wall_us;
use crate::limits::report::{ms, quantile, rounded};
use crate::limits::watch::Watch;
use crate::limits::{Folder, QUEUE};
use crate::uniqueness::outcome::Outcome;

const NODES: usize = 3;
const LEASE_MS: u64 = 2_000;
const HANDLER_MS: u64 = 5;
/// The part of the run without faults, at its begin.
const CALM: f64 = 0.15;
const STEP: Duration = Duration::from_millis(100);
/// The first claims find the fires of the nodes' start.
const SETTLING: Duration = Duration::from_secs(3);
/// The lease of a killed node runs out, and another node gets its ticks.
const DRAIN: Duration = Duration::from_secs(8);
/// Fields of hashes that begin with a byte below this are no ids.
const FIRST_OF_IDS: u8 = 32;

/// When faults began and ended, and what they were.
struct Faults {
    /// From this time on ticks are late for other reasons than the nodes' start.
    calm_us: u64,
    begin_us: u64,
    end_us: u64,
    failures: Vec<judge::Failure>,
}

pub(super) async fn run(arguments: &Arguments) -> Result<Outcome> {
    let length = Duration::from_secs_f64(arguments.minutes * 60.0);
    let mut folder = Folder::create("schedules")?;
    let mut servers = Servers::start()?;
    let declared = declared::all();
    let client = Client::connect(&servers.url()).await?;
    let created = apply(&client, &declared).await?;
    ensure!(
        created.len() == declared.len(),
        "{} schedules created",
        created.len()
    );
    servers.in_step()?;
    let watch = Watch::start(servers.port()).await?;
    let work = Work {
        url: servers.url(),
        lease_ms: LEASE_MS,
        handler_ms: HANDLER_MS,
        scripts: arguments.scripts.clone(),
    };
    let mut crew = Crew::start(NODES, work, folder.path())?;
    let begin = Instant::now();
    while watch.seen().claimed == 0 {
        ensure!(begin.elapsed() < Duration::from_secs(60), "no node starts");
        tokio::time::sleep(STEP).await;
    }
    let operator = Operator::start(servers.url(), declared.clone());
    eprintln!("soak: {NODES} nodes for {} s", length.as_secs());
    let mut failures = Vec::new();
    watched(&mut servers, &watch, &mut crew, SETTLING, &mut failures).await?;
    let calm_us = wall_us();
    watched(
        &mut servers,
        &watch,
        &mut crew,
        length.mul_f64(CALM),
        &mut failures,
    )
    .await?;
    let begin_us = wall_us();
    faults(
        arguments,
        &mut servers,
        &watch,
        &mut crew,
        length.mul_f64(1.0 - CALM),
        &mut failures,
    )
    .await?;
    let end_us = wall_us();
    let operated = operator.end()?;
    watched(&mut servers, &watch, &mut crew, DRAIN, &mut failures).await?;
    crew.end().await?;
    let seen = watch.end().await?;
    let (counted, mut stored) = at_end(&client, servers.port()).await?;
    stored.extend(seen.held.values().flat_map(|held| held.ids.clone()));
    let history = History::read(folder.path())?;
    let judged = judge(&Run {
        declared: &declared,
        counted: &counted,
        grants: &history.grants,
        stored: &stored,
        operator: &operated,
        failures: &failures,
    });
    if judged.violations.summary().is_some() {
        folder.keep();
    }
    let faults = Faults {
        calm_us,
        begin_us,
        end_us,
        failures,
    };
    let mut outcome = reported(judged, &history, &declared, &faults);
    outcome.figure("kills", crew.kills);
    outcome.figure("stops", crew.stops);
    outcome.figure("nodes that ended by themselves", crew.ended);
    operated_figures(&mut outcome, &operated, &faults);
    Ok(outcome)
}

/// Kills and stops nodes, and fails over.
async fn faults(
    arguments: &Arguments,
    servers: &mut Servers,
    watch: &Watch,
    crew: &mut Crew,
    length: Duration,
    failures: &mut Vec<judge::Failure>,
) -> Result<()> {
    let between = |seconds: f64| Duration::from_secs_f64(seconds);
    let (begin, mut last_failover) = (Instant::now(), Instant::now());
    let mut next_fault = begin;
    while begin.elapsed() < length {
        watched(servers, watch, crew, STEP, failures).await?;
        if Instant::now() >= next_fault {
            match fastrand::bool() {
                true => drop(crew.kill_any().await?),
                false => crew.stop_any(Duration::from_millis(fastrand::u64(1_000..4_000)))?,
            }
            next_fault = Instant::now() + between(arguments.fault_every);
        }
        if last_failover.elapsed() >= between(arguments.failover_every) {
            failures.push(servers.fail_over(watch).await?);
            last_failover = Instant::now();
        }
    }
    Ok(())
}

/// Lets the nodes work for this time.
async fn watched(
    servers: &mut Servers,
    watch: &Watch,
    crew: &mut Crew,
    time: Duration,
    failures: &mut Vec<judge::Failure>,
) -> Result<()> {
    let end = Instant::now() + time;
    loop {
        crew.continue_due();
        crew.replace_ended()?;
        failures.extend(servers.look(watch).await?);
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        tokio::time::sleep(STEP.min(left)).await;
    }
}

/// The counts of all schedules, and the ids that wait, are leased or dead. Nobody works on the queue any more.
async fn at_end(client: &Client, port: u16) -> Result<(HashMap<String, Counted>, HashSet<String>)> {
    let page = client.queue(QUEUE)?.list_schedules(None, 1_000).await?;
    let counted = page.schedules.iter();
    let counted = counted.map(|info| (info.name.clone(), Counted::from(info)));
    let keys = queue_keys(QUEUE)?;
    // A message without one of these would be lost.
    let [scheduled, ready, _, claims, .., dead, _, _, _] = &keys[..] else {
        bail!("a queue has {} keys", keys.len());
    };
    type Places = [Vec<Vec<u8>>; 4];
    let mut connection = cluster::connection(port).await?;
    let places: Places = redis::pipe()
        .zrange(scheduled, 0, -1)
        .lrange(ready, 0, -1)
        .hkeys(claims)
        .zrange(dead, 0, -1)
        .query_async(&mut connection)
        .await?;
    let mut ids = HashSet::new();
    for (index, place) in places.iter().enumerate() {
        for entry in place {
            let text = String::from_utf8_lossy(entry);
            // In the ready list, the due time comes first.
            let id = match index {
                1 => text.split_once(':').map_or("", |(_, id)| id),
                _ => &*text,
            };
            if id.bytes().next().is_some_and(|first| first >= FIRST_OF_IDS) {
                ids.insert(id.to_owned());
            }
        }
    }
    Ok((counted.collect(), ids))
}

fn reported(
    judged: Judged,
    history: &History,
    declared: &HashMap<String, Declared>,
    faults: &Faults,
) -> Outcome {
    let (fires, made) = (judged.fires, judged.made);
    let (after_crashes, undone) = (judged.after_crashes, judged.undone);
    let mut outcome = Outcome::new(judged.violations);
    outcome.figure("fires", fires);
    outcome.figure("ticks made", made);
    outcome.figure("ticks seen by nodes", history.grants.len());
    outcome.figure("grants after a crash", after_crashes);
    outcome.figure("grants after an undone one", undone);
    outcome.figure("failovers", faults.failures.len());
    let windows = faults.failures.iter();
    let windows: Vec<_> = windows.map(|one| ms(one.until_us - one.from_us)).collect();
    outcome.figure("time that each may undo, ms", windows);
    let [mut calm, mut faulty] = lateness(&history.grants, declared, faults);
    for (names, late) in [
        (
            [
                "lateness without faults, p50 ms",
                "lateness without faults, p99 ms",
            ],
            &mut calm,
        ),
        (
            [
                "lateness with faults, p50 ms",
                "lateness with faults, p99 ms",
            ],
            &mut faulty,
        ),
    ] {
        outcome.figure(names[0], ms(quantile(late, 0.5)));
        outcome.figure(names[1], ms(quantile(late, 0.99)));
    }
    let ticks = history.grants.len().max(1) as f64;
    let calls: u64 = history.calls.values().sum();
    outcome.figure(
        "script calls of nodes per tick",
        rounded(calls as f64 / ticks),
    );
    let each = history.calls.iter();
    let each = each.map(|(verb, calls)| format!("{verb} {}", rounded(*calls as f64 / ticks)));
    outcome.figure("of them by verb", each.collect::<Vec<_>>().join(", "));
    outcome
}

fn operated_figures(outcome: &mut Outcome, operated: &Done, faults: &Faults) {
    outcome.figure("pauses", operated.pauses);
    outcome.figure("resumes", operated.resumes);
    outcome.figure("ticks by hand", operated.triggered.len());
    outcome.figure("applies of the same set", operated.applies);
    outcome.figure("operator's calls without an answer", operated.failed);
    for (name, at_ms) in &operated.changed {
        let is_near = |one: &judge::Failure| one.from_us / 1_000 <= at_ms + 60_000;
        if !faults.failures.iter().any(is_near) {
            let text = format!("the same apply changed {name} at {at_ms} ms");
            outcome.violations.add(text);
        }
    }
}

/// Of the first grant of each tick, in microseconds: before the faults, and during them.
fn lateness(
    grants: &HashMap<String, Vec<Grant>>,
    declared: &HashMap<String, Declared>,
    faults: &Faults,
) -> [Vec<u64>; 2] {
    let mut late = [Vec::new(), Vec::new()];
    for (id, grants) in grants {
        let Some((name, nominal)) = tick(id) else {
            continue;
        };
        let (Some(first), Some(declared)) = (grants.first(), declared.get(name)) else {
            continue;
        };
        let is_measured = (faults.calm_us..faults.end_us).contains(&first.us);
        if nominal % declared.every_ms == 0 && is_measured {
            let due_us = due_ms(declared, nominal) * 1_000;
            let index = usize::from(first.us >= faults.begin_us);
            late[index].push(first.us.saturating_sub(due_us));
        }
    }
    late
}
