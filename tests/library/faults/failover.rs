//! Masters that die or freeze, and Sentinels that make another server the master.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dueq::{
    Cancelled, Client, Delivery, Durability, Error, ErrorKind, Message, Pushed, Queue, Settled,
};
use dueq_testkit::{Failover, is_master};
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use crate::faults::restarts::signal;
use crate::support::{
    HOUR, LIMIT, Running, Seen, acking, claim_one, seen, stats_until, until, within,
};

const REPLICAS: usize = 2;

async fn start(replicas: usize) -> Result<Failover> {
    tokio::task::spawn_blocking(move || Failover::start(replicas, &[])).await?
}

/// Blocks its thread; the others go on.
fn wait(servers: &Failover, what: &str, look: impl Fn() -> Result<bool>) -> Result<()> {
    tokio::task::block_in_place(|| servers.wait(what, look))
}

/// What producers were told and what handlers saw.
#[derive(Default)]
struct Told {
    acknowledged: BTreeSet<String>,
    cancelled: BTreeSet<String>,
    /// Whose cancel failed, so that nobody knows whether it will last.
    doubtful: BTreeSet<String>,
    handled: BTreeMap<String, u32>,
    early: u32,
    after_cancel: u32,
}

type Shared = Arc<Mutex<Told>>;

/// Pushes message after message, each until it is acknowledged; takes every fifth back.
async fn produce(
    queue: Queue,
    producer: usize,
    told: Shared,
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
        let push = || queue.push(Message::new(id.as_bytes()).id(&id).due(delay));
        while let Err(error) = push().await {
            assert!(error.is_retryable(), "{error:?}");
            if stop.is_cancelled() {
                return Ok(());
            }
        }
        told.lock()
            .expect("no panic")
            .acknowledged
            .insert(id.clone());
        if cancels {
            let cancelled = queue.cancel(&id).await;
            let mut told = told.lock().expect("no panic");
            match cancelled {
                Ok(Cancelled::Cancelled) => drop(told.cancelled.insert(id)),
                Ok(_) => {}
                Err(_) => drop(told.doubtful.insert(id)),
            }
        }
        if stop.is_cancelled() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await; // a load, not a flood
    }
    Ok(())
}

fn work(queue: &Queue, told: &Shared, times: UnboundedSender<Instant>) -> Running {
    let told = Arc::clone(told);
    Running::start(
        queue
            .worker()
            .concurrency(32)
            .lease(Duration::from_secs(10)),
        move |delivery: Delivery| {
            let mut told = told.lock().expect("no panic");
            let id = delivery.id().into_owned();
            told.early += u32::from(delivery.started_us() < delivery.due_ms() * 1_000);
            told.after_cancel += u32::from(told.cancelled.contains(&id));
            *told.handled.entry(id).or_default() += 1;
            let _ = times.send(Instant::now());
            async {}
        },
    )
}

