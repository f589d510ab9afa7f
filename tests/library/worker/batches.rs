//! Handlers that take batches.

use std::time::Duration;

use anyhow::{Result, bail};
use dueq::{Batch, Retry, Settlement, in_batches};

use crate::support::{HOUR, LONG, messages, push_all, seen, setup, stats_until, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_batch_does_not_wait_for_the_linger_time() -> Result<()> {
    let setup = setup().await?;
    push_all(&setup.queue, messages(30)).await?;
    let (sender, mut seen) = seen();
    // The lease is so long that the test would exceed its limit if a batch waited for the linger
    // time, a third of it.
    let worker = setup.queue.worker().lease(LONG).spawn(in_batches(
        10,
        LONG / 3,
        move |batch: Batch<Vec<u8>>| {
            let _ = sender.send(batch.len());
            async {}
        },
    ))?;
    assert_eq!(seen.take(3).await?, [10, 10, 10]);
    stats_until(&setup.queue, "acked", |stats| stats.acked == 30).await?;
    Ok(worker.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_closed_after_the_linger_time() -> Result<()> {
    let setup = setup().await?;
    push_all(&setup.queue, messages(3)).await?;
    let (sender, mut seen) = seen();
    let linger = Duration::from_millis(50);
    let worker =
        setup
            .queue
            .worker()
            .spawn(in_batches(100, linger, move |batch: Batch<Vec<u8>>| {
                let _ = sender.send(batch.len());
                async {}
            }))?;
    assert_eq!(seen.take(1).await?, [3]);
    Ok(worker.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_closes_the_open_batch() -> Result<()> {
    let setup = setup().await?;
    push_all(&setup.queue, messages(3)).await?;
    let handler = in_batches(100, LONG / 3, |_: Batch<Vec<u8>>| async {});
    let worker = setup
        .queue
        .worker()
        .lease(LONG)
        .grace(HOUR)
        .spawn(handler)?;
    stats_until(&setup.queue, "leased", |stats| stats.leased == 3).await?;
    within("the shutdown", worker.shutdown()).await??;
    assert_eq!(setup.queue.stats().await?.acked, 3);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_delivery_of_a_batch_is_settled_on_its_own() -> Result<()> {
    let setup = setup().await?;
    push_all(&setup.queue, messages(4)).await?;
    let handler = |batch: Batch<Vec<u8>>| async move {
        assert_eq!(batch.lost().count(), 0);
        if batch.len() < 4 {
            bail!("the batch is not full");
        }
        // The last message gets no settlement, so it is retried.
        Ok(vec![
            Settlement::Ack,
            Settlement::bury("no"),
            Settlement::again(HOUR),
        ])
    };
    let worker = setup
        .queue
        .worker()
        .lease(LONG)
        .retry(Retry::fixed(HOUR))
        .spawn(in_batches(4, LONG / 3, handler))?;
    let settled = |stats: &dueq::QueueStats| stats.leased == 0 && stats.claimed == 4;
    let stats = stats_until(&setup.queue, "settled", settled).await?;
    assert_eq!((stats.acked, stats.dead, stats.retried), (1, 1, 1));
    assert_eq!((stats.repeated, stats.scheduled), (1, 2));
    Ok(worker.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_retries_each_delivery_of_the_batch() -> Result<()> {
    let setup = setup().await?;
    push_all(&setup.queue, messages(5)).await?;
    let handler = |batch: Batch<Vec<u8>>| {
        let is_first = batch.iter().any(|(_, delivery)| delivery.attempt() == 1);
        assert!(!is_first, "the first attempt");
        async {}
    };
    let worker = setup
        .queue
        .worker()
        .lease(LONG)
        .retry(Retry::fixed(Duration::ZERO))
        .spawn(in_batches(5, Duration::from_millis(5), handler))?;
    let stats = stats_until(&setup.queue, "acked", |stats| stats.acked == 5).await?;
    assert_eq!((stats.retried, stats.crashed), (5, 0));
    Ok(worker.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_lease_expired_is_handled_alone() -> Result<()> {
    let setup = setup().await?;
    push_all(&setup.queue, messages(2)).await?;
    setup.promote(2).await?;
    let crashed = setup.queue.claim(2, Duration::from_millis(1)).await?;
    assert_eq!(crashed.len(), 2);
    let (sender, mut seen) = seen();
    let handler = move |batch: Batch<Vec<u8>>| {
        let _ = sender.send(batch.len());
        async {}
    };
    // A batch that waited for further messages would exceed the limit of the test.
    let worker = setup.queue.worker().lease(LONG);
    let worker = worker.spawn(in_batches(9, LONG / 3, handler))?;
    assert_eq!(seen.take(2).await?, [1, 1]);
    stats_until(&setup.queue, "acked", |stats| stats.acked == 2).await?;
    Ok(worker.shutdown().await?)
}

/// Each message that a worker holds is charged with a crash if another one crashes the worker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_claims_few_messages_that_are_handled_alone() -> Result<()> {
    let setup = setup().await?;
    push_all(&setup.queue, messages(20)).await?;
    setup.promote(20).await?;
    let crashed = setup.queue.claim(20, Duration::from_millis(1)).await?;
    assert_eq!(crashed.len(), 20);
    let (sender, mut seen) = seen();
    let handler = move |batch: Batch<Vec<u8>>| {
        let _ = sender.send(batch.len());
        std::future::pending::<()>()
    };
    let worker = setup.queue.worker().lease(LONG).concurrency(2);
    let worker = worker.spawn(in_batches(10, Duration::ZERO, handler))?;
    assert_eq!(seen.take(2).await?, [1, 1]);
    let stats = setup.queue.stats().await?;
    assert_eq!((stats.leased, stats.ready + stats.scheduled), (2, 18));
    worker.abort();
    Ok(worker.wait().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_batch_ends_with_its_stop() -> Result<()> {
    let setup = setup().await?;
    setup.queue.push("").await?;
    let (sender, mut seen) = seen();
    let handler = move |batch: Batch<Vec<u8>>| {
        let _ = sender.send(batch.len());
        async {}
    };
    let handled = async { seen.take(1).await };
    let run = setup
        .queue
        .worker()
        .run_batch(9, Duration::ZERO, handler, handled);
    within("the worker", run).await??;
    assert_eq!(setup.queue.stats().await?.acked, 1);
    Ok(())
}
