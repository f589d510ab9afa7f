//! A message that is due in two seconds, and the worker that handles it.
//!
//! `scripts/with-server cargo run --example hello_delay`

use std::time::Duration;

use dueq::{Client, Delivery};
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let queue = Client::connect(&url).await?.queue_of::<String>("hello")?;

    let text = "hello, two seconds later";
    let receipt = queue.push(text).delay(Duration::from_secs(2)).await?;
    println!("pushed {}", receipt.id());

    let (done, mut first) = mpsc::unbounded_channel();
    let handler = move |text: String, delivery: Delivery| {
        println!("{text} ({:?} late)", delivery.lateness());
        let _ = done.send(());
        async {}
    };
    queue.worker().run(handler, first.recv()).await?;
    Ok(())
}