/// Has the master fail; says how long after the promotion of another one a handler was started, and has the old one join.
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
        .filter(|(place, _)| *place != old)
        .collect();
    let promotion = || {
        for (_, server) in &others {
            if is_master(server.port())? {
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
            // Sentinels that were not scheduled for two seconds say nothing for thirty.
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

/// What is refused at the start is refused later, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_new_master_that_evicts_is_refused_until_it_is_set_right() -> Result<()> {
    let mut servers = start(1).await?;
    let queue = Client::connect(&servers.url()).await?.queue("orders")?;
    let push = |id: &'static str| queue.push(Message::new("").id(id).due(HOUR));
    assert_eq!(push("before").await?, Pushed::Created);
    let old = servers.master()?.context("a master")?;
    let new = 1 - old;
    servers.servers[new].command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"])?;
    servers.servers[old].kill()?;
    let is_refusal = |error: &Option<Error>| {
        error
            .as_ref()
            .is_some_and(|e| e.kind() == ErrorKind::Unsupported)
    };
    let start = Instant::now();
    // Of one that was made before the new master was known nobody knows whether the old one took it.
    while !is_refusal(&push("during").await.err()) {
        assert!(
            start.elapsed() < 5 * LIMIT,
            "it was pushed to a server that evicts"
        );
    }
    let error = push("during").await.expect_err("it evicts");
    assert_eq!(
        (error.kind(), error.was_applied()),
        (ErrorKind::Unsupported, dueq::Applied::No),
        "{error}"
    );
    assert!(
        error.to_string().contains("maxmemory-policy noeviction"),
        "{error}"
    );
    servers.servers[new].command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"])?;
    until(
        "a push",
        async || Ok(push("after").await.is_ok()),
        |pushed| *pushed,
    )
    .await?;
    assert_eq!(queue.get("during").await?, None);
    Ok(())
}

/// As many failovers as `DUEQ_FAILOVERS` says, two if it says nothing; with `DUEQ_FAILOVER_MEMORY` set, pushes wait for nobody,
/// and what is lost is only told.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn failovers_lose_nothing_that_all_replicas_had() -> Result<()> {
    let count: usize = std::env::var("DUEQ_FAILOVERS")
        .ok()
        .map_or(Ok(2), |count| count.parse())?;
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
    let (told, stop) = (Shared::default(), CancellationToken::new());
    let (sender, mut times) = seen();
    let worker = work(&queue, &told, sender);
    let producers: Vec<_> = (0..4)
        .map(|producer| {
            tokio::spawn(produce(
                queue.clone(),
                producer,
                Arc::clone(&told),
                stop.clone(),
            ))
        })
        .collect();
    let mut pauses = Vec::new();
    for round in 0..count {
        let known = told.lock().expect("no panic").acknowledged.len();
        let acknowledged = || Ok(told.lock().expect("no panic").acknowledged.len() > known + 200);
        wait(&servers, "pushes to be acknowledged", acknowledged)?;
        times.rest();
        let kill = round % 2 == 0;
        let pause = fail_over(&mut servers, kill, &mut times).await?;
        println!(
            "failover {round}, {}: work went on {pause:?} after the promotion, {} times TILT so far",
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
    let told = told.lock().expect("no panic");
    let gone = |id: &String| {
        told.handled.contains_key(id) || told.cancelled.contains(id) || told.doubtful.contains(id)
    };
    let lost: Vec<_> = told.acknowledged.iter().filter(|id| !gone(id)).collect();
    let twice = told.handled.values().filter(|times| **times > 1).count();
    pauses.sort_unstable();
    println!(
        "{count} failovers: work went on after p50 {:?}, max {:?}; {} pushes acknowledged, {} cancelled, {} cancels in doubt, {} lost, \
         {} early, {} fired \
         after their cancel, {twice} handled more than once",
        pauses[count / 2],
        pauses[count - 1],
        told.acknowledged.len(),
        told.cancelled.len(),
        told.doubtful.len(),
        lost.len(),
        told.early,
        told.after_cancel
    );
    assert!(lost.is_empty() || memory, "lost: {lost:?}");
    assert_eq!((told.early, told.after_cancel), (0, 0));
    Ok(())
}

/// The old master lives, and refuses what is written to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_goes_on_when_an_operator_changes_the_master() -> Result<()> {
    let servers = start(1).await?;
    let queue = Client::connect(&servers.url()).await?.queue("orders")?;
    let (worker, mut handled) = acking(queue.worker());
    queue.push(Message::new("x").id("before")).await?;
    assert_eq!(handled.next().await?, "before");
    let old = servers.master()?.context("a master")?;
    servers.change_master()?;
    wait(&servers, "another master", || {
        Ok(servers.master()?.is_some_and(|new| new != old))
    })?;
    wait(&servers, "the old one to follow it", || servers.knows_all())?;
    queue.push(Message::new("x").id("after")).await?;
    assert_eq!(handled.next().await?, "after");
    worker.stop().await
}

/// Keeps the replicas from hearing of anything more, as a network would.
fn cut_off(servers: &Failover) -> Result<usize> {
    let master = servers.master()?.context("a master")?;
    for (_, server) in servers
        .servers
        .iter()
        .enumerate()
        .filter(|(place, _)| *place != master)
    {
        server.command(&["CONFIG", "SET", "masteruser", "nobody"])?;
        server.command(&["CONFIG", "SET", "masterauth", "wrong"])?;
    }
    servers.servers[master].command(&["CLIENT", "KILL", "TYPE", "replica"])?;
    wait(servers, "the replicas to be cut off", || {
        Ok(servers.servers[master]
            .command(&["INFO", "replication"])?
            .contains("connected_slaves:0"))
    })?;
    Ok(master)
}

/// The window that is declared: what `Memory` acknowledged and no replica had. `Replicated` does not acknowledge it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failover_loses_unreplicated_writes_and_tokens_reveal_it() -> Result<()> {
    let mut servers = start(1).await?;
    let queue = Client::connect(&servers.url()).await?.queue("orders")?;
    let replicated = Durability::Replicated {
        replicas: 1,
        timeout: Duration::from_millis(100),
    };
    let message = |id: &str| Message::new("x").id(id).due(HOUR);
    queue
        .push(
            message("leased")
                .due(Duration::ZERO)
                .durability(Durability::Replicated {
                    replicas: 1,
                    timeout: LIMIT,
                }),
        )
        .await?;
    let master = cut_off(&servers)?;
    let granted = claim_one(&queue).await?;
    assert_eq!(queue.push(message("acknowledged")).await?, Pushed::Created);
    let error = queue
        .push(message("refused").durability(replicated))
        .await
        .expect_err("no replica has it");
    assert_eq!(
        (error.kind(), error.message_id()),
        (ErrorKind::Unconfirmed, Some(&b"refused"[..]))
    );
    servers.servers[master].kill()?;
    wait(&servers, "another master", || {
        Ok(servers.master()?.is_some_and(|new| new != master))
    })?;
    let stored = async || {
        Ok(queue
            .get("leased")
            .await?
            .map(|stored| stored.state.as_str().to_owned()))
    };
    let state = until("the new master", stored, |state| state.is_some()).await?;
    assert_ne!(
        state.as_deref(),
        Some("leased"),
        "the new master knows nothing of the grant"
    );
    assert_eq!(
        queue.get("acknowledged").await?,
        None,
        "lost, as Memory may be"
    );
    assert_eq!(
        granted.ack().await?,
        Settled::Lost,
        "a grant that the new master does not know"
    );
    let again = claim_one(&queue).await?;
    assert_eq!(again.id(), "leased");
    assert_eq!(
        granted.ack().await?,
        Settled::Lost,
        "nor after it has granted the message itself"
    );
    assert_eq!(again.ack().await?, Settled::Done);
    assert_eq!(granted.ack().await?, Settled::Gone);
    Ok(())
}

/// A master that wakes and does not know yet that it is none, and a client that was told nothing by any Sentinel.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_was_replaced_while_it_slept_confirms_nothing() -> Result<()> {
    let servers = start(1).await?;
    let client = Client::connect(&servers.url()).await?;
    let queue = client.queue("orders")?;
    // The replica must have it before the master stops.
    let before = Durability::Replicated {
        replicas: 1,
        timeout: LIMIT,
    };
    let pushed = queue
        .push(Message::new("x").id("before").due(HOUR).durability(before))
        .await?;
    assert_eq!(pushed, Pushed::Created);
    let old = servers.master()?.context("a master")?;
    signal("-STOP", servers.servers[old].pid())?;
    wait(&servers, "another master", || {
        Ok(servers.master()?.is_some_and(|new| new != old))
    })?;
    assert_eq!(
        queue
            .push(Message::new("x").id("meanwhile").due(HOUR))
            .await?,
        Pushed::Created
    );
    signal("-CONT", servers.servers[old].pid())?;
    let split = Client::connect(&servers.servers[old].url())
        .await?
        .queue("orders")?;
    let replicated = Durability::Replicated {
        replicas: 1,
        timeout: Duration::from_millis(100),
    };
    let error = split
        .push(
            Message::new("x")
                .id("split")
                .due(HOUR)
                .durability(replicated),
        )
        .await
        .expect_err("no replica");
    assert!(
        matches!(
            error.kind(),
            ErrorKind::Unconfirmed | ErrorKind::Unavailable
        ),
        "{error:?}"
    );
    wait(&servers, "the old master to join", || servers.knows_all())?;
    assert_eq!(queue.get("split").await?, None);
    for id in ["before", "meanwhile"] {
        assert!(queue.get(id).await?.is_some(), "{id}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_no_sentinel_knows_and_sentinels_that_are_away() -> Result<()> {
    let servers = start(1).await?;
    let url = servers.url();
    let error = Client::connect(&url.replace("/orders", "/nobody"))
        .await
        .expect_err("an unknown name");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("nobody"), "{error}");
    let some_away = url.replace("sentinel://", "sentinel://127.0.0.1:1,");
    Client::connect(&some_away)
        .await?
        .queue("q")?
        .push(Message::new("x"))
        .await?;
    let error = within(
        "an error",
        Client::connect("redis+sentinel://127.0.0.1:1/orders"),
    )
    .await?;
    let error = error.expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
    Ok(())
}
