//! A stop lets running handlers finish, and returns all other messages.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use dueq::{Delivery, ErrorKind, Message};
use dueq_testkit::Stopwatch;
use tokio::sync::Semaphore;

use crate::faults::signal;
use crate::support::{
    HOUR, Running, acking, holding, messages, push_all, reporting, seen, setup, stats_until, until,
    within,
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
    // The worker also handled the messages of claims that were in flight at the stop. Other workers
    // can get the rest.
    assert_eq!(seen.rest(), Vec::<String>::new());
    let (worker, mut seen) = acking(setup.queue.worker());
    seen.take(10).await?;
    worker.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_beyond_the_grace_period_are_released_uncharged() -> Result<()> {
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
    // Repeated often, because the fault depends on timing: a beat in flight when the node leaves
    // must not register it again.
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
async fn a_worker_dropped_while_it_starts_leaves_its_queues() -> Result<()> {
    let setup = setup().await?;
    setup.queue.push("").due(HOUR).await?;
    // No other node beats here, so only the leave can remove the node.
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
async fn stop_ends_the_worker_while_redis_is_away() -> Result<()> {
    let mut setup = setup().await?;
    let (worker, mut seen) = holding(setup.queue.worker().grace(Duration::from_millis(10)));
    push_all(&setup.queue, messages(3)).await?;
    seen.take(3).await?;
    setup.server.kill()?;
    worker.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_first_beats_wait_can_be_stopped() -> Result<()> {
    let setup = setup().await?;
    signal("-STOP", setup.server.pid())?;
    let (worker, _seen) = acking(setup.queue.worker());
    let start = Stopwatch::start();
    within("the stop", worker.stop()).await??;
    // The beats would take 5 s or more.
    let took = start.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    signal("-CONT", setup.server.pid())?;
    stats_until(&setup.queue, "the leave", |stats| stats.nodes == 0).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_waits_while_its_queue_is_paused() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.pause().await?;
    // One handler at a time keeps the order of claims.
    let (worker, mut seen) = acking(queue.worker().concurrency(1));
    stats_until(queue, "a live worker", |stats| stats.nodes == 1).await?;
    queue.push("").id("due").due(Duration::ZERO).await?;
    queue
        .push("")
        .id("soon")
        .due(Duration::from_millis(100))
        .await?;
    // Wait until the second message is due as well.
    stats_until(queue, "both due", |stats| stats.due == 2).await?;
    assert_eq!(seen.rest(), Vec::<String>::new());
    assert_eq!(queue.stats().await?.claimed, 0);
    queue.resume().await?;
    assert_eq!(seen.take(2).await?, ["due", "soon"]);
    queue.push("").id("after").await?;
    assert_eq!(seen.next().await?, "after");
    worker.stop().await
}

/// The worker needs no message from outside: its timer ends when the queue opens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_queue_opens_at_its_time_without_a_call() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let (worker, mut seen) = reporting(queue.worker().concurrency(1), |delivery| {
        (delivery.id().into_owned(), delivery.started_us())
    });
    for round in 0..3 {
        let closed_us = setup.client.server_time().await?.unix_us;
        let period = Duration::from_millis(700);
        queue.pause_for(period).await?;
        for (id, delay_ms) in [("due", 0), ("soon", 100), ("later", 900)] {
            let message = Message::new("").id(format!("{id} {round}"));
            queue
                .push_message(message.due(Duration::from_millis(delay_ms)))
                .await?;
        }
        let opens_us = closed_us + u64::try_from(period.as_micros())?;
        for expected in ["due", "soon", "later"] {
            let (id, started_us) = seen.next().await?;
            assert_eq!(id, format!("{expected} {round}"));
            assert!(started_us >= opens_us, "{id} began before the opening");
        }
    }
    assert_eq!(queue.stats().await?.closed_ms, 0);
    worker.stop().await
}

/// A resume opens a closed queue at once. A longer closing replaces a shorter one, not the reverse.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resume_opens_a_closed_queue() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    for period in [Duration::ZERO, Duration::from_secs(4_000_000_000)] {
        let error = queue.pause_for(period).await.expect_err("out of range");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    assert_eq!(queue.stats().await?.closed_ms, 0);
    queue.pause_for(HOUR).await?;
    queue.pause_for(Duration::from_nanos(1)).await?;
    assert!(queue.stats().await?.closed_ms > 3_500_000);
    let (worker, mut seen) = acking(queue.worker());
    stats_until(queue, "a live worker", |stats| stats.nodes == 1).await?;
    let past = std::time::SystemTime::UNIX_EPOCH;
    queue.push("").id("due").due(past).await?;
    assert_eq!(queue.claim(1, HOUR).await?.len(), 0);
    queue.resume().await?;
    assert_eq!(seen.next().await?, "due");
    worker.stop().await
}

/// A pause does not stop a running handler or its settlement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pause_lets_running_handlers_finish() -> Result<()> {
    let setup = setup().await?;
    let go = std::sync::Arc::new(tokio::sync::Notify::new());
    let (sender, mut seen) = seen();
    let handler = {
        let go = go.clone();
        move |_| {
            let (go, sender) = (go.clone(), sender.clone());
            async move {
                let _ = sender.send(());
                go.notified().await;
            }
        }
    };
    let worker = Running::start(setup.queue.worker(), handler);
    setup.queue.push("").await?;
    seen.next().await?;
    setup.queue.pause().await?;
    go.notify_one();
    stats_until(&setup.queue, "the ack", |stats| stats.acked == 1).await?;
    worker.stop().await
}
