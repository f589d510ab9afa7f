//! A worker process: rates the orders whose 48 hours are over.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use dueq::{Delivery, Retry, Settlement};
use tokio::sync::oneshot;

use crate::books::{Entry, Writer};

/// When a worker dies, its orders are somebody else's after this time.
const LEASE: Duration = Duration::from_secs(5);

/// Many: each of them only waits for the books, which take all that is there at once.
const HANDLERS: usize = 512;

/// Works until the parent closes our standard input, by intent or by dying; or until we are asked to terminate.
pub(crate) async fn work(queue: &str, database: &Path) -> Result<()> {
    let books = Writer::start(database)?;
    let queue = crate::connect().await?.queue(queue)?;
    let rate = move |delivery: Delivery| rate(books.clone(), delivery);
    let stop = async {
        tokio::select! {
            () = end_of_input() => {}
            _ = crate::terminated() => {}
            () = not_interrupted() => {}
        }
    };
    let worker = queue
        .worker()
        .concurrency(HANDLERS)
        .lease(LEASE)
        .retry(Retry::fixed(Duration::from_secs(1)))
        .grace(LEASE);
    Ok(worker.run(rate, stop).await?)
}

/// Acks when the rating is committed. What fails is retried; what is handled twice is rated once.
async fn rate(books: Writer, delivery: Delivery) -> Result<Settlement> {
    let order_id = String::from_utf8_lossy(delivery.payload()).into_owned();
    let (due_ms, fired_us, attempt) =
        (delivery.due_ms(), delivery.started_us(), delivery.attempt());
    let known = books
        .enter(Entry::Fired {
            order_id,
            due_ms,
            fired_us,
            attempt,
        })
        .await?;
    Ok(if known {
        Settlement::Ack
    } else {
        Settlement::bury("there is no such order")
    })
}

/// Ctrl-C reaches all processes of a terminal; what follows is the parent's to say.
async fn not_interrupted() {
    while tokio::signal::ctrl_c().await.is_ok() {}
    std::future::pending().await
}

async fn end_of_input() {
    let (sender, ended) = oneshot::channel::<()>();
    // Not a thread of the runtime's: that would wait for it to end.
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(sender);
    });
    let _ = ended.await;
}
