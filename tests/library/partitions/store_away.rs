//! Clients and workers while a move to another store lacks its last step, or one store cannot be reached.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use dueq::admin::{Repartition, RepartitionPhase};
use dueq::{Client, Delivery, ErrorKind};
use tokio::sync::mpsc::unbounded_channel;

use super::remap;
use super::traffic::{due, group};
use crate::support::{HOUR, Running, Setup, push_all, setup, until, within};

const SECOND: Duration = Duration::from_secs(1);

/// Keeps what the home of a store has in meta, to restore it later: as if the last calls of a process
/// that died had not come.
async fn meta(setup: &Setup) -> Result<Vec<String>> {
    setup.command(&["HGETALL", "dueq:{orders}:meta"]).await
}

async fn restore(setup: &Setup, fields: &[String]) -> Result<()> {
    setup.command::<u64>(&["DEL", "dueq:{orders}:meta"]).await?;
    let words = ["HSET", "dueq:{orders}:meta"].into_iter();
    let words: Vec<&str> = words.chain(fields.iter().map(String::as_str)).collect();
    setup.command::<u64>(&words).await.map(drop)
}

/// Runs a change until it has begun to move, and returns what the home of `kept` has then.
async fn during(change: Repartition<'_>, kept: &Setup) -> Result<Vec<String>> {
    let (sender, mut phases) = unbounded_channel();
    let change = change.on_progress(move |now| _ = sender.send(now.phase));
    let seen = async {
        while phases.recv().await != Some(RepartitionPhase::Moving) {}
        meta(kept).await
    };
    let (seen, changed) = tokio::join!(seen, change.into_future());
    changed?;
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_follow_a_move_that_lacks_its_last_step() -> Result<()> {
    let (here, there) = (setup().await?, setup().await?);
    let ids = group("far", 300);
    push_all(&here.queue, due(&ids, |_| HOUR)).await?;
    let url = there.server.url();
    let before = during(here.queue.move_to(&url, Some(2)), &here).await?;
    restore(&here, &before).await?;
    let fresh =
        async || Ok::<_, dueq::Error>(Client::connect(&here.server.url()).await?.queue("orders")?);
    let (producer, operator) = (fresh().await?, fresh().await?);
    assert!(!producer.push("").id(&ids[0]).await?.is_created());
    assert!(producer.push("").id("new").delay(HOUR).await?.is_created());
    assert!(there.queue.get("new").await?.is_some());
    let error = operator
        .abort_repartition()
        .await
        .expect_err("all is there");
    assert!(
        error.to_string().contains("completes its last step"),
        "{error}"
    );
    operator.move_to(&url, None).await?;
    let map: String = here.command(&["HGET", "dueq:{orders}:meta", "map"]).await?;
    assert!(map.ends_with(&format!("|@-|@-|{url}")), "{map}");
    let ids: Vec<_> = ids.into_iter().collect();
    assert_eq!(
        fresh().await?.stats().await?.scheduled,
        ids.len() as u64 + 1
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_follow_a_move_back_that_lacks_its_last_step() -> Result<()> {
    let (here, there) = (setup().await?, setup().await?);
    let ids = group("far", 300);
    push_all(&here.queue, due(&ids, |_| HOUR)).await?;
    let url = there.server.url();
    let moving = here.queue.move_to(&url, Some(2)).into_future();
    assert!(tokio::time::timeout(SECOND, moving).await.is_err());
    let plan = async || {
        here.command::<String>(&["HGET", "dueq:{orders}:meta", "change"])
            .await
    };
    let back = here.queue.abort_repartition();
    let plan_of = until("the plan of the way back", plan, |plan| {
        !plan.contains("\"takes_back\":0")
    });
    let (before, plan) = tokio::join!(during(back, &there), plan_of);
    restore(&there, &before?).await?;
    let words = ["HSET", "dueq:{orders}:meta", "change", &plan?];
    here.command::<u64>(&words).await?;
    let fresh = Client::connect(&url).await?.queue("orders")?;
    assert!(!fresh.push("").id(&ids[0]).await?.is_created());
    assert!(fresh.push("").id("new").delay(HOUR).await?.is_created());
    assert!(here.queue.get("new").await?.is_some());
    here.queue.abort_repartition().await?;
    let map: String = there
        .command(&["HGET", "dueq:{orders}:meta", "map"])
        .await?;
    assert!(
        map.ends_with(&format!("|@-|@-|{}", here.server.url())),
        "{map}"
    );
    let left: Vec<String> = there.command(&["KEYS", "dueq:{*/*"]).await?;
    assert_eq!(left, [] as [String; 0]);
    let error = here.queue.abort_repartition().await.expect_err("nothing");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    Ok(())
}

/// Workers of a store need not reach the other one to serve their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_do_not_reach_the_other_store_serve_theirs() -> Result<()> {
    let (here, there) = (setup().await?, setup().await?);
    let ids = group("near", 60);
    push_all(&here.queue, due(&ids, |_| 7 * SECOND)).await?;
    for setup in [&here, &there] {
        setup
            .server
            .command(&["ACL", "SETUSER", "op", "on", ">secret", "~*", "&*", "+@all"])?;
    }
    let url = there.server.url();
    let with_user = here.server.url().replace("//", "//op:secret@");
    let operator = Client::connect(&with_user).await?.queue("orders")?;
    // Others than the operator have no access from here on.
    here.server
        .command(&["ACL", "SETUSER", "default", "resetpass"])?;
    let (sender, mut handled) = unbounded_channel();
    let worker = Running::start(there.queue.worker(), move |delivery: Delivery| {
        let _ = sender.send(delivery.id().into_owned());
        async {}
    });
    let mut moving = Box::pin(operator.move_to(&url, Some(5)).into_future());
    let all = async {
        let mut found = BTreeSet::new();
        while found.len() < ids.len() {
            found.extend(within("a message", handled.recv()).await?);
        }
        Ok::<_, anyhow::Error>(found)
    };
    tokio::select! {
        found = all => assert_eq!(found?, ids.iter().cloned().collect()),
        ended = &mut moving => panic!("{ended:?}"),
    }
    let error = there.queue.push("").await.expect_err("the other store");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains(&here.server.url()), "{error}");
    moving.await?;
    assert!(there.queue.push("").await?.is_created());
    worker.stop().await
}

/// The process that takes a move back dies after its first step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_go_on_if_a_way_back_has_only_begun() -> Result<()> {
    let (here, there) = (setup().await?, setup().await?);
    let ids = group("far", 300);
    push_all(&here.queue, due(&ids, |_| HOUR)).await?;
    let url = there.server.url();
    let moving = here.queue.move_to(&url, Some(2)).into_future();
    let is_empty = async {
        let key = "dueq:{orders}:messages";
        let left = async || here.command::<u64>(&["HLEN", key]).await;
        until("messages that have left", left, |left| *left == 1).await?;
        let moving = async || {
            here.command::<String>(&["HGET", "dueq:{orders}:meta", "moving"])
                .await
        };
        until("the end of the last batch", moving, String::is_empty).await
    };
    tokio::select! {
        empty = is_empty => drop(empty?),
        moved = moving => panic!("{moved:?}"),
    }
    let map: String = here.command(&["HGET", "dueq:{orders}:meta", "map"]).await?;
    let [epoch, old, new, url] = map.splitn(4, '|').collect::<Vec<_>>()[..] else {
        panic!("{map}");
    };
    let back = format!("{}|{new}|{old}|{url}", epoch.parse::<u64>()? + 1);
    assert_eq!(remap(&here, "-", &["close", epoch, &back]).await?, "DONE");
    for (n, queue) in [&here.queue, &there.queue].into_iter().enumerate() {
        for id in &ids[n * 20..n * 20 + 20] {
            assert!(!queue.push("").id(id).await?.is_created(), "{id}");
        }
        push_all(queue, due(&group(&format!("new-{n}"), 20), |_| HOUR)).await?;
        assert_eq!(queue.stats().await?.scheduled, 320 + 20 * n as u64);
    }
    Ok(())
}
