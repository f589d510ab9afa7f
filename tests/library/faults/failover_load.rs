//! Repeated failovers under load: masters that die or freeze while producers and a worker run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dueq::outcomes::CancelOutcome;
use dueq::{Client, Delivery, Durability, Error, Message, Queue};
use dueq_testkit::{Failover, is_master};
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use crate::faults::failover::{start, wait};
use crate::faults::restarts::signal;
use crate::support::{Running, Seen, seen, stats_until, within};

const REPLICAS: usize = 2;

/// Results of the producers' calls and of the handlers.
#[derive(Default)]
struct Outcomes {
    acknowledged: BTreeSet<String>,
    cancelled: BTreeSet<String>,
    /// Ids whose cancel failed, so that its effect is unknown.
    doubtful: BTreeSet<String>,
    handled: BTreeMap<String, u32>,
    early: u32,
    after_cancel: u32,
}

type Shared = Arc<Mutex<Outcomes>>;

/// Pushes one message after the other, each until it is acknowledged. Cancels every fifth.
async fn produce(
    queue: Queue,
    producer: usize,
    outcomes: Shared,
    stop: CancellationToken,
) -> Result<(), Error> {
    for number in 0.. {
        let id = format!("{producer}-{number}");
        let cancels = number % 5 == 0;
        let delay = Duration::from_millis(if cancels {
            5_000
        } else {
            fastrand::u64(0..4_000)
        });
        let push = || queue.push_message(Message::new(id.as_bytes()).id(&id).due(delay));
        while let Err(error) = push().await {
            assert!(error.is_retryable(), "{error:?}");
            if stop.is_cancelled() {
                return Ok(());
            }
        }
        outcomes
            .lock()
            .expect("no panic")
            .acknowledged
            .insert(id.clone());
        if cancels {
            let cancelled = queue.cancel(&id).await;
            let mut outcomes = outcomes.lock().expect("no panic");
            match cancelled {
                Ok(CancelOutcome::Cancelled) => drop(outcomes.cancelled.insert(id)),
                Ok(_) => {}
                Err(_) => drop(outcomes.doubtful.insert(id)),
            }
        }
        if stop.is_cancelled() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await; // limits the load
    }
    Ok(())
}

fn work(queue: &Queue, outcomes: &Shared, times: UnboundedSender<Instant>) -> Running {
    let outcomes = Arc::clone(outcomes);
    Running::start(
        queue
            .worker()
            .concurrency(32)
            .lease(Duration::from_secs(10)),
        move |delivery: Delivery| {
            let mut outcomes = outcomes.lock().expect("no panic");
            let id = delivery.id().into_owned();
            outcomes.early += u32::from(delivery.started_us() < delivery.due_ms() * 1_000);
            outcomes.after_cancel += u32::from(outcomes.cancelled.contains(&id));
            *outcomes.handled.entry(id).or_default() += 1;
            let _ = times.send(Instant::now());
            async {}
        },
    )
}

