//! A server that dies, freezes, or loses its scripts.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use dueq::Message;
use dueq::outcomes::{PushOutcome, SettleOutcome};

use crate::support::{
    HOUR, LONG, acking, claim, claim_one, ids, messages, push_all, seen, setup, setup_with,
    stats_until,
};

const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// Kills the server during pushes, claims and acks, and restarts it on its append-only file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_server_restarts_without_losing_messages() -> Result<()> {
    let mut setup = setup_with(&DURABLE).await?;
    let queue = setup.queue.clone();
    let (worker, mut seen) = acking(queue.worker().lease(Duration::from_secs(2)));
    let (pushed, mut pushes) = crate::support::seen();
    let pushing = tokio::spawn({
        let queue = queue.clone();
        async move {
            for id in ids(600) {
                let delay = Duration::from_millis(fastrand::u64(0..50));
                queue.push("").id(&id).due(delay).await?;
                let _ = pushed.send(());
            }
            anyhow::Ok(())
        }
    });
    for _ in 0..3 {
        pushes.take(150).await?;
        setup.server.kill()?;
        setup.server.restart()?;
    }
    pushing.await??;
    let mut handled = BTreeSet::new();
    while handled.len() < 600 {
        handled.insert(seen.next().await?);
    }
    assert_eq!(handled.into_iter().collect::<Vec<_>>(), ids(600));
    let stats = stats_until(&queue, "an empty queue", |stats| {
        stats.scheduled + stats.ready + stats.leased == 0
    })
    .await?;
    assert_eq!((stats.pushed, stats.acked, stats.dead), (600, 600, 0));
    worker.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_state_survives_a_restart_of_the_server() -> Result<()> {
    let mut setup = setup_with(&DURABLE).await?;
    let queue = &setup.queue;
    push_all(queue, messages(30)).await?;
    let held = claim(queue, 20).await?;
    for delivery in &held[..10] {
        let _ = delivery.bury("before the restart").await?;
    }
    queue.push("later").id("later").due(HOUR).await?;
    setup.promote(10).await?;
    let counts = |stats: dueq::QueueStats| {
        [
            stats.scheduled,
            stats.ready,
            stats.leased,
            stats.dead,
            stats.pushed,
        ]
    };
    let before = counts(queue.stats().await?);
    setup.server.kill()?;
    setup.server.restart()?;
    assert_eq!(counts(setup.queue.stats().await?), before);
    assert_eq!(before, [1, 10, 10, 10, 31]);
    for delivery in &held[10..] {
        assert_eq!(
            delivery.ack().await?,
            SettleOutcome::Done,
            "a lease outlives its server"
        );
    }
    assert_eq!(claim(&setup.queue, 10).await?.len(), 10);
    Ok(())
}

pub(crate) fn signal(signal: &str, pid: u32) -> Result<()> {
    ensure!(
        Command::new("kill")
            .args([signal, &pid.to_string()])
            .status()?
            .success()
    );
    Ok(())
}

/// The server freezes for longer than the limit of a call. Clients repeat their calls; the server
/// later finds all of them in its buffers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_server_stores_each_message_once() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let delivery = crate::support::push_and_claim(queue, Message::new("").id("held")).await?;
    signal("-STOP", setup.server.pid())?;
    let (sender, mut answers) = seen();
    for id in ids(50) {
        let (queue, sender) = (queue.clone(), sender.clone());
        tokio::spawn(async move {
            let _ = sender.send(queue.push("").id(id).due(HOUR).await);
        });
    }
    let ack = tokio::spawn(async move { delivery.ack().await });
    tokio::time::sleep(Duration::from_millis(6_500)).await; // length of the freeze
    signal("-CONT", setup.server.pid())?;
    for answer in answers.take(50).await? {
        assert!(matches!(
            answer?.outcome(),
            PushOutcome::Created | PushOutcome::Exists(_)
        ));
    }
    assert!(matches!(
        ack.await??,
        SettleOutcome::Done | SettleOutcome::Gone
    ));
    let stats = queue.stats().await?;
    assert_eq!(
        (stats.pushed, stats.scheduled, stats.leased, stats.acked),
        (51, 50, 0, 1)
    );
    Ok(())
}

#[tokio::test]
async fn flushed_scripts_are_loaded_again() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    for round in 0..20 {
        setup.command::<()>(&["SCRIPT", "FLUSH"]).await?;
        queue.push("").id(format!("{round}")).await?;
        setup.command::<()>(&["SCRIPT", "FLUSH"]).await?;
        let delivery = claim_one(queue).await?;
        setup.command::<()>(&["SCRIPT", "FLUSH"]).await?;
        assert_eq!(delivery.ack().await?, SettleOutcome::Done);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_script_flushes_stop_no_call() -> Result<()> {
    let setup = setup().await?;
    let mut redis = setup.redis().await?;
    let flushing = tokio::spawn(async move {
        loop {
            crate::support::command::<()>(&mut redis, &["SCRIPT", "FLUSH"]).await?;
            tokio::task::yield_now().await;
        }
        #[expect(unreachable_code, reason = "gives the closure its error type")]
        anyhow::Ok(())
    });
    let (worker, mut seen) = acking(setup.queue.worker());
    for id in ids(300) {
        setup
            .queue
            .push("")
            .id(id)
            .due(Duration::from_millis(fastrand::u64(0..20)))
            .await?;
    }
    let mut handled = seen.take(300).await?;
    flushing.abort();
    handled.sort_unstable();
    assert_eq!(handled, ids(300));
    worker.stop().await?;
    assert_eq!(setup.queue.claim(1, LONG).await?.len(), 0);
    Ok(())
}
