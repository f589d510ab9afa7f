//! Metrics and counts of each queue of one worker, named or found by a pattern.

use std::time::Duration;

use anyhow::Result;
use dueq::{Client, Count, Delivery, Limits};

use crate::support::{Setup, seen, setup, until, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_queue_of_a_worker_has_its_own_metrics() -> Result<()> {
    let Setup {
        queue,
        client,
        server,
    } = &setup().await?;
    let producer = Client::connect(&server.url()).await?;
    let counts = [("mail-a", 2), ("mail-b", 3), ("orders", 1)];
    for (name, count) in counts {
        for _ in 0..count {
            producer.queue(name)?.push("").await?;
        }
    }
    let (sender, mut seen) = seen();
    let handler = move |delivery: Delivery| {
        let _ = sender.send(delivery.queue().to_owned());
        std::future::ready(())
    };
    let worker = client
        .worker()
        .parking(Duration::from_secs(60))
        .queue(queue, handler.clone())
        .pattern(&client.pattern("mail-*")?, handler)
        .spawn();
    for _ in 0..6 {
        seen.next().await?;
    }
    // An exporter reads the names of the queues from the health.
    let exported = async || {
        let mut exported = Vec::new();
        for (name, _) in worker.health().queues() {
            let metrics = client.queue(name)?.metrics();
            let (claimed, acked) = (metrics.count(Count::Claimed), metrics.count(Count::Acked));
            exported.push((name.to_owned(), claimed, acked, metrics.lateness.count()));
        }
        Ok(exported)
    };
    let expected = counts.map(|(name, count)| (name.to_owned(), count, count, count));
    until("the acks", exported, |exported| *exported == expected).await?;
    within("the shutdown", worker.shutdown()).await??;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stats_say_how_long_a_parked_worker_is_silent() -> Result<()> {
    let Setup { queue, client, .. } = &setup().await?;
    let mail = client.queue("mail-a")?;
    for queue in [queue, &mail] {
        queue.configure(Limits::new().max_attempts(5)).await?;
    }
    let worker = client
        .worker()
        .parking(Duration::from_secs(60))
        .queue(queue, |_: Delivery| std::future::ready(()))
        .pattern(&client.pattern("mail-*")?, |_: Delivery| {
            std::future::ready(())
        })
        .spawn();
    let stats = until(
        "parked",
        async || Ok(mail.stats().await?),
        |stats| stats.parked_ms > 5_000,
    )
    .await?;
    assert!(stats.parked_ms <= 60_000 && stats.nodes == 1, "{stats:?}");
    let named = until(
        "a node",
        async || Ok(queue.stats().await?),
        |stats| stats.nodes == 1,
    )
    .await?;
    assert_eq!(named.parked_ms, 0);
    within("the shutdown", worker.shutdown()).await??;
    Ok(())
}
