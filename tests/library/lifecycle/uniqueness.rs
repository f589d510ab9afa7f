//! Windows, debounces, and next messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use dueq::metrics::Counter;
use dueq::outcomes::{CancelOutcome, PushOutcome, SettleOutcome};
use dueq::{
    Client, Delivery, ErrorKind, Message, MessageState, OnConflict, Queue, QueueLimits, Retry,
    Settlement,
};
use tokio::task::JoinSet;

use crate::support::{HOUR, Running, ids, push_and_claim, seen, setup, stats_until};

const SECOND: Duration = Duration::from_secs(1);

fn next(payload: &str) -> Message {
    let message = Message::new(payload).id("a");
    message.on_conflict(OnConflict::Next)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_producers_create_each_windowed_id_once() -> Result<()> {
    let setup = setup().await?;
    let worker = Running::start(setup.queue.worker(), |_| async {});
    let mut producers = JoinSet::new();
    for _ in 0..8 {
        let client = Client::connect(&setup.server.url()).await?;
        let queue = client.queue("orders")?;
        producers.spawn(async move {
            let messages = ids(1_000)
                .into_iter()
                .map(|id| Message::new("").id(id).window(HOUR));
            let receipts = queue.push_many(messages).await;
            let created = receipts
                .into_iter()
                .map(|receipt| Ok(receipt?.is_created()));
            created.collect::<Result<Vec<bool>, dueq::Error>>()
        });
    }
    let mut created = vec![0; 1_000];
    while let Some(producer) = producers.join_next().await {
        for (index, is_created) in producer??.into_iter().enumerate() {
            created[index] += u32::from(is_created);
        }
    }
    assert!(created.iter().all(|count| *count == 1), "{created:?}");
    let stats = stats_until(&setup.queue, "all acks", |stats| stats.acked == 1_000).await?;
    assert_eq!((stats.pushed, stats.claimed), (1_000, 1_000));
    worker.stop().await
}

#[tokio::test]
async fn a_window_ends_by_time_by_cancel_and_by_reuse() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let message = || Message::new("").id("a").window(HOUR);
    let stored = || async { queue.get("a").await?.context("stored") };
    let delivery = push_and_claim(queue, message()).await?;
    assert_eq!(stored().await?.window_ms, Some(3_600_000));
    let exists = queue.push_message(message()).await?;
    assert_eq!(exists.outcome(), PushOutcome::Exists(MessageState::Leased));
    assert_eq!(delivery.ack().await?, SettleOutcome::Done);
    let remembered = queue.push_message(message()).await?;
    let PushOutcome::Remembered(until_ms) = remembered.outcome() else {
        anyhow::bail!("{remembered:?}");
    };
    let now_ms = setup.client.server_time().await?.now_ms();
    assert!(until_ms > now_ms + 3_500_000 && until_ms <= now_ms + 3_600_001);
    assert_eq!(remembered.due_ms(), None);
    // The window of the earlier push also applies to a push without a window.
    let plain = queue.push("").id("a").await?;
    assert_eq!(plain.outcome(), PushOutcome::Remembered(until_ms));
    assert_eq!(queue.metrics().count(Counter::PushRemembered), 2);
    assert!(queue.push_message(message().reuse()).await?.is_created());
    assert_eq!(queue.cancel("a").await?, CancelOutcome::Cancelled);
    let short = message().window(Duration::from_millis(50));
    let delivery = push_and_claim(queue, short.clone()).await?;
    assert_eq!(delivery.ack().await?, SettleOutcome::Done);
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert!(queue.push_message(short).await?.is_created());
    Ok(())
}

