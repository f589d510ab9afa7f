//! Two hundred schedules on three nodes that are killed and stopped, across failovers: the law of
//! conservation for each schedule, and no tick twice.

mod declared;
mod figures;
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

use self::figures::{Faults, operated_figures, reported};
use self::history::History;
use self::judge::{Counted, Run, judge};
use self::operator::{Operator, apply};
use self::servers::Servers;
use super::Arguments;
use crate::limits::node::{Crew, Work};
use crate::limits::record::wall_us;
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
    outcome.figure("nodes that exited unexpectedly", crew.ended);
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

/// The counts of all schedules, and the ids that wait, are leased or dead. No process uses the queue any more.
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