/// Makes the master fail. Returns the time from the promotion of another server to the next start of
/// a handler. The old master then joins as a replica.
async fn fail_over(
    servers: &mut Failover,
    kill: bool,
    times: &mut Seen<Instant>,
) -> Result<Duration> {
    let (old, tilts) = (servers.master()?.context("a master")?, servers.tilts()?);
    if kill {
        servers.servers[old].kill()?;
    } else {
        signal("-STOP", servers.servers[old].pid())?;
    }
    let others: Vec<_> = servers
        .servers
        .iter()
        .enumerate()
        .filter(|(index, _)| *index != old)
        .collect();
    let promotion = || {
        for (_, server) in &others {
            // Sentinels close the connections of a server whose role they change. In that case look
            // again.
            if is_master(server.port()).unwrap_or(false) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    wait(servers, "a promotion", promotion)?;
    let since = Instant::now();
    let first = loop {
        match times.next().await {
            Ok(handled) if handled > since => break handled,
            // Sentinels that were not scheduled for two seconds do nothing for thirty (TILT).
            Err(error) if servers.tilts()? == tilts => return Err(error),
            _ => {}
        }
    };
    wait(servers, "the Sentinels to agree", || {
        Ok(servers.master()?.is_some_and(|master| master != old))
    })?;
    let new = servers.servers[servers.master()?.context("a master")?]
        .port()
        .to_string();
    if kill {
        servers.servers[old].restart_with(&["--replicaof", "127.0.0.1", &new])?;
    } else {
        signal("-CONT", servers.servers[old].pid())?;
    }
    wait(servers, "all servers to be in step", || servers.knows_all())?;
    Ok(first - since)
}

/// `DUEQ_FAILOVERS` sets the number of failovers (default 1). With `DUEQ_FAILOVER_MEMORY`, pushes wait
/// for no replica, and the test only reports lost messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn failovers_lose_no_message_that_all_replicas_had() -> Result<()> {
    let count: usize = std::env::var("DUEQ_FAILOVERS")
        .ok()
        .map_or(Ok(1), |count| count.parse())?;
    let memory = std::env::var_os("DUEQ_FAILOVER_MEMORY").is_some();
    let timeout = Duration::from_millis(500);
    let durability = if memory {
        Durability::Memory
    } else {
        Durability::Replicated {
            replicas: REPLICAS as u32,
            timeout,
        }
    };
    let mut servers = start(REPLICAS).await?;
    let client = Client::connect(&servers.url())
        .await?
        .durability(durability);
    let queue = client.queue("orders")?;
    let (outcomes, stop) = (Shared::default(), CancellationToken::new());
    let (sender, mut times) = seen();
    let worker = work(&queue, &outcomes, sender);
    let producers: Vec<_> = (0..4)
        .map(|producer| {
            tokio::spawn(produce(
                queue.clone(),
                producer,
                Arc::clone(&outcomes),
                stop.clone(),
            ))
        })
        .collect();
    let mut pauses = Vec::new();
    for round in 0..count {
        let known = outcomes.lock().expect("no panic").acknowledged.len();
        let acknowledged =
            || Ok(outcomes.lock().expect("no panic").acknowledged.len() > known + 200);
        wait(&servers, "pushes to be acknowledged", acknowledged)?;
        times.rest();
        let kill = round % 2 == 0;
        let pause = fail_over(&mut servers, kill, &mut times).await?;
        println!(
            "failover {round}, {}: work continued {pause:?} after the promotion, {} times TILT so far",
            if kill { "kill -9" } else { "SIGSTOP" },
            servers.tilts()?
        );
        pauses.push(pause);
    }
    stop.cancel();
    for producer in producers {
        within("the end of a producer", producer).await???;
    }
    stats_until(&queue, "an empty queue", |stats| {
        stats.scheduled + stats.ready + stats.leased == 0
    })
    .await?;
    worker.stop().await?;
    let outcomes = outcomes.lock().expect("no panic");
    let gone = |id: &String| {
        outcomes.handled.contains_key(id)
            || outcomes.cancelled.contains(id)
            || outcomes.doubtful.contains(id)
    };
    let lost: Vec<_> = outcomes
        .acknowledged
        .iter()
        .filter(|id| !gone(id))
        .collect();
    let twice = outcomes
        .handled
        .values()
        .filter(|times| **times > 1)
        .count();
    pauses.sort_unstable();
    println!(
        "{count} failovers: work continued after p50 {:?}, max {:?}; {} pushes acknowledged, {} cancelled, {} cancels in doubt, {} lost, \
         {} early, {} fired \
         after their cancel, {twice} handled more than once",
        pauses[count / 2],
        pauses[count - 1],
        outcomes.acknowledged.len(),
        outcomes.cancelled.len(),
        outcomes.doubtful.len(),
        lost.len(),
        outcomes.early,
        outcomes.after_cancel
    );
    assert!(lost.is_empty() || memory, "lost: {lost:?}");
    assert_eq!((outcomes.early, outcomes.after_cancel), (0, 0));
    Ok(())
}
