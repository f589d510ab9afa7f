//! A store that was emptied, or whose keys another program has taken.

use std::time::Duration;

use anyhow::Result;
use dueq::outcomes::{PushOutcome, SettleOutcome};
use dueq::{Applied, Client, ErrorKind, Message};
use dueq_testkit::Server;

use crate::support::{HOUR, acking, ids, push_and_claim, setup, stats_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_continues_in_a_new_queue_after_a_flush() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let (worker, mut seen) = acking(queue.worker());
    for round in 0..5 {
        for delay in [0, 30, 1_100] {
            let id = format!("{round} {delay}");
            queue
                .push("")
                .id(&id)
                .due(Duration::from_millis(delay))
                .await?;
            assert_eq!(seen.next().await?, id);
        }
        queue.push("").id("lost").due(HOUR).await?;
        setup.command::<()>(&["FLUSHALL"]).await?;
        assert_eq!(queue.get("lost").await?, None);
    }
    // The worker joins the new queue: it sends a beat there.
    queue.push("").id("last").await?;
    assert_eq!(seen.next().await?, "last");
    stats_until(queue, "a live worker", |stats| stats.nodes == 1).await?;
    worker.stop().await
}

#[tokio::test]
async fn settling_a_delivery_of_an_emptied_store_returns_gone() -> Result<()> {
    let setup = setup().await?;
    let delivery = push_and_claim(&setup.queue, Message::new("").id("id")).await?;
    setup.command::<()>(&["FLUSHALL"]).await?;
    assert_eq!(delivery.ack().await?, SettleOutcome::Gone);
    // The old delivery has no effect on a new message with the same id.
    let other = push_and_claim(&setup.queue, Message::new("").id("id")).await?;
    assert_eq!(delivery.ack().await?, SettleOutcome::Lost);
    assert_eq!(other.ack().await?, SettleOutcome::Done);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_with_a_foreign_key_fails_alone_and_is_unchanged() -> Result<()> {
    let setup = setup().await?;
    setup
        .command::<()>(&["SET", "dueq:{orders}:messages", "value of another program"])
        .await?;
    let error = setup.queue.push("").id("id").await.expect_err("not ours");
    assert_eq!(
        (error.kind(), error.was_applied()),
        (ErrorKind::Server, dueq::Applied::No),
        "{error}"
    );
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    assert_eq!(
        setup.command::<Vec<String>>(&["KEYS", "*"]).await?,
        ["dueq:{orders}:messages"]
    );
    // Another queue of the same client still works.
    let other = setup.client.queue("other")?;
    let (worker, mut seen) = acking(other.worker());
    for id in ids(3) {
        other.push("").id(id).await?;
    }
    let mut handled = seen.take(3).await?;
    handled.sort_unstable();
    assert_eq!(handled, ids(3));
    worker.stop().await
}

#[tokio::test]
async fn a_queue_of_a_newer_layout_is_refused_and_unchanged() -> Result<()> {
    let setup = setup().await?;
    setup.queue.push("").due(HOUR).await?;
    setup
        .command::<()>(&["HSET", "dueq:{orders}:meta", "layout", "99"])
        .await?;
    let error = setup.queue.push("").await.expect_err("newer");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("layout 99"), "{error}");
    let worker = setup
        .queue
        .worker()
        .run(|_: dueq::Delivery| async {}, std::future::pending::<()>());
    let error = crate::support::within("the refusal", worker)
        .await?
        .expect_err("newer");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert_eq!(
        setup
            .command::<u64>(&["ZCARD", "dueq:{orders}:scheduled"])
            .await?,
        2,
        "one, and the sentinel"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_server_rejects_pushes_until_it_is_drained() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    for number in 0..40 {
        queue
            .push(vec![b'x'; 50_000])
            .id(format!("{number}"))
            .await?;
    }
    let mut redis = setup.redis().await?;
    crate::support::command::<()>(&mut redis, &["CONFIG", "SET", "maxmemory", "1mb"]).await?;

    let refusals = queue
        .push_many((0..10).map(|n| Message::new("").id(format!("refused {n}")).due(HOUR)))
        .await;
    for refused in refusals {
        let error = refused.expect_err("full");
        assert_eq!(
            (error.kind(), error.was_applied()),
            (ErrorKind::Full, Applied::No),
            "{error}"
        );
        assert!(
            error.is_retryable() && error.to_string().contains("maxmemory"),
            "{error}"
        );
    }
    let error = queue.reschedule("1", HOUR).await.expect_err("full");
    assert_eq!(
        (error.kind(), error.was_applied()),
        (ErrorKind::Full, Applied::No),
        "{error}"
    );
    assert_eq!(queue.get("refused 0").await?, None);

    let (worker, mut seen) = acking(queue.worker());
    seen.take(40).await?;
    stats_until(queue, "all acked", |stats| stats.acked == 40).await?;
    worker.stop().await?;
    let stats = queue.stats().await?;
    assert_eq!((stats.pushed, stats.scheduled, stats.leased), (40, 0, 0));

    // The base memory of a server leaves no room within 1 MB.
    crate::support::command::<()>(&mut redis, &["CONFIG", "SET", "maxmemory", "20mb"]).await?;
    assert_eq!(queue.push("").id("refused 0").await?, PushOutcome::Created);
    Ok(())
}

#[tokio::test]
async fn a_server_that_evicts_is_refused_naming_the_setting() -> Result<()> {
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random"] {
        let server = Server::start(&["--maxmemory-policy", policy])?;
        let error = Client::connect(&server.url()).await.expect_err("it evicts");
        assert_eq!(
            (error.kind(), error.was_applied()),
            (ErrorKind::Unsupported, Applied::No)
        );
        let text = error.to_string();
        assert!(
            text.contains(policy) && text.contains("CONFIG SET maxmemory-policy noeviction"),
            "{text}"
        );
    }
    // These policies evict only keys with a time to live.
    for policy in ["noeviction", "volatile-lru", "volatile-ttl"] {
        let server = Server::start(&["--maxmemory-policy", policy])?;
        Client::connect(&server.url()).await?;
    }
    Ok(())
}
