//! Pushes that wait for replicas and disks.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::outcomes::{CancelOutcome, PushOutcome};
use dueq::{Applied, Client, Durability, Error, ErrorKind, Message, MessageState};
use dueq_testkit::Server;
use redis::Value;

use crate::faults::restarts::signal;
use crate::support::{HOUR, LIMIT, Setup, messages, setup_with, until, within};

/// A timeout of waits: longer than a healthy replica needs, and short enough to let it pass while a
/// replica is frozen.
const SHORT: Duration = Duration::from_millis(50);

fn replicated(replicas: u32, timeout: Duration) -> Durability {
    Durability::Replicated { replicas, timeout }
}

/// A server, a client, and a synchronised replica.
async fn setup() -> Result<(Setup, Server)> {
    let setup = setup_with(&["--repl-diskless-sync-delay", "0"]).await?;
    let replica = Server::start(&["--replicaof", "127.0.0.1", &setup.server.port().to_string()])?;
    let info = async || Ok(setup.server.command(&["INFO", "replication"])?);
    until("a replica", info, |info| info.contains("state=online")).await?;
    Ok((setup, replica))
}

fn expect_unconfirmed<T: std::fmt::Debug>(result: Result<T, Error>, id: &str) -> String {
    let error = result.expect_err("too few confirm it");
    assert_eq!(
        (error.kind(), error.was_applied()),
        (ErrorKind::Unconfirmed, Applied::Yes),
        "{error}"
    );
    assert_eq!(error.message_id(), Some(id.as_bytes()));
    assert!(
        error.to_string().contains(id) && error.is_retryable(),
        "{error}"
    );
    error.to_string()
}

#[tokio::test]
async fn push_waits_for_replicas_and_reports_the_missing_ones() -> Result<()> {
    let (setup, _replica) = setup().await?;
    let message = |id: &str| Message::new("x").id(id).due(HOUR);
    let (queue, both) = (
        &setup.queue,
        setup.queue.clone().durability(replicated(2, SHORT)),
    );
    assert_eq!(
        queue
            .push_message(message("one").durability(replicated(1, LIMIT)))
            .await?,
        PushOutcome::Created
    );
    let text = expect_unconfirmed(both.push_message(message("two")).await, "two");
    assert!(text.contains("only 1 of 2 replicas"), "{text}");
    assert!(
        queue.get("two").await?.is_some(),
        "the message exists nevertheless"
    );
    expect_unconfirmed(both.push_message(message("two")).await, "two");
    // The durability of a message overrides that of its queue, which overrides that of the client.
    let pushed = both
        .push_message(message("two").durability(replicated(1, LIMIT)))
        .await?;
    assert_eq!(pushed, PushOutcome::Exists(MessageState::Scheduled));
    let client = setup.client.clone().durability(replicated(2, SHORT));
    expect_unconfirmed(
        client.queue("orders")?.push_message(message("three")).await,
        "three",
    );
    assert_eq!(
        client
            .queue("orders")?
            .durability(Durability::Memory)
            .push_message(message("four"))
            .await?,
        PushOutcome::Created
    );
    let wrong = message("five").durability(replicated(1, Duration::ZERO));
    let error = queue
        .push_message(wrong)
        .await
        .expect_err("it would wait for ever");
    assert_eq!(
        (error.kind(), error.was_applied()),
        (ErrorKind::InvalidInput, Applied::No)
    );
    assert_eq!(queue.get("five").await?, None);
    Ok(())
}

