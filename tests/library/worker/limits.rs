//! Limits that every claim obeys: the rate, `max_leased` and expiry; and the effects of throttle
//! and snooze.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{
    Batch, Client, Delivery, Message, MessageState, OnExpire, Queue, QueueLimits, Settlement,
    in_batches,
};
use dueq_testkit::Stopwatch;

use crate::support::{Running, Setup, acking, messages, push_all, seen, setup, stats_until};

const SECOND: Duration = Duration::from_secs(1);

/// The queue in several clients, as if in several processes.
async fn other_queues(setup: &Setup, count: usize) -> Result<Vec<Queue>> {
    let mut queues = Vec::new();
    for _ in 0..count {
        let client = Client::connect(&setup.server.url()).await?;
        queues.push(client.queue(setup.queue.name())?);
    }
    Ok(queues)
}

/// How many script calls the server has executed.
async fn script_calls(setup: &Setup) -> Result<u64> {
    let stats: String = setup.command(&["INFO", "commandstats"]).await?;
    let line = stats
        .lines()
        .find(|line| line.starts_with("cmdstat_evalsha"));
    let calls = line.and_then(|line| line.split(['=', ',']).nth(1));
    calls.context("no EVALSHA yet")?.parse().context("a number")
}

/// The largest number of these times, in microseconds, that lie in one window.
fn most_in(times: &[u64], window: Duration) -> usize {
    let window_us = u64::try_from(window.as_micros()).unwrap_or(u64::MAX);
    let in_window = |(first, &from): (usize, &u64)| {
        let end = times.partition_point(|&time| time < from + window_us);
        end - first
    };
    times.iter().enumerate().map(in_window).max().unwrap_or(0)
}

/// When the message was claimed, in Unix microseconds of the server: the lease began then.
fn claimed_us(delivery: &Delivery) -> u64 {
    (delivery.deadline_ms() - 30_000) * 1_000
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_together_obey_the_rate() -> Result<()> {
    starts_at_the_rate(3, 64).await
}

/// Each node has one handler, so the leader is often busy when the queue opens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_busy_nodes_together_obey_the_rate() -> Result<()> {
    starts_at_the_rate(8, 1).await
}

