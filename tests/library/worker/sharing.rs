//! Several workers on one queue.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use dueq::Client;
use dueq_testkit::Stopwatch;

use crate::support::child::{Process, Role};
use crate::support::{Running, acking, holding, ids, messages, push_all, seen, setup, stats_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_handle_a_thousand_messages_once_each() -> Result<()> {
    let setup = setup().await?;
    let url = setup.server.url();
    // The queue must exist: Redis counts workers only then.
    setup.queue.resume().await?;
    setup.queue.pause().await?;
    let (mut one, mut two) = (
        Process::start(Role::Handle, &url, &[])?,
        Process::start(Role::Handle, &url, &[])?,
    );
    stats_until(&setup.queue, "two workers", |stats| stats.nodes == 2).await?;
    push_all(&setup.queue, messages(1_000)).await?;
    setup.queue.resume().await?;
    let (mut by_one, mut by_two) = (Vec::new(), Vec::new());
    while by_one.len() + by_two.len() < 1_000 {
        tokio::select! {
            said = one.says() => by_one.push(said?),
            said = two.says() => by_two.push(said?),
        }
    }
    let stats = stats_until(&setup.queue, "all acked", |stats| stats.acked == 1_000).await?;
    assert_eq!(
        (stats.claimed, stats.crashed, stats.released, stats.leased),
        (1_000, 0, 0, 0)
    );
    let mut all = [by_one, by_two].concat();
    all.sort_unstable();
    assert_eq!(all, ids(1_000));
    Ok(())
}

/// Each process can hold at most 50 messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_process_gets_messages_that_the_first_cannot_hold() -> Result<()> {
    let setup = setup().await?;
    let url = setup.server.url();
    let (mut one, mut two) = (
        Process::start(Role::Hold, &url, &[])?,
        Process::start(Role::Hold, &url, &[])?,
    );
    push_all(&setup.queue, messages(100)).await?;
    for _ in 0..50 {
        one.says().await?;
        two.says().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_due_messages_spread_over_the_workers() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.pause().await?;
    let (one, mut by_one) = holding(queue.worker().concurrency(100));
    let other = Client::connect(&setup.server.url())
        .await?
        .queue("orders")?;
    let (two, mut by_two) = holding(other.worker().concurrency(100));
    stats_until(queue, "two workers", |stats| stats.nodes == 2).await?;
    push_all(queue, messages(100)).await?;
    queue.resume().await?;
    let (mut of_one, mut of_two) = (0, 0);
    while of_one + of_two < 100 {
        tokio::select! {
            held = by_one.next() => { held?; of_one += 1; }
            held = by_two.next() => { held?; of_two += 1; }
        }
    }
    assert!(of_one.min(of_two) >= 10, "{of_one} and {of_two}");
    one.abort().await?;
    two.abort().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_handlers_never_exceed_the_concurrency() -> Result<()> {
    let setup = setup().await?;
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (sender, mut seen) = seen();
    let handler = {
        let (running, most) = (Arc::clone(&running), Arc::clone(&most));
        move |_| {
            let (running, most, sender) = (Arc::clone(&running), Arc::clone(&most), sender.clone());
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
                running.fetch_sub(1, Ordering::SeqCst);
                let _ = sender.send(());
            }
        }
    };
    let worker = Running::start(setup.queue.worker().concurrency(7), handler);
    push_all(&setup.queue, messages(700)).await?;
    seen.take(700).await?;
    worker.stop().await?;
    assert!((1..=7).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    let stats = setup.queue.stats().await?;
    assert_eq!(stats.acked, 700, "{stats:?}");
    Ok(())
}

/// All handlers of one worker are busy with messages that never end, so the other worker must get
/// all later messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_with_all_handlers_busy_leaves_work_to_others() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    push_all(queue, messages(5)).await?;
    let (full, mut held) = holding(queue.worker().concurrency(5));
    held.take(5).await?;
    let (free, mut handled) = acking(queue.worker().concurrency(5));
    push_all(
        queue,
        (0..300)
            .map(|n| dueq::Message::new("").id(format!("later {n}")))
            .collect(),
    )
    .await?;
    assert_eq!(
        handled
            .take(300)
            .await?
            .into_iter()
            .collect::<BTreeSet<_>>()
            .len(),
        300
    );
    free.stop().await?;
    full.abort().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_beyond_the_ready_limit_are_all_handled_once() -> Result<()> {
    let setup = setup().await?;
    push_all(&setup.queue, messages(5_000)).await?;
    let (one, mut by_one) = acking(setup.queue.worker());
    let (two, mut by_two) = acking(setup.queue.worker());
    stats_until(&setup.queue, "all acked", |stats| stats.acked == 5_000).await?;
    one.stop().await?;
    two.stop().await?;
    let mut all = [by_one.rest(), by_two.rest()].concat();
    all.sort_unstable();
    assert_eq!(all, ids(5_000));
    Ok(())
}

/// A client may have more queues and workers than its pool has connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_workers_than_pooled_connections_all_get_messages() -> Result<()> {
    let setup = setup().await?;
    let queues = (0..24)
        .map(|n| setup.client.queue(&format!("queue {n}")))
        .collect::<Result<Vec<_>, _>>()?;
    let started = Stopwatch::start();
    let workers: Vec<_> = queues.iter().map(|queue| acking(queue.worker())).collect();
    for queue in &queues {
        push_all(queue, messages(20)).await?;
        queue.stats().await?;
    }
    for ((worker, mut seen), queue) in workers.into_iter().zip(&queues) {
        seen.take(20).await?;
        worker.stop().await?;
        assert_eq!(queue.stats().await?.acked, 20);
    }
    let took = started.elapsed();
    assert!(
        took < Duration::from_secs(30),
        "the workers waited for each other: {took:?}"
    );
    Ok(())
}
