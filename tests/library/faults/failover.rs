//! Masters that die or freeze, and Sentinels that promote another server.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dueq::outcomes::{PushOutcome, SettleOutcome};
use dueq::{Client, Durability, Error, ErrorKind, Message};
use dueq_testkit::Failover;

use crate::faults::restarts::signal;
use crate::support::{HOUR, LIMIT, acking, claim_one, until, within};

pub(super) async fn start(replicas: usize) -> Result<Failover> {
    tokio::task::spawn_blocking(move || Failover::start(replicas, &[])).await?
}

/// Waits on the current thread; other tasks continue.
pub(super) fn wait(servers: &Failover, what: &str, look: impl Fn() -> Result<bool>) -> Result<()> {
    tokio::task::block_in_place(|| servers.wait(what, look))
}

/// The client rejects an unfit master at a failover as it does at the start.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn new_master_that_evicts_is_rejected_until_reconfigured() -> Result<()> {
    let mut servers = start(1).await?;
    let queue = Client::connect(&servers.url()).await?.queue("orders")?;
    let push = |id: &'static str| queue.push_message(Message::new("").id(id).due(HOUR));
    assert_eq!(push("before").await?, PushOutcome::Created);
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
    // The outcome of a push is unknown if the client sent it before it knew the new master.
    while !is_refusal(&push("during").await.err()) {
        assert!(
            start.elapsed() < 5 * LIMIT,
            "the push reached a server that evicts"
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

/// The old master stays alive and rejects writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_continues_when_an_operator_changes_the_master() -> Result<()> {
    let servers = start(1).await?;
    let queue = Client::connect(&servers.url()).await?.queue("orders")?;
    let (worker, mut handled) = acking(queue.worker());
    queue.push("x").id("before").await?;
    assert_eq!(handled.next().await?, "before");
    let old = servers.master()?.context("a master")?;
    servers.change_master()?;
    wait(&servers, "another master", || {
        Ok(servers.master()?.is_some_and(|new| new != old))
    })?;
    wait(&servers, "the old one to follow it", || servers.knows_all())?;
    queue.push("x").id("after").await?;
    assert_eq!(handled.next().await?, "after");
    worker.stop().await
}

/// Cuts the replicas off from the master, like a network partition.
fn cut_off(servers: &Failover) -> Result<usize> {
    let master = servers.master()?.context("a master")?;
    for (_, server) in servers
        .servers
        .iter()
        .enumerate()
        .filter(|(index, _)| *index != master)
    {
        server.command(&["CONFIG", "SET", "masteruser", "unknown"])?;
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

/// The documented loss: writes that `Memory` acknowledged and no replica had. `Replicated` does not
/// acknowledge them.
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
        .push_message(
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
    assert_eq!(
        queue.push_message(message("acknowledged")).await?,
        PushOutcome::Created
    );
    let error = queue
        .push_message(message("refused").durability(replicated))
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
        "the new master does not have the grant"
    );
    assert_eq!(
        queue.get("acknowledged").await?,
        None,
        "lost, as Memory may be"
    );
    assert_eq!(
        granted.ack().await?,
        SettleOutcome::Lost,
        "a grant that the new master does not know"
    );
    let again = claim_one(&queue).await?;
    assert_eq!(again.id(), "leased");
    assert_eq!(
        granted.ack().await?,
        SettleOutcome::Lost,
        "still lost after the new master granted the message"
    );
    assert_eq!(again.ack().await?, SettleOutcome::Done);
    assert_eq!(granted.ack().await?, SettleOutcome::Gone);
    Ok(())
}

/// A frozen master wakes without knowing that it was replaced. A client connects to it directly,
/// without Sentinels.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_master_that_wakes_confirms_nothing() -> Result<()> {
    let servers = start(1).await?;
    let client = Client::connect(&servers.url()).await?;
    let queue = client.queue("orders")?;
    // The replica must have the message before the master stops.
    let before = Durability::Replicated {
        replicas: 1,
        timeout: LIMIT,
    };
    let pushed = queue
        .push("x")
        .id("before")
        .due(HOUR)
        .durability(before)
        .await?;
    assert_eq!(pushed, PushOutcome::Created);
    let old = servers.master()?.context("a master")?;
    signal("-STOP", servers.servers[old].pid())?;
    wait(&servers, "another master", || {
        Ok(servers.master()?.is_some_and(|new| new != old))
    })?;
    assert_eq!(
        queue.push("x").id("meanwhile").due(HOUR).await?,
        PushOutcome::Created
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
        .push("x")
        .id("split")
        .due(HOUR)
        .durability(replicated)
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
async fn errors_name_an_unknown_service_and_silent_sentinels() -> Result<()> {
    let servers = start(1).await?;
    let url = servers.url();
    let error = Client::connect(&url.replace("/orders", "/unknown"))
        .await
        .expect_err("an unknown name");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("unknown"), "{error}");
    let some_down = url.replace("sentinel://", "sentinel://127.0.0.1:1,");
    Client::connect(&some_down)
        .await?
        .queue("q")?
        .push("x")
        .await?;
    let error = within(
        "an error",
        Client::connect("redis+sentinel://127.0.0.1:1/orders"),
    )
    .await?;
    let error = error.expect_err("no Sentinel is there");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
    Ok(())
}
