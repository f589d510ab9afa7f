//! Changes of the number of partitions whose process ended after one of the steps.

use anyhow::Result;
use dueq::{Client, ErrorKind, MessageState};

use super::remap;
use crate::support::proxy::Proxy;
use crate::support::{HOUR, Setup, ids, messages, setup};

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
    for done in 1..=steps.len() {
        let setup = setup().await?;
        for (tag, args) in &steps[..done] {
            assert_eq!(remap(&setup, tag, args).await?, "DONE");
        }
        setup.queue.partition_into(3).await?;
        serves(&setup, 3).await?;
    }
    Ok(())
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
    for done in 1..=steps.len() {
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
        serves(&setup, 1).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_are_right_after_an_interrupted_change_to_one() -> Result<()> {
    let changing = "8|- 5 9|-";
    let changes = ["-", "5", "9"].map(|tag| (tag, vec!["change", "7", changing]));
    let removals = ["5", "9"].map(|tag| (tag, vec!["remove", "8"]));
    for done in 1..=5 {
        let setup = setup().await?;
        for tag in ["-", "5", "9"] {
            remap(&setup, tag, &["forward", "7|- 5 9|- 5 9"]).await?;
            let meta = format!("{}:meta", super::base(&setup, tag));
            setup
                .command::<()>(&["HSET", &meta, "max_messages", "100"])
                .await?;
        }
        for (place, (tag, args)) in changes.iter().chain(&removals).take(done).enumerate() {
            if place == changes.len() {
                let meta = format!("{}:meta", super::base(&setup, "-"));
                setup
                    .command::<()>(&["HSET", &meta, "max_messages", "300"])
                    .await?;
            }
            assert_eq!(remap(&setup, tag, args).await?, "DONE");
        }
        setup.queue.partition_into(1).await?;
        assert_eq!(setup.queue.stats().await?.max_messages, 300, "{done}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_at_the_home_reverts_an_interrupted_change() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.push("").id("a").delay(HOUR).await?;
    // A failover has undone the change at the home, and a client has written the old map again.
    let changing = "7|-|- 5 9";
    for tag in ["5", "9", "-"] {
        remap(&setup, tag, &["forward", changing]).await?;
    }
    let error = queue.partition_into(3).await.expect_err("a message");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert_eq!(queue.partitions().await?.len(), 1);
    assert!(queue.get("a").await?.is_some());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_to_another_number_reverts_an_interrupted_one() -> Result<()> {
    let setup = setup().await?;
    remap(&setup, "-", &["change", "0", "7|-|- 5 9"]).await?;
    remap(&setup, "5", &["forward", "7|-|- 5 9"]).await?;
    setup.queue.partition_into(2).await?;
    serves(&setup, 2).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_elsewhere_reverts_an_interrupted_change() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    for tag in ["-", "5"] {
        remap(&setup, tag, &["forward", "7|- 5|- 5"]).await?;
    }
    let mut away = ids(50).into_iter();
    let away = loop {
        let id = away.next().expect("an id of the other partition");
        if queue.keys_of(&id).await?[0].contains("/5}") {
            break id;
        }
    };
    queue.push("").id(&away).delay(HOUR).await?;
    // The process ended after it had closed the home.
    remap(&setup, "-", &["change", "7", "8|- 5|- 6 7"]).await?;
    let error = queue.partition_into(3).await.expect_err("a message");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert_eq!(queue.partitions().await?.len(), 2);
    assert!(queue.get(&away).await?.is_some());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushes_during_an_interrupted_change_name_its_remedy() -> Result<()> {
    let setup = setup().await?;
    remap(&setup, "-", &["change", "0", "7|-|- 5 9"]).await?;
    let error = setup.queue.push("").id("a").await.expect_err("a change");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let remedy = format!("dueq partitions {} 3", setup.queue.name());
    assert!(error.to_string().contains(&remedy), "{error}");
    // The next deletion completes one that was interrupted.
    remap(&setup, "-", &["close", "7", "8|- 5 9|"]).await?;
    let error = setup.queue.partition_into(3).await.expect_err("a deletion");
    assert!(error.to_string().contains("being deleted"), "{error}");
    assert!(setup.queue.delete().await?);
    setup.queue.partition_into(3).await?;
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
    for (cuts, count) in [(1, 3), (2, 2), (3, 1)] {
        proxy.cut_reply_of(REMAP);
        queue.partition_into(count).await?;
        assert_eq!(proxy.cuts(), cuts);
        assert_eq!(setup.queue.partitions().await?.len(), count);
    }
    serves(&setup, 1).await
}
