//! Measures which queue gets the next handler, by reserves, weights and strict order, on a real
//! node.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use dueq::{Client, Delivery, Queue, Share};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{late_us, percentiles, push_one, timed};
use crate::peers::server::Server;

/// What the handlers of one queue have recorded.
#[derive(Default)]
struct Seen {
    running: AtomicUsize,
    late_us: Mutex<Vec<u64>>,
}

impl Seen {
    /// A handler that takes this long.
    fn handler(
        self: &Arc<Self>,
        time: Duration,
    ) -> impl Fn(Delivery) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>>
    + Send
    + Sync
    + 'static
    + use<> {
        let seen = Arc::clone(self);
        move |delivery: Delivery| {
            let seen = Arc::clone(&seen);
            let late = late_us(delivery.payload());
            let mut all = seen.late_us.lock().unwrap_or_else(PoisonError::into_inner);
            all.push(late);
            drop(all);
            Box::pin(async move {
                seen.running.fetch_add(1, Ordering::Relaxed);
                sleep(time).await;
                seen.running.fetch_sub(1, Ordering::Relaxed);
            })
        }
    }

    fn late(&self) -> Value {
        let late = self.late_us.lock().unwrap_or_else(PoisonError::into_inner);
        percentiles(late.clone())
    }
}

/// Messages of a queue with a reserve, while handlers of one second occupy all other handlers.
pub(super) async fn reserve(messages: u64) -> Result<Value> {
    let idle = beside_long_handlers(messages, false).await?;
    let busy = beside_long_handlers(messages, true).await?;
    Ok(json!({ "idle": idle, "busy": busy }))
}

async fn beside_long_handlers(messages: u64, busy: bool) -> Result<Value> {
    let server = Server::private().await?;
    let client = Client::connect(&server.address()).await?;
    let (urgent, long) = (client.queue("urgent")?, client.queue("long")?);
    let (of_urgent, of_long) = (Arc::new(Seen::default()), Arc::new(Seen::default()));
    const APART: Duration = Duration::from_millis(50);
    if busy {
        // Eight run at a time; push twice as many as the measurement can use.
        let seconds = messages * APART.as_millis() as u64 / 1_000 + 10;
        backlog(&long, seconds * 16).await?;
    }
    let worker = client
        .worker()
        .concurrency(8)
        .queue_with(
            &urgent,
            Share::weight(1).reserve(1),
            of_urgent.handler(Duration::ZERO),
        )
        .queue(&long, of_long.handler(Duration::from_secs(1)))
        .spawn()?;
    sleep(Duration::from_secs(3)).await;
    for _ in 0..messages {
        push_one(&urgent, timed(200)).await?;
        sleep(APART).await;
    }
    sleep(Duration::from_secs(1)).await;
    worker.abort();
    Ok(json!({ "urgent": of_urgent.late(), "long_handled": of_long.late()["messages"] }))
}

/// Three queues with weights 6:3:1 and handler times 10, 100 and 1,000 ms; each has more messages
/// than handlers.
pub(super) async fn shares(seconds: u64) -> Result<Value> {
    let server = Server::private().await?;
    let client = Client::connect(&server.address()).await?;
    let mut worker = client.worker().concurrency(20);
    let mut all = Vec::new();
    for (name, weight, ms) in [("six", 6, 10), ("three", 3, 100), ("one", 1, 1_000)] {
        let (queue, seen) = (client.queue(name)?, Arc::new(Seen::default()));
        // Enough messages even if this queue got all handlers.
        backlog(&queue, (seconds + 10) * 20_000 / ms).await?;
        let handler = seen.handler(Duration::from_millis(ms));
        worker = worker.queue_with(&queue, Share::weight(weight), handler);
        all.push(seen);
    }
    let worker = worker.spawn()?;
    sleep(Duration::from_secs(3)).await;
    let (mut sums, end) = ([0_usize; 3], Instant::now() + Duration::from_secs(seconds));
    while Instant::now() < end {
        for (sum, seen) in sums.iter_mut().zip(&all) {
            *sum += seen.running.load(Ordering::Relaxed);
        }
        sleep(Duration::from_millis(7)).await;
    }
    worker.abort();
    let total: usize = sums.iter().sum();
    let percent = sums.map(|sum| 100.0 * sum as f64 / total.max(1) as f64);
    Ok(json!({ "running_percent": percent, "weights_percent": [60, 30, 10] }))
}

/// Strict order: the first queue has more messages than handlers, the second queue waits behind it;
/// `max_wait` is 1 s.
pub(super) async fn strict(seconds: u64) -> Result<Value> {
    let server = Server::private().await?;
    let client = Client::connect(&server.address()).await?;
    let (high, low) = (client.queue("high")?, client.queue("low")?);
    let (of_high, of_low) = (Arc::new(Seen::default()), Arc::new(Seen::default()));
    backlog(&high, (seconds + 10) * 80).await?;
    let handler_time = Duration::from_millis(50);
    let worker = client
        .worker()
        .concurrency(4)
        .strict(Duration::from_secs(1))
        .queue(&high, of_high.handler(handler_time))
        .queue(&low, of_low.handler(handler_time))
        .spawn()?;
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        push_one(&low, timed(100)).await?;
        sleep(Duration::from_millis(200)).await;
    }
    sleep(Duration::from_secs(2)).await;
    worker.abort();
    Ok(json!({ "max_wait_ms": 1_000, "handler_ms": 50, "low": of_low.late() }))
}

/// Pushes messages that are due now.
async fn backlog(queue: &Queue, messages: u64) -> Result<()> {
    for pushed in queue.push_many((0..messages).map(|_| timed(0))).await {
        pushed?;
    }
    Ok(())
}
