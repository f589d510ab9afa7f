//! A store is emptied, or another program has taken its keys.

use std::time::Duration;

use anyhow::Result;
use dueq::{ErrorKind, Message, Settled};

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
    // The worker joins the new queue: it beats there.
    queue.push("").id("last").await?;
    assert_eq!(seen.next().await?, "last");
    stats_until(queue, "a live worker", |stats| stats.nodes == 1).await?;
    worker.stop().await
}

#[tokio::test]
async fn a_delivery_of_an_emptied_store_is_gone() -> Result<()> {
    let setup = setup().await?;
    let delivery = push_and_claim(&setup.queue, Message::new("").id("id")).await?;
    setup.command::<()>(&["FLUSHALL"]).await?;
    assert_eq!(delivery.ack().await?, Settled::Gone);
    // The old delivery has no effect on a new message with the same id.
    let other = push_and_claim(&setup.queue, Message::new("").id("id")).await?;
    assert_eq!(delivery.ack().await?, Settled::Lost);
    assert_eq!(other.ack().await?, Settled::Done);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_with_a_key_of_another_type_fails_alone_and_unharmed() -> Result<()> {
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
async fn a_newer_layout_is_refused_and_left_alone() -> Result<()> {
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