async fn starts_at_the_rate(nodes: usize, concurrency: usize) -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.pause().await?;
    queue
        .configure(QueueLimits::new().rate(100, SECOND).burst(10))
        .await?;
    push_all(queue, messages(1_500)).await?;
    let (sender, mut started) = seen();
    let mut workers = Vec::new();
    for queue in other_queues(&setup, nodes).await? {
        let sender = sender.clone();
        let handler = move |delivery: Delivery| {
            let _ = sender.send(claimed_us(&delivery));
            // The handlers take time, so that nodes are busy and each opening has to wake other
            // nodes.
            tokio::time::sleep(Duration::from_millis(30))
        };
        let worker = queue.worker().lease(30 * SECOND).concurrency(concurrency);
        workers.push(Running::start(worker, handler));
    }
    stats_until(queue, "all nodes", |stats| stats.nodes == nodes as u64).await?;
    let before = script_calls(&setup).await?;
    queue.resume().await?;
    let starts = 400;
    let mut times = started.take(starts).await?;
    let calls = script_calls(&setup).await? - before;
    for worker in workers {
        worker.stop().await?;
    }
    times.extend(started.rest());
    times.sort_unstable();
    // The time of a claim is known only to the millisecond, so the window is a millisecond shorter.
    assert!(most_in(&times, SECOND - Duration::from_millis(1)) <= 100);
    let took = Duration::from_micros(times[starts - 1] - times[0]);
    println!("{starts} starts in {nodes} nodes took {took:?} and {calls} calls");
    // 10 messages start at once, and then 91 in each second.
    let expected = SECOND * 390 / 91;
    assert!(took >= expected - Duration::from_millis(50), "{took:?}");
    assert!(took < expected * 4, "slower than the rate: {took:?}");
    assert!(calls < 10 * starts as u64, "{calls} calls");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_make_no_calls_between_openings() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue
        .configure(QueueLimits::new().rate(1, 60 * SECOND))
        .await?;
    push_all(queue, messages(100)).await?;
    let (worker, mut handled) = acking(queue.worker());
    handled.next().await?;
    stats_until(queue, "closed", |stats| {
        stats.closed_ms > 0 && stats.acked == 1
    })
    .await?;
    let (begun, before) = (std::time::Instant::now(), script_calls(&setup).await?);
    tokio::time::sleep(2 * SECOND).await;
    let calls = script_calls(&setup).await? - before;
    // The allowance for beats: one in 0.9 s.
    let beats = begun.elapsed().as_millis() as u64 / 900;
    assert!(calls <= beats + 2, "{calls} calls, and {beats} beats");
    let stats = queue.stats().await?;
    assert_eq!((stats.acked, stats.released), (1, 0));
    worker.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_together_never_exceed_max_leased() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.configure(QueueLimits::new().max_leased(1)).await?;
    push_all(queue, messages(200)).await?;
    let running = Arc::new(AtomicUsize::new(0));
    let (sender, mut ended) = seen();
    let mut workers = Vec::new();
    for queue in other_queues(&setup, 3).await? {
        let (sender, running) = (sender.clone(), Arc::clone(&running));
        let handler = move |_: Delivery| {
            let (sender, running) = (sender.clone(), Arc::clone(&running));
            async move {
                let others = running.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(2)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                let _ = sender.send(others);
            }
        };
        workers.push(Running::start(queue.worker(), handler));
    }
    let begun = Stopwatch::start();
    let before = script_calls(&setup).await?;
    let others = ended.take(200).await?;
    let (took, calls) = (begun.elapsed(), script_calls(&setup).await? - before);
    println!("200 handlers one after another took {took:?} and {calls} calls");
    assert_eq!(others.iter().sum::<usize>(), 0, "two ran at the same time");
    // Without wake-ups, each start would wait up to 0.9 s for a beat, 90 s in all. The reference is
    // the time that 200 handlers of 2 ms with four calls each take on this machine, one after
    // another.
    let begun = Stopwatch::start();
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(2)).await;
        for _ in 0..4 {
            queue.stats().await?;
        }
    }
    let reference = begun.elapsed();
    assert!(took < 10 * reference, "{took:?}, beside {reference:?}");
    assert!(calls < 200 * 7, "{calls} calls");
    for worker in workers {
        worker.stop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_messages_delay_live_ones_little() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let stale = (0..5_000).map(|n| {
        let message = Message::new("").id(format!("stale {n}"));
        let on_expire = if n % 2 == 0 {
            OnExpire::Dead
        } else {
            OnExpire::Drop
        };
        message
            .expires_after(Duration::from_millis(1))
            .on_expire(on_expire)
    });
    push_all(queue, stale.collect()).await?;
    tokio::time::sleep(Duration::from_millis(5)).await;
    push_all(queue, messages(10)).await?;
    let begun = Stopwatch::start();
    let (worker, mut handled) = acking(queue.worker());
    let mut first = handled.take(10).await?;
    let took = begun.elapsed();
    first.sort_unstable();
    assert_eq!(first, crate::support::ids(10));
    println!("10 live messages behind 5000 expired ones took {took:?}");
    // If each of twenty claims waited for the fallback interval, they would take 20 s.
    assert!(took < 15 * SECOND, "{took:?}");
    let stats = stats_until(queue, "all acked", |stats| stats.acked == 10).await?;
    assert_eq!(
        (stats.expired, stats.dead, stats.claimed),
        (5_000, 2_500, 10)
    );
    let dead = queue.get("stale 0").await?.context("dead, not dropped")?;
    assert_eq!(dead.state, MessageState::Dead);
    assert!(dead.error.starts_with("expired "), "{}", dead.error);
    assert!(queue.get("stale 1").await?.is_none());
    worker.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throttles_of_many_handlers_close_the_queue_once() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    push_all(queue, messages(40)).await?;
    let (sender, mut started) = seen();
    let refused = Arc::new(AtomicUsize::new(0));
    let all = Arc::new(tokio::sync::Barrier::new(16));
    let handler = move |delivery: Delivery| {
        let (refused, all, sender) = (Arc::clone(&refused), Arc::clone(&all), sender.clone());
        async move {
            let _ = sender.send((
                claimed_us(&delivery),
                delivery.id().into_owned(),
                delivery.attempt(),
            ));
            let number = refused.fetch_add(1, Ordering::SeqCst);
            if number >= 16 {
                return Settlement::Ack;
            }
            all.wait().await;
            let after_ms = if number == 7 { 1_500 } else { 1_000 };
            Settlement::throttle(Duration::from_millis(after_ms))
        }
    };
    let worker = queue.worker().concurrency(16).lease(30 * SECOND);
    let worker = Running::start(worker, handler);
    let first: Vec<_> = started.take(16).await?;
    let closed_by = first.iter().map(|(us, ..)| *us).max().context("sixteen")?;
    let then = started.take(16).await?;
    let opening = then.iter().map(|(us, ..)| *us).min().context("sixteen")?;
    assert!(
        opening >= closed_by + 1_500_000,
        "{} us",
        opening - closed_by
    );
    assert!(then.iter().all(|(_, _, attempt)| *attempt == 1));
    let stats = stats_until(queue, "all acked", |stats| stats.acked == 40).await?;
    assert_eq!((stats.throttled, stats.retried, stats.crashed), (16, 0, 0));
    assert_eq!(queue.metrics().count(dueq::metrics::Counter::Throttled), 16);
    worker.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snooze_keeps_attempts_and_counts_snoozes() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue
        .push("")
        .id("payment")
        .expires_after(60 * SECOND)
        .await?;
    let (sender, mut seen) = seen();
    let handler = move |delivery: Delivery| {
        let told = (
            delivery.attempt(),
            delivery.snoozes(),
            delivery.expires_at_ms(),
        );
        let _ = sender.send(told);
        async move {
            if told.1 < 3 {
                Settlement::snooze(Duration::from_millis(20))
            } else {
                Settlement::Ack
            }
        }
    };
    let worker = Running::start(queue.worker(), handler);
    let seen = seen.take(4).await?;
    let expires = seen[0].2;
    assert!(expires.is_some());
    let expected: Vec<_> = (0..4).map(|snoozes| (1, snoozes, expires)).collect();
    assert_eq!(
        seen, expected,
        "attempts, snoozes, and the expiry that stays"
    );
    let stats = stats_until(queue, "acked", |stats| stats.acked == 1).await?;
    assert_eq!((stats.snoozed, stats.retried), (3, 0));
    worker.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_handlers_snooze_and_throttle_single_deliveries() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let later = Message::new("later").id("later");
    let slow = Message::new("slow down").id("slow");
    push_all(queue, vec![later, slow, Message::new("done").id("done")]).await?;
    let handler = |batch: Batch<Vec<u8>>| {
        let of =
            |(payload, delivery): (&Vec<u8>, &Delivery)| match (&payload[..], delivery.snoozes()) {
                (b"later", 0) => Settlement::snooze(Duration::from_millis(1)),
                (b"slow down", _) if delivery.lateness() < SECOND / 2 => {
                    Settlement::throttle(SECOND)
                }
                _ => Settlement::Ack,
            };
        let settlements: Vec<_> = batch.iter().map(of).collect();
        async move { settlements }
    };
    let worker = queue
        .worker()
        .spawn(in_batches(10, Duration::from_millis(5), handler))?;
    let stats = stats_until(queue, "all acked", |stats| stats.acked == 3).await?;
    assert_eq!((stats.snoozed, stats.throttled >= 1), (1, true));
    Ok(worker.shutdown().await?)
}
