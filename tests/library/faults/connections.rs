//! Connections are killed while messages flow.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use dueq::{Applied, ErrorKind};
use tokio::task::JoinHandle;

use crate::support::{HOUR, Setup, acking, command, connection, ids, setup, stats_until};

/// Repeatedly kills all other clients of these types until the task is aborted.
async fn killer(
    setup: &Setup,
    types: &'static [&'static str],
    pause: Duration,
) -> Result<JoinHandle<()>> {
    let mut redis = connection(&setup.server.url()).await?;
    Ok(tokio::spawn(async move {
        loop {
            for kind in types {
                let _: Result<u64> = command(
                    &mut redis,
                    &["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"],
                )
                .await;
            }
            tokio::time::sleep(pause).await; // interval between faults
        }
    }))
}

/// Pushes 300 messages while clients are killed. The worker must handle all of them.
async fn flow_through(types: &'static [&'static str], pause: Duration) -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let (worker, mut seen) = acking(queue.worker().lease(Duration::from_secs(2)));
    let killer = killer(&setup, types, pause).await?;
    for id in ids(300) {
        queue
            .push("")
            .id(id)
            .due(Duration::from_millis(fastrand::u64(0..60)))
            .await?;
    }
    killer.abort();
    let mut handled = BTreeSet::new();
    while handled.len() < 300 {
        handled.insert(seen.next().await?);
    }
    assert_eq!(handled.into_iter().collect::<Vec<_>>(), ids(300));
    let stats = stats_until(queue, "all acked", |stats| stats.acked == 300).await?;
    assert_eq!(
        (
            stats.pushed,
            stats.dead,
            stats.scheduled + stats.ready + stats.leased
        ),
        (300, 0, 0)
    );
    worker.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_survive_kills_of_all_connections() -> Result<()> {
    flow_through(&["normal", "pubsub"], Duration::from_millis(50)).await
}

/// The server closes all connections of an idle client. The next calls must still succeed.
#[tokio::test]
async fn every_verb_survives_a_closed_idle_connection() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let mut redis = setup.redis().await?;
    let mut kill = async || {
        command::<u64>(
            &mut redis,
            &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
        )
        .await
    };
    for id in ["one", "two"] {
        kill().await?;
        let past = std::time::SystemTime::UNIX_EPOCH;
        queue.push("").id(id).due(past).await?;
    }
    kill().await?;
    let one = queue.claim(1, crate::support::LONG).await?.remove(0);
    kill().await?;
    let two = queue.claim(1, crate::support::LONG).await?.remove(0);
    kill().await?;
    let _ = one.extend(crate::support::LONG).await?;
    kill().await?;
    let _ = one.ack().await?;
    kill().await?;
    let _ = two.bury("").await?;
    kill().await?;
    assert_eq!(queue.stats().await?.dead, 1);
    kill().await?;
    queue.list(dueq::MessageState::Dead, None, 1).await?;
    kill().await?;
    let _ = queue.cancel_dead("two").await?;
    kill().await?;
    queue.pause().await?;
    Ok(())
}

/// A connection that the server closed long ago must not turn a call into one with unknown outcome.
#[tokio::test]
async fn unrepeatable_call_avoids_a_connection_closed_long_ago() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let mut redis = setup.redis().await?;
    let mut idle = async || {
        command::<u64>(
            &mut redis,
            &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
        )
        .await?;
        tokio::time::sleep(Duration::from_millis(1_100)).await; // idle time that triggers the fault
        anyhow::Ok(())
    };
    queue.push("").id("id").due(HOUR).await?;
    idle().await?;
    let _ = queue.reschedule("id", 2 * HOUR).await?;
    idle().await?;
    queue
        .push("")
        .id("id")
        .due(HOUR)
        .on_conflict(dueq::OnConflict::Replace)
        .await?;
    idle().await?;
    assert_eq!(
        queue.run_now("id").await?,
        dueq::outcomes::RunNowOutcome::Moved
    );
    let _ = crate::support::claim_one(queue).await?.bury("").await?;
    idle().await?;
    assert_eq!(queue.requeue_all().await?, 1);
    Ok(())
}

#[tokio::test]
async fn full_client_table_is_reported_and_waited_for() -> Result<()> {
    let setup = setup().await?;
    let mut redis = setup.redis().await?;
    command::<u64>(
        &mut redis,
        &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
    )
    .await?;
    command::<()>(&mut redis, &["CONFIG", "SET", "maxclients", "1"]).await?;
    command::<()>(&mut redis, &["CONFIG", "RESETSTAT"]).await?;
    let error = dueq::Client::connect(&setup.server.url())
        .await
        .expect_err("no room");
    assert_eq!(
        (error.kind(), error.was_applied()),
        (ErrorKind::Unavailable, Applied::No),
        "{error}"
    );
    assert!(error.is_retryable(), "{error}");

    let pushing = tokio::spawn({
        let queue = setup.queue.clone();
        async move { queue.push("").id("id").await }
    });
    // The server has refused the client at least once.
    crate::support::until(
        "a refusal",
        async || command::<String>(&mut redis.clone(), &["INFO", "stats"]).await,
        |info| {
            info.lines()
                .any(|line| line.starts_with("rejected_connections:") && !line.ends_with(":0"))
        },
    )
    .await?;
    command::<()>(&mut redis, &["CONFIG", "SET", "maxclients", "1000"]).await?;
    assert_eq!(pushing.await??, dueq::outcomes::PushOutcome::Created);
    Ok(())
}
