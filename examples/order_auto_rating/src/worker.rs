//! A worker process: rates the orders whose 48 hours have passed.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use dueq::{Delivery, Retry, Settlement};
use tokio::sync::oneshot;

use crate::books::{Entry, Writer};

/// Lease: after a worker dies, other workers get its orders after this time.
const LEASE: Duration = Duration::from_secs(5);

/// Many handlers, because each only waits for SQLite, which commits all waiting entries at once.
const HANDLERS: usize = 512;

/// Runs until SIGTERM, or until the parent closes standard input by intent or by its end.
pub(crate) async fn work(queue: &str, database: &Path) -> Result<()> {
    let terminated = crate::termination()?;
    let books = Writer::start(database)?;
    let queue = crate::connect().await?.queue(queue)?;
    let rate = move |delivery: Delivery| rate(books.clone(), delivery);
    let stop = async {
        tokio::select! {
            () = end_of_input() => {}
            () = terminated => {}
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

/// Acks after the commit. A failure is retried; an order handled twice is rated once.
async fn rate(books: Writer, delivery: Delivery) -> Result<Settlement> {
    let order_id = String::from_utf8_lossy(delivery.payload()).into_owned();
    let fired = Entry::Fired {
        order_id,
        due_ms: delivery.due_ms(),
        fired_us: delivery.started_us(),
        attempt: delivery.attempt(),
    };
    Ok(if books.enter(fired).await? {
        Settlement::Ack
    } else {
        Settlement::bury("there is no such order")
    })
}

/// Ctrl-C reaches all processes of a terminal; the parent decides what happens.
async fn not_interrupted() {
    while tokio::signal::ctrl_c().await.is_ok() {}
    std::future::pending().await
}

async fn end_of_input() {
    let (sender, ended) = oneshot::channel::<()>();
    // The runtime would wait for the end of its own threads, so use a plain one.
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(sender);
    });
    let _ = ended.await;
}