/// The first push may be unacknowledged and on no replica, so `Exists` alone confirms nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_push_waits_although_the_message_exists() -> Result<()> {
    let (setup, replica) = setup().await?;
    signal("-STOP", replica.pid())?;
    let message = || Message::new("x").id("order:42").due(HOUR);
    assert_eq!(
        setup.queue.push_message(message()).await?,
        PushOutcome::Created
    );
    // Push on a connection that has never written.
    let other = Client::connect(&setup.server.url())
        .await?
        .queue("orders")?;
    expect_unconfirmed(
        other
            .push_message(message().durability(replicated(1, SHORT)))
            .await,
        "order:42",
    );
    // If the client must send the script again, the wait has to follow the second send.
    setup.command::<()>(&["SCRIPT", "FLUSH"]).await?;
    expect_unconfirmed(
        other
            .push_message(message().id("order:43").durability(replicated(1, SHORT)))
            .await,
        "order:43",
    );
    signal("-CONT", replica.pid())?;
    let pushed = other
        .push_message(message().durability(replicated(1, LIMIT)))
        .await?;
    assert_eq!(pushed, PushOutcome::Exists(MessageState::Scheduled));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_a_replica_delays_no_other_call() -> Result<()> {
    let (setup, replica) = setup().await?;
    signal("-STOP", replica.pid())?;
    let waiting = tokio::spawn({
        let queue = setup.queue.clone().durability(replicated(1, LIMIT));
        async move { queue.push("x").id("slow").due(HOUR).await }
    });
    until(
        "the push",
        async || Ok(setup.queue.get("slow").await?.is_some()),
        |there| *there,
    )
    .await?;
    let other = setup.queue.clone().durability(replicated(1, SHORT));
    assert_eq!(
        setup.queue.push("y").id("quick").due(HOUR).await?,
        PushOutcome::Created
    );
    expect_unconfirmed(other.push("y").id("quick").due(HOUR).await, "quick");
    assert!(!waiting.is_finished(), "it waits for the replica");
    signal("-CONT", replica.pid())?;
    assert_eq!(within("the push", waiting).await???, PushOutcome::Created);
    Ok(())
}

/// The wait exceeds the limit of an ordinary command. Calls queued behind it once failed as
/// unknown, and the server applied them seconds later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_behind_a_long_wait_is_not_both_failed_and_applied() -> Result<()> {
    let setup = setup_with(&[]).await?;
    assert_eq!(
        setup.queue.push("x").id("moved").due(HOUR).await?,
        PushOutcome::Created
    );
    let alone = setup
        .queue
        .clone()
        .durability(replicated(1, Duration::from_secs(6)));
    let waiting = tokio::spawn({
        let alone = alone.clone();
        async move { alone.push("x").id("slow").due(HOUR).await }
    });
    until(
        "the push",
        async || Ok(setup.queue.get("slow").await?.is_some()),
        |there| *there,
    )
    .await?;
    expect_unconfirmed(
        within("the reschedule", alone.reschedule("moved", 2 * HOUR)).await?,
        "moved",
    );
    expect_unconfirmed(within("the push", waiting).await??, "slow");
    Ok(())
}

