//! Queues with typed payloads, and payloads that their codec cannot decode.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use dueq::handlers::BoxError;
use dueq::{Batch, Client, Codec, Delivery, ErrorKind, MessageState, Queue, in_batches};
use serde::{Deserialize, Serialize};
use tower::timeout::TimeoutLayer;

use crate::support::{LONG, Setup, seen, setup, stats_until};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    number: u64,
}

/// Pushes payload bytes without the codec of the queue.
async fn push_raw(client: &Client, queue: &str, id: &str, payload: &str) -> Result<()> {
    let raw = client.queue(queue)?;
    raw.push(payload).id(id).await?;
    Ok(())
}

/// The stored error of the dead message with this id.
async fn dead_error<C: Codec>(queue: &Queue<C>, id: &str) -> Result<String> {
    stats_until(queue, "a dead message", |stats| stats.dead == 1).await?;
    let stored = queue.get(id).await?.context("a dead message")?;
    assert_eq!(stored.state, MessageState::Dead);
    Ok(stored.error)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undecodable_payload_is_buried_and_not_retried() -> Result<()> {
    let Setup { client, .. } = &setup().await?;
    let orders = client.queue_of::<Order>("typed")?;
    let (sender, mut seen) = seen();
    let worker = orders.worker().spawn(move |order: Order, _: Delivery| {
        let _ = sender.send(order);
        async {}
    })?;
    push_raw(client, "typed", "bad", r#"{"number":"seven"}"#).await?;
    let error = dead_error(&orders, "bad").await?;
    assert!(error.contains("does not decode"), "{error}");
    assert!(error.contains("expected u64"), "the reason: {error}");
    orders.push(Order { number: 8 }).await?;
    assert_eq!(seen.next().await?, Order { number: 8 });
    let stats = stats_until(&orders, "acked", |stats| stats.acked == 1).await?;
    assert_eq!((stats.retried, stats.claimed), (0, 2));
    Ok(worker.shutdown().await?)
}

/// A codec for numbers as decimal text. Its decoding panics until `is_mended` is set.
#[derive(Clone, Default)]
struct Fragile {
    is_mended: Arc<AtomicBool>,
}

impl Codec for Fragile {
    type Value = u64;

    fn encode(&self, value: &u64) -> Result<Vec<u8>, BoxError> {
        Ok(value.to_string().into_bytes())
    }

    fn decode(&self, payload: &[u8]) -> Result<u64, BoxError> {
        let is_bad = payload == b"7" && !self.is_mended.load(Ordering::SeqCst);
        assert!(!is_bad, "the codec knows no seven");
        Ok(std::str::from_utf8(payload)?.parse()?)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_decode_buries_its_message_only() -> Result<()> {
    let Setup { client, queue, .. } = &setup().await?;
    let codec = Fragile::default();
    let numbers = client.queue_with_codec("numbers", codec.clone())?;
    let (sender, mut seen) = seen();
    let of_orders = sender.clone();
    let worker = client
        .worker()
        .queue(&numbers, move |number: u64, delivery: Delivery| {
            let _ = sender.send(format!("{} {number}", delivery.queue()));
            async {}
        })
        .queue(queue, move |delivery: Delivery| {
            let _ = of_orders.send(delivery.queue().to_owned());
            async {}
        })
        .spawn()?;
    numbers.push(7_u64).id("seven").await?;
    let error = dead_error(&numbers, "seven").await?;
    assert!(error.contains("the codec panicked"), "{error}");
    assert!(error.contains("knows no seven"), "{error}");
    assert_eq!(numbers.stats().await?.retried, 0);
    // This queue and the worker's other queue continue.
    numbers.push(8_u64).await?;
    assert_eq!(seen.next().await?, "numbers 8");
    queue.push("").await?;
    assert_eq!(seen.next().await?, "orders");
    // The mended codec decodes the message when it is requeued.
    codec.is_mended.store(true, Ordering::SeqCst);
    let _ = numbers.requeue("seven").await?;
    assert_eq!(seen.next().await?, "numbers 7");
    stats_until(&numbers, "acked", |stats| stats.acked == 2).await?;
    assert!(worker.health().is_running());
    Ok(worker.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_handled_without_its_undecodable_message() -> Result<()> {
    let Setup { client, .. } = &setup().await?;
    let numbers = client.queue_with_codec("numbers", Fragile::default())?;
    for (id, payload) in [("1", "1"), ("panics", "7"), ("fails", "x"), ("2", "2")] {
        push_raw(client, "numbers", id, payload).await?;
    }
    let (sender, mut seen) = seen();
    let handler = move |batch: Batch<u64>| {
        for (number, _) in batch.iter() {
            let _ = sender.send(*number);
        }
        async {}
    };
    let worker = numbers.worker().lease(LONG);
    let worker = worker.spawn(in_batches(4, Duration::from_millis(20), handler))?;
    let mut handled = seen.take(2).await?;
    handled.sort_unstable();
    assert_eq!(handled, [1, 2]);
    let settled = |stats: &dueq::QueueStats| stats.acked == 2 && stats.dead == 2;
    let stats = stats_until(&numbers, "settled", settled).await?;
    assert_eq!((stats.retried, stats.claimed), (0, 4));
    for (id, reason) in [("panics", "the codec panicked"), ("fails", "invalid digit")] {
        let stored = numbers.get(id).await?.context("a dead message")?;
        assert!(stored.error.contains(reason), "{id}: {}", stored.error);
    }
    Ok(worker.shutdown().await?)
}

/// A codec whose error panics when it is turned into text.
#[derive(Clone)]
struct Speechless;

#[derive(Debug)]
struct NoText;

impl std::fmt::Display for NoText {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("the error has no text")
    }
}

impl std::error::Error for NoText {}

impl Codec for Speechless {
    type Value = u64;

    fn encode(&self, _: &u64) -> Result<Vec<u8>, BoxError> {
        Err(NoText.into())
    }

    fn decode(&self, payload: &[u8]) -> Result<u64, BoxError> {
        if payload == b"bad" {
            return Err(NoText.into());
        }
        Ok(1)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_of_the_codecs_error_harms_no_other_message() -> Result<()> {
    let Setup { client, .. } = &setup().await?;
    let numbers = client.queue_with_codec("numbers", Speechless)?;
    let error = numbers.push(1_u64).await.expect_err("not encoded");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    for payload in ["good", "bad", "fine"] {
        push_raw(client, "numbers", payload, payload).await?;
    }
    let handler = in_batches(3, LONG / 3, |_: Batch<u64>| async {});
    let worker = numbers.worker().lease(LONG).spawn(handler)?;
    let error = dead_error(&numbers, "bad").await?;
    assert!(error.contains("the error has no text"), "{error}");
    let stats = stats_until(&numbers, "acked", |stats| stats.acked == 2).await?;
    assert_eq!((stats.claimed, stats.crashed, stats.retried), (3, 0, 0));
    Ok(worker.shutdown().await?)
}

/// Layers see an undecodable payload as a settlement, which they cannot turn into a retry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undecodable_payload_reaches_layers_as_a_burial() -> Result<()> {
    let Setup { client, .. } = &setup().await?;
    let orders = client.queue_of::<Order>("typed")?;
    push_raw(client, "typed", "bad", "no JSON").await?;
    let worker = orders.worker().layer(TimeoutLayer::new(LONG));
    let worker = worker.spawn(|_: Order, _: Delivery| async {})?;
    let error = dead_error(&orders, "bad").await?;
    assert!(error.contains("does not decode"), "{error}");
    assert_eq!(orders.stats().await?.retried, 0);
    Ok(worker.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_takes_deliveries_decodes_no_payload() -> Result<()> {
    let Setup { client, .. } = &setup().await?;
    let orders = client.queue_of::<Order>("typed")?;
    push_raw(client, "typed", "bad", "no JSON").await?;
    let (sender, mut seen) = seen();
    let worker = orders.worker().spawn(move |delivery: Delivery| {
        let _ = sender.send(delivery.payload().to_vec());
        async {}
    })?;
    assert_eq!(seen.next().await?, b"no JSON");
    stats_until(&orders, "acked", |stats| stats.acked == 1).await?;
    Ok(worker.shutdown().await?)
}
