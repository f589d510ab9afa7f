//! `max_leased` 1 on ten nodes that are killed: never two leases at once, and no lost place.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use dueq::{Client, Limits, Message, Queue};
use dueq_testkit::Server;

use super::history::{History, Start};
use super::node::{Crew, Work};
use super::record::wall_us;
use super::report::{Report, ms, quantile};
use super::watch::Watch;
use super::{Arguments, Folder, QUEUE, push};

const NODES: usize = 10;
const LEASE_MS: u64 = 2_000;
const HANDLER_MS: u64 = 5;
/// The goal after a kill: the rest of the lease, and a second to take it back.
const AFTER_KILL_MS: u64 = LEASE_MS + 1_000;
/// A queue that starts nothing for so long is stuck, on any machine.
const STUCK_MS: u64 = LEASE_MS + 10_000;
const GAP_GOAL_MS: f64 = 2.0;
/// Messages that always wait.
const BACKLOG: u64 = 5_000;
const STEP: Duration = Duration::from_millis(250);

pub(super) async fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let length = Duration::from_secs_f64(arguments.minutes.unwrap_or(2.0) * 60.0);
    let calm = (length / 4).min(Duration::from_secs(30));
    let (server, mut folder) = (Server::start(&[])?, Folder::create("leased")?);
    let queue = Client::connect(&server.url()).await?.queue(QUEUE)?;
    queue.configure(Limits::new().max_leased(1)).await?;
    push_some(&queue).await?;
    let watch = Watch::start(server.port()).await?;
    let work = Work {
        url: server.url(),
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
    eprintln!("leased: {NODES} nodes for {} s", calm.as_secs());
    let begin_us = wall_us();
    stay(&queue, &watch, &mut crew, calm).await?;
    let (calm_end_us, end) = (wall_us(), Instant::now() + length);
    eprintln!("leased: and {} s with kills", length.as_secs());
    let mut kills_us = Vec::new();
    while Instant::now() < end {
        let pause = arguments.kill_every * (0.5 + fastrand::f64());
        stay(&queue, &watch, &mut crew, Duration::from_secs_f64(pause)).await?;
        kills_us.push(match kills_us.len() % 2 {
            0 => crew.kill_holder().await?,
            _ => crew.kill_any().await?,
        });
    }
    stay(
        &queue,
        &watch,
        &mut crew,
        Duration::from_millis(STUCK_MS / 2),
    )
    .await?;
    let end_us = wall_us();
    crew.end().await?;
    let seen = watch.end().await?;
    let history = History::read(folder.path(), &seen.held, LEASE_MS)?;

    report.scenario("leased");
    report.figure("kills", crew.kills);
    report.figure("nodes that exited unexpectedly", crew.ended);
    report.figure("starts", history.starts.len());
    report.figure("starts whose answer a kill lost", history.unlogged);
    let recorded = history.starts.len() as u64;
    let text = format!("{}, the server's counter", seen.claimed);
    report.rule("recorded starts", recorded, text, recorded == seen.claimed);
    let most = most_at_once(&history.starts);
    report.rule("most leases at once", most, "1", most == 1);
    let (looked, name) = (seen.most_leased, "most leases at a look at the server");
    report.rule(name, looked, "at most 1", looked <= 1);
    if most > 1 {
        folder.keep();
    }
    judge_kills(report, &history.starts, &kills_us);
    let names = [
        "ack to next start, p50 ms, no kills",
        "ack to next start, p99 ms, no kills",
        "starts/s, no kills",
    ];
    speed(report, names, &history.starts, begin_us..calm_end_us);
    let names = [
        "ack to next start, p50 ms, kills",
        "ack to next start, p99 ms, kills",
        "starts/s, kills",
    ];
    speed(report, names, &history.starts, calm_end_us..end_us);
    Ok(())
}

