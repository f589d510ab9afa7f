//! Changes of the number of partitions whose process ended after one of the steps.

use std::pin::Pin;
use std::task::Poll;

use anyhow::Result;
use dueq::{Client, ErrorKind, MessageState, QueueLimits};

use super::live::polled;
use super::remap;
use crate::support::proxy::Proxy;
use crate::support::{HOUR, Setup, ids, messages, push_all, setup};

const REMAP: &str = include_str!("../../../lua/dist/remap.lua");

/// Checks that the queue takes messages and returns them, and has this many partitions.
async fn serves(setup: &Setup, partitions: usize) -> Result<()> {
    assert_eq!(setup.queue.partitions().await?.len(), partitions);
    let fresh = Client::connect(&setup.server.url())
        .await?
        .queue(setup.queue.name())?;
    for queue in [&setup.queue, &fresh] {
        for receipt in queue.push_many(messages(60)).await {
            assert!(receipt?.is_created());
        }
        for id in ids(60) {
            assert!(queue.get(&id).await?.is_some(), "{id}");
        }
        assert_eq!(queue.purge(MessageState::Scheduled).await?, 60);
        // The queue is deleted because it would remember purged ids; the next round pushes the same
        // ids.
        queue.delete().await?;
        queue.partition_into(partitions).await?;
    }
    Ok(())
}

/// Runs these futures at the same time, because each waits until calls are forgotten.
pub(super) async fn all_of(
    mut futures: Vec<impl Future<Output = Result<()>> + Unpin>,
) -> Result<()> {
    std::future::poll_fn(move |context| {
        let mut failed = None;
        futures.retain_mut(|future| match Pin::new(future).poll(context) {
            Poll::Pending => true,
            Poll::Ready(result) => {
                failed = failed.take().or(result.err());
                false
            }
        });
        match failed {
            Some(error) => Poll::Ready(Err(error)),
            None if futures.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_change_of_partitions_is_completed() -> Result<()> {
    let changing = "7|-|- 5 9";
    let settled = "8|- 5 9|- 5 9";
    let steps: [(&str, &[&str]); 5] = [
        ("-", &["change", "0", changing]),
        ("5", &["forward", changing]),
        ("9", &["forward", changing]),
        ("-", &["close", "7", settled]),
        ("5", &["forward", settled]),
    ];
    let completed = async |done: usize| {
        let setup = setup().await?;
        for (tag, args) in &steps[..done] {
            assert_eq!(remap(&setup, tag, args).await?, "DONE");
        }
        setup.queue.partition_into(3).await?;
        serves(&setup, 3).await
    };
    all_of((1..=5).map(|done| Box::pin(completed(done))).collect()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_change_to_one_partition_is_completed() -> Result<()> {
    let changing = "8|- 5 9|-";
    let steps: [(&str, &[&str]); 6] = [
        ("-", &["change", "7", changing]),
        ("5", &["change", "7", changing]),
        ("9", &["change", "7", changing]),
        ("5", &["remove", "8"]),
        ("9", &["remove", "8"]),
        ("-", &["close", "8", "9|-|-"]),
    ];
    let completed = async |done: usize| {
        let setup = setup().await?;
        for tag in ["-", "5", "9"] {
            remap(&setup, tag, &["forward", "7|- 5 9|- 5 9"]).await?;
        }
        for (tag, args) in &steps[..done] {
            assert_eq!(remap(&setup, tag, args).await?, "DONE");
        }
        setup.queue.partition_into(1).await?;
        let left: Vec<String> = setup.command(&["KEYS", "dueq:{*/*"]).await?;
        assert_eq!(left, [] as [String; 0]);
        serves(&setup, 1).await
    };
    all_of((1..=6).map(|done| Box::pin(completed(done))).collect()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_are_right_wherever_a_change_was_interrupted() -> Result<()> {
    let setup = setup().await?;
    let changed = async |polls: u32| {
        let queue = setup.client.queue(&format!("orders-{polls}"))?;
        queue.partition_into(2).await?;
        let limits = QueueLimits::new().max_messages(Some(300)).max_leased(12);
        queue.configure(limits.keep_dead(50)).await?;
        queue.push("").id("a").delay(HOUR).await?;
        polled(queue.partition_into(3).into_future(), polls).await;
        queue.partition_into(3).await?;
        let stats = queue.stats().await?;
        let limits = (stats.max_messages, stats.max_leased, stats.keep_dead);
        assert_eq!(limits, (300, 12, 51), "{polls} polls");
        Ok(())
    };
    all_of((1..40).map(|polls| Box::pin(changed(polls))).collect()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_change_is_completed_or_taken_back() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.push("").id("a").delay(HOUR).await?;
    remap(&setup, "-", &["close", "0", "7|-|- 5 9"]).await?;
    // Producers go on, and make the new partitions.
    push_all(queue, messages(60)).await?;
    let error = queue.partition_into(2).await.expect_err("a change to 3");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let remedy = format!("dueq partitions {} 3", queue.name());
    assert!(error.to_string().contains(&remedy), "{error}");
    queue.abort_repartition().await?;
    assert_eq!(queue.partitions().await?.len(), 1);
    assert_eq!(queue.stats().await?.scheduled, 61);
    queue.partition_into(3).await?;
    assert_eq!(queue.stats().await?.scheduled, 61);
    // The next deletion completes one that was interrupted.
    let home = format!("{}:meta", super::base(&setup, "-"));
    let epoch: String = setup.command(&["HGET", &home, "epoch"]).await?;
    let map: String = setup.command(&["HGET", &home, "map"]).await?;
    let tags = map.rsplit('|').next().unwrap_or_default();
    let deleting = format!("{}|{tags}|", epoch.parse::<u64>()? + 1);
    remap(&setup, "-", &["close", &epoch, &deleting]).await?;
    for change in [queue.partition_into(3), queue.abort_repartition()] {
        let error = change.await.expect_err("a deletion");
        assert!(error.to_string().contains("being deleted"), "{error}");
    }
    assert!(queue.delete().await?);
    queue.partition_into(3).await?;
    serves(&setup, 3).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_concurrent_repartitions_leave_one_usable_map() -> Result<()> {
    for round in 0..5 {
        let setup = setup().await?;
        let name = setup.queue.name();
        let operator = async |count: usize| {
            let client = Client::connect(&setup.server.url()).await?;
            client.queue(name)?.partition_into(count).await
        };
        let (three, five) = tokio::join!(operator(3), operator(5));
        for result in [&three, &five] {
            let Err(error) = result else { continue };
            assert_eq!(
                error.kind(),
                ErrorKind::Unavailable,
                "round {round}: {error}"
            );
        }
        assert!(
            three.is_ok() || five.is_ok(),
            "round {round}: {three:?} {five:?}"
        );
        // The operator whose change lost the race repeats its call.
        setup.queue.partition_into(4).await?;
        serves(&setup, 4).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_partitions_is_repeated_after_a_lost_reply() -> Result<()> {
    let setup = setup().await?;
    setup.command::<String>(&["SCRIPT", "LOAD", REMAP]).await?;
    let proxy = Proxy::start(setup.server.port()).await?;
    let queue = Client::connect(&proxy.url())
        .await?
        .queue(setup.queue.name())?;
    for (cuts, count) in [(1, 3), (2, 1)] {
        proxy.cut_reply_of(REMAP);
        queue.partition_into(count).await?;
        assert_eq!(proxy.cuts(), cuts);
        assert_eq!(setup.queue.partitions().await?.len(), count);
    }
    serves(&setup, 1).await
}