#[tokio::test]
async fn push_with_a_window_is_refused_at_max_remembered() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue
        .configure(QueueLimits::new().max_remembered(10))
        .await?;
    assert_eq!(queue.stats().await?.max_remembered, 10);
    let push = |id: &str| queue.push("").id(id).window(HOUR);
    let mut created = 0;
    let error = loop {
        match push(&created.to_string()).await {
            Ok(receipt) => assert!(receipt.is_created()),
            Err(error) => break error,
        }
        created += 1;
    };
    // The remembered calls count towards the limit, too.
    assert!((2..=10).contains(&created), "{created}");
    assert_eq!(error.kind(), ErrorKind::Full);
    assert!(error.to_string().contains("--max-remembered"), "{error}");
    assert!(queue.push("").id("without").await?.is_created());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn debounce_fires_at_max_wait_and_not_before() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let (sender, mut started) = seen();
    let worker = Running::start(queue.worker(), move |delivery: Delivery| {
        let late = delivery.lateness();
        let payload = String::from_utf8_lossy(delivery.payload()).into_owned();
        let _ = sender.send((payload, delivery.due_ms(), late));
        async {}
    });
    let (pause, limit) = (Duration::from_millis(400), Duration::from_millis(1_000));
    let push = |payload: String| queue.push(payload).id("a").debounce(pause).max_wait(limit);
    let first = push("0".to_owned()).await?;
    let due_by_ms = first.due_ms().context("created")? + 600;
    let mut last = 0;
    for number in 1..=9 {
        tokio::time::sleep(Duration::from_millis(80)).await;
        if push(number.to_string()).await?.outcome() != PushOutcome::Moved {
            break; // this machine stood still for longer than `max_wait`
        }
        last = number;
        let stored = queue.get("a").await?;
        if let Some(stored) = stored.filter(|stored| stored.state == MessageState::Scheduled) {
            assert_eq!(stored.due_by_ms, Some(due_by_ms));
        }
    }
    let (payload, due_ms, late) = started.next().await?;
    assert_eq!(payload, last.to_string());
    assert!(due_ms <= due_by_ms, "{due_ms} is after {due_by_ms}");
    if last == 9 {
        assert_eq!(due_ms, due_by_ms, "the pushes did not pause");
    }
    assert!(late < 10 * SECOND, "{late:?}");
    worker.stop().await
}

#[tokio::test]
async fn cancel_of_a_next_message_returns_next() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.configure(QueueLimits::new().layout3()).await?;
    let delivery = push_and_claim(queue, next("first")).await?;
    let _ = queue.push_message(next("second")).await?;
    assert_eq!(queue.cancel("a").await?, CancelOutcome::Next);
    assert_eq!(queue.cancel("a").await?, CancelOutcome::Leased);
    assert_eq!(delivery.ack().await?, SettleOutcome::Done);
    assert_eq!(queue.stats().await?.scheduled, 0);
    assert_eq!(queue.metrics().count(Counter::Cancelled), 0);
    Ok(())
}

/// The handler first sees the payload of the first push, and in a second run that of the last push.
async fn one_more_run(queue: &Queue, id: &str, first_run: First) -> Result<()> {
    let (sender, mut seen_runs) = seen();
    let pushed = Arc::new(AtomicUsize::new(0));
    let (other, of_handler) = (queue.clone(), Arc::clone(&pushed));
    let handler = move |delivery: Delivery| {
        let (queue, pushed, sender) = (other.clone(), Arc::clone(&of_handler), sender.clone());
        async move {
            let payload = String::from_utf8_lossy(delivery.payload()).into_owned();
            let is_first = payload == "first";
            let _ = sender.send(payload);
            if !is_first {
                return anyhow::Ok(Settlement::Ack);
            }
            let mut pushes = JoinSet::new();
            for number in 0..200 {
                let (queue, id) = (queue.clone(), delivery.id().into_owned());
                let message = Message::new(number.to_string()).id(id);
                let message = message.on_conflict(OnConflict::Next);
                // The last push comes after all others.
                if number == 199 {
                    while let Some(pushed) = pushes.join_next().await {
                        assert_eq!(pushed??, PushOutcome::Next);
                    }
                }
                pushes.spawn(async move {
                    let receipt = queue.push_message(message).await?;
                    Ok::<_, dueq::Error>(receipt.outcome())
                });
                pushed.fetch_add(1, Ordering::Relaxed);
            }
            while let Some(pushed) = pushes.join_next().await {
                assert_eq!(pushed??, PushOutcome::Next);
            }
            match first_run {
                First::Acks => Ok(Settlement::Ack),
                First::Fails => anyhow::bail!("failed"),
                First::Panics => panic!("on purpose"),
            }
        }
    };
    let worker = Running::start(queue.worker().retry(Retry::fixed(HOUR)), handler);
    queue.push("first").id(id).await?;
    assert_eq!(seen_runs.next().await?, "first");
    assert_eq!(seen_runs.next().await?, "199");
    stats_until(queue, "the end", |stats| {
        stats.scheduled + stats.ready + stats.leased == 0
    })
    .await?;
    assert_eq!(pushed.load(Ordering::Relaxed), 200);
    worker.stop().await
}

#[derive(Clone, Copy)]
enum First {
    Acks,
    Fails,
    Panics,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushes_during_a_run_cause_one_more_run() -> Result<()> {
    let setup = setup().await?;
    setup.queue.configure(QueueLimits::new().layout3()).await?;
    for (id, first_run) in [
        ("acks", First::Acks),
        ("fails", First::Fails),
        ("panics", First::Panics),
    ] {
        one_more_run(&setup.queue, id, first_run).await?;
    }
    let stats = setup.queue.stats().await?;
    assert_eq!((stats.claimed, stats.dead), (6, 0));
    Ok(())
}
