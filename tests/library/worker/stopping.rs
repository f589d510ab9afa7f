//! A stop lets running handlers finish and returns the other messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use dueq::{Delivery, Message};
use tokio::sync::Semaphore;

use crate::faults::signal;
use crate::support::{
    HOUR, Running, acking, holding, messages, push_all, seen, setup, stats_until, until, within,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn graceful_stop_finishes_handlers_and_claims_no_more() -> Result<()> {
    let setup = setup().await?;
    let gate = Arc::new(Semaphore::new(0));
    let (sender, mut seen) = seen();
    let handler = {
        let gate = Arc::clone(&gate);
        move |delivery: Delivery| {
            let (gate, sender) = (Arc::clone(&gate), sender.clone());
            async move {
                let _ = sender.send(delivery.id().into_owned());
                gate.acquire().await.expect("never closed").forget();
            }
        }
    };
    let worker = Running::start(setup.queue.worker().concurrency(10).grace(HOUR), handler);
    let popping = async || {
        let clients: String = setup.command(&["CLIENT", "LIST"]).await?;
        Ok(clients.contains("cmd=blpop"))
    };
    until("a blocking pop", popping, |popping| *popping).await?;
    push_all(&setup.queue, messages(10)).await?;
    seen.take(10).await?;
    worker.ask_to_stop();
    // The stop has reached the node when the connection of its blocking pop is closed.
    until("the end of the pop", popping, |popping| !popping).await?;
    // The stopping worker has free handlers but must not claim this message.
    push_all(
        &setup.queue,
        (0..10)
            .map(|n| Message::new("").id(format!("later {n}")))
            .collect(),
    )
    .await?;
    gate.add_permits(5);
    stats_until(&setup.queue, "five acked", |stats| stats.acked == 5).await?;
    assert!(!worker.is_finished(), "a handler is still running");
    gate.add_permits(5);
    worker.stop().await?;
    let stats = setup.queue.stats().await?;
    assert_eq!(
        (stats.acked, stats.leased, stats.released, stats.crashed),
        (10, 0, 0, 0)
    );
    assert_eq!(stats.nodes, 0, "the node must leave the queue");
    // The worker also handled messages claimed during the stop. The rest is available to other
    // workers.
    assert_eq!(seen.rest(), Vec::<String>::new());
    let (worker, mut seen) = acking(setup.queue.worker());
    seen.take(10).await?;
    worker.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_beyond_the_grace_are_released_uncharged() -> Result<()> {
    let setup = setup().await?;
    let (worker, mut seen) = holding(setup.queue.worker().grace(Duration::from_millis(50)));
    push_all(&setup.queue, messages(30)).await?;
    seen.take(30).await?;
    worker.stop().await?;
    let stats = setup.queue.stats().await?;
    assert_eq!(
        (stats.released, stats.leased, stats.crashed, stats.acked),
        (30, 0, 0, 0)
    );
    for delivery in crate::support::claim(&setup.queue, 30).await? {
        assert_eq!(delivery.attempt(), 1);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_worker_future_releases_its_messages() -> Result<()> {
    let setup = setup().await?;
    let (worker, mut seen) = holding(setup.queue.worker());
    push_all(&setup.queue, messages(30)).await?;
    seen.take(30).await?;
    worker.abort().await?;
    let stats = stats_until(&setup.queue, "all released", |stats| stats.released == 30).await?;
    assert_eq!((stats.leased, stats.crashed), (0, 0));
    stats_until(&setup.queue, "its goodbye", |stats| stats.nodes == 0).await?;
    let (other, mut handled) = acking(setup.queue.worker());
    handled.take(30).await?;
    other.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_stopped_before_it_starts_returns() -> Result<()> {
    let setup = setup().await?;
    setup.queue.push("").due(HOUR).await?;
    // Repeat often: a beat in flight when the node leaves must not register it again.
    for _ in 0..100 {
        let worker = setup
            .queue
            .worker()
            .run(|_| async {}, std::future::ready(()));
        within("the worker's end", worker).await??;
        let stats = setup.queue.stats().await?;
        assert_eq!((stats.leased, stats.nodes), (0, 0));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_dropped_while_it_starts_leaves() -> Result<()> {
    let setup = setup().await?;
    setup.queue.push("").due(HOUR).await?;
    // No other node beats, so no script forgets a node that has not left.
    let words = ["ZCARD", "dueq:{orders}:nodes"];
    let nodes = async || setup.command::<u64>(&words).await;
    let without = nodes().await?;
    for round in 0..50 {
        let worker = setup.queue.worker();
        let worker = worker.run(|_| async {}, std::future::pending::<()>());
        let moment = Duration::from_micros(50 * round);
        assert!(tokio::time::timeout(moment, worker).await.is_err());
    }
    until("its leave", nodes, |count| *count == without).await?;
    Ok(())
}

/// A stopping worker may have consumed a wake-up token that another worker needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarting_workers_leave_no_message_behind() -> Result<()> {
    let setup = setup().await?;
    let (steady, mut handled) = acking(setup.queue.worker().concurrency(2));
    let mut by_others = 0;
    for round in 0..25 {
        let (passing, mut seen) = acking(setup.queue.worker().concurrency(2));
        push_all(
            &setup.queue,
            (0..20)
                .map(|n| Message::new("").id(format!("{round} {n}")))
                .collect(),
        )
        .await?;
        if round % 2 == 0 {
            passing.stop().await?
        } else {
            passing.abort().await?
        }
        stats_until(&setup.queue, "all acked", |stats| {
            stats.acked == 20 * (round + 1)
        })
        .await?;
        by_others += seen.rest().len();
    }
    steady.stop().await?;
    let stats = setup.queue.stats().await?;
    assert_eq!(stats.crashed, 0, "no lease of an ended worker ran out");
    // An aborted handler may release its message after the test received it.
    assert!(handled.rest().len() + by_others >= 500);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_while_redis_is_away_ends() -> Result<()> {
    let mut setup = setup().await?;
    let (worker, mut seen) = holding(setup.queue.worker().grace(Duration::from_millis(10)));
    push_all(&setup.queue, messages(3)).await?;
    seen.take(3).await?;
    setup.server.kill()?;
    worker.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_stops_while_its_first_beats_wait() -> Result<()> {
    let setup = setup().await?;
    signal("-STOP", setup.server.pid())?;
    let (worker, _seen) = acking(setup.queue.worker());
    let start = Instant::now();
    within("the stop", worker.stop()).await??;
    // The beats take 5 s and more.
    let took = start.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    signal("-CONT", setup.server.pid())?;
    stats_until(&setup.queue, "the leave", |stats| stats.nodes == 0).await?;
    Ok(())
}
