//! A rate on twenty nodes that are killed, across two failovers: never too many starts in a window,
//! and the sustained rate while messages wait.

mod judge;
mod servers;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use dueq::{Client, Limits, Message};

use super::history::{History, Start};
use super::node::{Crew, Work};
use super::record::wall_us;
use super::report::{Report, ms, rounded};
use super::watch::{Seen, Watch};
use super::{Arguments, Folder, QUEUE, push};
use judge::Failure;
use servers::Servers;

const NODES: usize = 20;
const STARTS: u32 = 100;
const WINDOW: Duration = Duration::from_secs(1);
const WINDOW_US: u64 = 1_000_000;
const BURST: u32 = 10;
const LEASE_MS: u64 = 5_000;
const FAILOVERS: usize = 2;
/// From a promotion to the next kill of a master, at least.
const BETWEEN_FAILOVERS: Duration = Duration::from_secs(5);
/// How long the nodes run before the sustained rate counts.
const SETTLING: Duration = Duration::from_secs(3);
const SHARE_GOAL: f64 = 0.97;
const STEP: Duration = Duration::from_millis(100);

pub(super) async fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let length = Duration::from_secs_f64(arguments.minutes.unwrap_or(10.0) * 60.0);
    let mut folder = Folder::create("rate")?;
    let mut servers = Servers::start(FAILOVERS)?;
    let queue = Client::connect(&servers.url()).await?.queue(QUEUE)?;
    let limits = Limits::new().rate(STARTS, WINDOW).burst(BURST);
    queue.configure(limits).await?;
    let seconds = (SETTLING + length).as_secs() + 60;
    let message = |_| Message::new("x").new_id();
    push(&queue, seconds * u64::from(STARTS), message).await?;
    servers.in_step()?;
    let watch = Watch::start(servers.port()).await?;
    let work = Work {
        url: servers.url(),
        lease_ms: LEASE_MS,
        handler_ms: 0,
        scripts: arguments.scripts.clone(),
    };
    let mut crew = Crew::start(NODES, work, folder.path())?;
    let begin = Instant::now();
    while watch.seen().claimed == 0 {
        ensure!(begin.elapsed() < Duration::from_secs(60), "no node starts");
        tokio::time::sleep(STEP).await;
    }
    tokio::time::sleep(SETTLING).await;
    eprintln!("rate: {NODES} nodes for {} s", length.as_secs());
    let (begin, begin_us) = (Instant::now(), wall_us());
    let (mut failures, mut planned) = (Vec::new(), 0);
    let mut next_kill = begin;
    let mut last_failover = begin;
    while begin.elapsed() < length || planned < FAILOVERS {
        tokio::time::sleep(STEP).await;
        crew.replace_ended()?;
        if Instant::now() >= next_kill {
            crew.kill_any().await?;
            let pause = arguments.kill_every * (0.5 + fastrand::f64());
            next_kill = Instant::now() + Duration::from_secs_f64(pause);
        }
        failures.extend(servers.look(&watch).await?);
        let part = (planned + 1) as f64 / (FAILOVERS as f64 + 1.0);
        let is_up = last_failover.elapsed() >= BETWEEN_FAILOVERS;
        if planned < FAILOVERS && is_up && begin.elapsed() >= length.mul_f64(part) {
            failures.push(servers.fail_over(&watch).await?);
            (planned, last_failover) = (planned + 1, Instant::now());
        }
    }
    let end_us = wall_us();
    crew.end().await?;
    let seen = watch.end().await?;
    let history = History::read(folder.path(), &seen.held, LEASE_MS)?;
    report.scenario("rate");
    report.figure("kills", crew.kills);
    report.figure("nodes that exited unexpectedly", crew.ended);
    report.figure("failovers", failures.len());
    if judge(report, &history, &seen, &failures) > STARTS as usize {
        folder.keep();
    }
    sustained(report, &history.starts, &failures, (begin_us, end_us));
    Ok(())
}

/// Returns the most starts in a window without a failover.
fn judge(report: &mut Report, history: &History, seen: &Seen, failures: &[Failure]) -> usize {
    let recorded = history.starts.len() as u64;
    report.figure("starts", recorded);
    report.figure("starts whose answer a kill lost", history.unlogged);
    let undone = i64::try_from(recorded).unwrap_or(0) - i64::try_from(seen.claimed).unwrap_or(0);
    let name = "starts that failovers undid";
    report.rule(name, undone, "none is missing", undone >= 0);
    report.rule(
        "messages left",
        seen.waiting,
        "at least 1",
        seen.waiting > 0,
    );
    let starts = &history.starts;
    let most = judge::apart(starts, failures)
        .map(|starts| judge::most_in_window(starts, WINDOW_US))
        .max();
    let (most, limit) = (most.unwrap_or(0), STARTS as usize);
    let text = format!("at most {limit}");
    report.rule(
        "most starts in 1 s, no failover in it",
        most,
        text,
        most <= limit,
    );
    let across: Vec<_> = failures
        .iter()
        .map(|failure| judge::most_across(starts, failure, WINDOW_US))
        .collect();
    let excess = across.iter().map(|most| most.saturating_sub(limit)).max();
    report.figure("most starts in 1 s, across each failover", across);
    report.figure("excess across a failover", excess.unwrap_or(0));
    let calls = seen.script_calls();
    report.figure("script calls by the servers' count", calls);
    report.figure(
        "script calls per start",
        rounded(calls as f64 / recorded as f64),
    );
    let each = history
        .calls
        .iter()
        .map(|(verb, calls)| format!("{verb} {}", rounded(*calls as f64 / recorded as f64)));
    report.figure("of them by verb", each.collect::<Vec<_>>().join(", "));
    most
}

fn sustained(
    report: &mut Report,
    starts: &[Start],
    failures: &[Failure],
    (begin_us, end_us): (u64, u64),
) {
    let outages = judge::outages(starts, failures, end_us);
    let counts = |start: &&Start| {
        let us = start.latest_us;
        (begin_us..end_us).contains(&us) && !outages.iter().any(|outage| outage.contains(&us))
    };
    let count = starts.iter().filter(counts).count();
    let outages_us: Vec<_> = outages.iter().map(|one| one.end - one.start).collect();
    let up_us = (end_us - begin_us) - outages_us.iter().sum::<u64>();
    let per_s = count as f64 * 1e6 / up_us as f64;
    let full = f64::from(STARTS) / WINDOW.as_secs_f64();
    let sustainable = f64::from(STARTS - BURST + 1) / WINDOW.as_secs_f64();
    let outages_ms: Vec<_> = outages_us.into_iter().map(ms).collect();
    report.figure("outages, ms", outages_ms);
    report.figure("starts/s, without outages", rounded(per_s));
    report.figure("share of N/W", rounded(per_s / full));
    let (share, text) = (per_s / sustainable, format!("at least {SHARE_GOAL}"));
    let name = "share of (N-B+1)/W, the most that the rate sustains";
    report.goal(name, rounded(share), text, share >= SHARE_GOAL);
    let gaps = judge::apart(starts, failures).flat_map(|starts| {
        let gap = |pair: &[_]| judge::between(&pair[0], &pair[1]);
        starts.windows(2).map(gap)
    });
    let longest = gaps.max().unwrap_or(0);
    let name = "longest time without a start, no failover in it, ms";
    report.figure(name, ms(longest));
}
