//! A message that is due in two seconds, and the worker that handles it.
//!
//! `scripts/with-server cargo run --example hello_delay`

use std::time::Duration;

use dueq::{Client, Delivery, Message};
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let queue = Client::connect(&url).await?.queue("hello")?;

    let pushed = queue
        .push_message(Message::new("hello, two seconds later").due(Duration::from_secs(2)))
        .await?;
    println!("pushed: {pushed:?}");

    let (done, mut first) = mpsc::unbounded_channel();
    let handler = move |delivery: Delivery| {
        println!(
            "{} ({:?} late)",
            String::from_utf8_lossy(delivery.payload()),
            delivery.lateness()
        );
        let _ = done.send(());
        async {}
    };
    queue
        .worker()
        .run(handler, async { first.recv().await.unwrap_or_default() })
        .await?;
    Ok(())
}