/// How fast starts followed each other in this time.
fn speed(report: &mut Report, names: [&'static str; 3], starts: &[Start], time: Range<u64>) {
    let starts = starts
        .iter()
        .filter(|start| time.contains(&start.latest_us));
    let starts: Vec<_> = starts.copied().collect();
    let mut gaps = gaps(&starts);
    let half = ms(quantile(&mut gaps, 0.5));
    let (text, is_met) = (format!("at most {GAP_GOAL_MS}"), half <= GAP_GOAL_MS);
    report.goal(names[0], half, text, is_met);
    report.figure(names[1], ms(quantile(&mut gaps, 0.99)));
    let per_s = starts.len() as f64 * 1e6 / (time.end - time.start) as f64;
    report.figure(names[2], per_s.round());
}

fn judge_kills(report: &mut Report, starts: &[Start], kills_us: &[u64]) {
    let orphans = starts
        .iter()
        .filter(|start| start.acked_us.is_none())
        .count();
    report.figure("leases without an ack", orphans);
    let mut waits = next_starts(starts, kills_us);
    let (half, longest) = (
        quantile(&mut waits, 0.5),
        waits.last().copied().unwrap_or(0),
    );
    report.figure("kill to next start, p50 ms", ms(half));
    let name = "kill to next start, longest ms";
    let is_met = longest <= AFTER_KILL_MS * 1_000;
    report.goal(
        name,
        ms(longest),
        format!("at most {AFTER_KILL_MS}"),
        is_met,
    );
    let is_alive = waits.len() == kills_us.len() && longest <= STUCK_MS * 1_000;
    let text = format!("after each within {STUCK_MS} ms");
    report.rule("kills followed by a start", waits.len(), text, is_alive);
}

/// Keeps the queue filled and the nodes alive.
async fn stay(queue: &Queue, watch: &Watch, crew: &mut Crew, length: Duration) -> Result<()> {
    let end = Instant::now() + length;
    while Instant::now() < end {
        tokio::time::sleep(STEP.min(end - Instant::now())).await;
        if watch.seen().waiting < BACKLOG {
            push_some(queue).await?;
        }
        crew.replace_ended()?;
    }
    Ok(())
}

async fn push_some(queue: &Queue) -> Result<()> {
    push(queue, BACKLOG, |_| Message::new("x").new_id()).await
}

/// The most leases that certainly lasted in one instant. Prints the first that are more than one.
fn most_at_once(starts: &[Start]) -> usize {
    let mut lasting: Vec<&Start> = Vec::new();
    let mut most = 0;
    for start in starts {
        // The script that ends a lease and the claim after it may run in the same microsecond.
        lasting.retain(|earlier| earlier.end_us() > start.latest_us);
        lasting.push(start);
        if lasting.len() > 1 && most < 2 {
            eprintln!("leases at once: {lasting:?}");
        }
        most = most.max(lasting.len());
    }
    most
}

/// The times between the ack of each lease and the start after it, in microseconds.
fn gaps(starts: &[Start]) -> Vec<u64> {
    let pair_gap = |pair: &[Start]| pair[1].earliest_us.checked_sub(pair[0].acked_us?);
    starts.windows(2).filter_map(pair_gap).collect()
}

/// The times from each kill to the next start, in microseconds; none for a kill without one.
fn next_starts(starts: &[Start], kills_us: &[u64]) -> Vec<u64> {
    let next = |kill_us: &u64| {
        let index = starts.partition_point(|start| start.latest_us < *kill_us);
        starts.get(index).map(|start| start.latest_us - kill_us)
    };
    kills_us.iter().filter_map(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(us: u64, end_us: u64, is_acked: bool) -> Start {
        Start {
            earliest_us: us,
            latest_us: us,
            deadline_us: end_us,
            settled_us: None,
            acked_us: is_acked.then_some(end_us),
        }
    }

    #[test]
    fn overlapping_leases_are_found() {
        let apart = [
            start(0, 10, true),
            start(10, 20, true),
            start(25, 2_025, false),
        ];
        assert_eq!(most_at_once(&apart), 1);
        let second_is_early = [start(0, 2_000, false), start(1_999, 3_999, false)];
        assert_eq!(most_at_once(&second_is_early), 2);
        let three = [start(0, 90, true), start(1, 50, true), start(49, 60, true)];
        assert_eq!(most_at_once(&three), 3);
    }

    #[test]
    fn gaps_follow_acks_only() {
        let starts = [
            start(0, 10, true),
            start(12, 2_012, false),
            start(2_500, 2_510, true),
        ];
        assert_eq!(gaps(&starts), [2]);
    }

    #[test]
    fn kill_without_a_later_start_has_no_time() {
        let starts = [start(10, 20, true), start(30, 40, true)];
        assert_eq!(next_starts(&starts, &[0, 11, 31]), [10, 19]);
    }
}