/// Each timeout is a separate durability and uses a separate connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_timeouts_do_not_make_many_connections() -> Result<()> {
    let (setup, replica) = setup().await?;
    signal("-STOP", replica.pid())?;
    let push = |number: u64| {
        let durability = replicated(1, LIMIT - Duration::from_millis(number));
        let (queue, message) = (
            setup.queue.clone(),
            Message::new("x").id(format!("{number}")).due(HOUR),
        );
        tokio::spawn(async move { queue.push_message(message.durability(durability)).await })
    };
    let pushes: Vec<_> = (0..60).map(push).collect();
    let waiting = async || {
        let clients = setup.command::<String>(&["CLIENT", "LIST"]).await?;
        anyhow::Ok(
            clients
                .lines()
                .filter(|client| client.contains("cmd=wait"))
                .count(),
        )
    };
    until("the maximum number of waiting pushes", waiting, |count| {
        *count >= 16
    })
    .await?;
    // The other calls have time to finish.
    for pushed in setup.queue.push_many(messages(1_000)).await {
        pushed?;
    }
    assert_eq!(waiting().await?, 16);
    assert_eq!(setup.queue.stats().await?.scheduled, 1_000 + 16);
    signal("-CONT", replica.pid())?;
    let mut created = 0;
    for push in pushes {
        match within("a push", push).await?? {
            Ok(receipt) => {
                // A call whose reply came too late was repeated.
                let is_stored = [
                    PushOutcome::Created,
                    PushOutcome::Exists(MessageState::Scheduled),
                ];
                assert!(
                    is_stored.iter().any(|outcome| receipt == *outcome),
                    "{receipt:?}"
                );
                created += 1;
            }
            // On a slow machine the call waited 10 s for a permit.
            Err(error) => assert_eq!(
                (error.kind(), error.was_applied()),
                (ErrorKind::Unavailable, Applied::No)
            ),
        }
    }
    assert!(created >= 16, "{created}");
    // One call with several durabilities does not block itself.
    let kinds = (0..40).map(|number| {
        let timeout = LIMIT - Duration::from_micros(number);
        Message::new("x")
            .id(format!("one call {number}"))
            .due(HOUR)
            .durability(replicated(1, timeout))
    });
    for pushed in setup.queue.push_many(kinds).await {
        assert_eq!(pushed?, PushOutcome::Created);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_wait_covers_a_batch() -> Result<()> {
    let (setup, _replica) = setup().await?;
    let queue = setup.queue.clone().durability(replicated(1, LIMIT));
    for pushed in queue.push_many(messages(1_000)).await {
        assert_eq!(pushed?, PushOutcome::Created);
    }
    let stats = setup.command::<String>(&["INFO", "commandstats"]).await?;
    let line = stats
        .lines()
        .find(|line| line.starts_with("cmdstat_wait:"))
        .context("WAIT was called")?;
    let calls: u32 = line.split(['=', ',']).nth(1).context("a count")?.parse()?;
    assert!(calls < 500, "{calls} waits for 1000 pushes");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn durability_applies_to_cancels_and_other_changes() -> Result<()> {
    let (setup, replica) = setup().await?;
    let message = |id: &str| Message::new("x").id(id).due(HOUR);
    for id in ["a", "b", "c"] {
        setup.queue.push_message(message(id)).await?;
    }
    signal("-STOP", replica.pid())?;
    let queue = setup.queue.clone().durability(replicated(1, SHORT));
    expect_unconfirmed(queue.cancel("a").await, "a");
    expect_unconfirmed(queue.reschedule("b", HOUR * 2).await, "b");
    expect_unconfirmed(queue.run_now("c").await, "c");
    assert_eq!(
        queue.cancel("unknown").await?,
        CancelOutcome::Absent,
        "there is nothing to lose"
    );
    signal("-CONT", replica.pid())?;
    assert_eq!(
        queue.durability(replicated(1, LIMIT)).cancel("a").await?,
        CancelOutcome::Cancelled
    );
    Ok(())
}

/// A server without WAITAOF or without an append-only file rejects the push. Other servers confirm
/// that it is on disk.
#[tokio::test]
async fn durable_push_waits_for_disks_if_the_server_can() -> Result<()> {
    let fsynced = Durability::Fsynced {
        local: true,
        replicas: 0,
        timeout: LIMIT,
    };
    for appendonly in ["no", "yes"] {
        let setup = setup_with(&["--appendonly", appendonly, "--appendfsync", "always"]).await?;
        let known = setup
            .command::<Vec<Value>>(&["COMMAND", "INFO", "WAITAOF"])
            .await?;
        let pushed = setup
            .queue
            .push("x")
            .id("a")
            .due(HOUR)
            .durability(fsynced)
            .await;
        if known != [Value::Nil] && appendonly == "yes" {
            assert_eq!(pushed?, PushOutcome::Created);
            let both = Durability::Fsynced {
                local: true,
                replicas: 1,
                timeout: SHORT,
            };
            let text =
                expect_unconfirmed(setup.queue.clone().durability(both).cancel("a").await, "a");
            assert!(text.contains("only 0 of 1 replicas' disks"), "{text}");
            continue;
        }
        let error = pushed.expect_err("it cannot");
        assert_eq!(
            (error.kind(), error.was_applied()),
            (ErrorKind::Unsupported, Applied::No),
            "{error}"
        );
        let way_out = if known == [Value::Nil] {
            "7.2"
        } else {
            "appendonly"
        };
        assert!(error.to_string().contains(way_out), "{error}");
        assert_eq!(setup.queue.get("a").await?, None);
    }
    Ok(())
}

#[tokio::test]
async fn the_rights_of_a_producer_suffice() -> Result<()> {
    let (setup, _replica) = setup().await?;
    setup
        .queue
        .push("x")
        .id("made by an operator")
        .due(HOUR)
        .await?;
    let rules = dueq::admin::acl_rules("orders", dueq::admin::AclRole::Producer)?;
    let words: Vec<_> = ["ACL", "SETUSER", "shop"]
        .into_iter()
        .chain(rules.iter().map(String::as_str))
        .collect();
    setup
        .command::<()>(&[&words[..], &["on", ">secret"]].concat())
        .await?;
    let url = format!("redis://shop:secret@127.0.0.1:{}/", setup.server.port());
    let queue = Client::connect(&url)
        .await?
        .queue("orders")?
        .durability(replicated(1, LIMIT));
    assert_eq!(
        queue.push("x").id("a").due(HOUR).await?,
        PushOutcome::Created
    );
    assert_eq!(
        queue.push("x").id("a").due(HOUR).await?,
        PushOutcome::Exists(MessageState::Scheduled)
    );
    assert_eq!(queue.cancel("a").await?, CancelOutcome::Cancelled);
    Ok(())
}
