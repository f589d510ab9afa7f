//! Settlements by handle, from another client.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::claims::{DeliveryHandle, RemoteDelivery};
use dueq::outcomes::{
    AckPushOutcome, ExtendOutcome, RetryOutcome, SettleOutcome, SnoozeOutcome, ThrottleOutcome,
};
use dueq::{Client, Delivery, Due, Message, Queue, QueueStats};

use super::{MS, pull_one};
use crate::support::{HOUR, LONG, Setup, push_and_claim, seen, setup, steal};

/// The delivery of this handle in another process, which knows only the text of the handle.
async fn elsewhere(setup: &Setup, handle: &DeliveryHandle) -> Result<RemoteDelivery> {
    let queue = Client::connect(&setup.server.url())
        .await?
        .queue("orders")?;
    Ok(queue.delivery(handle.to_string().parse()?))
}

async fn handle(queue: &Queue) -> Result<DeliveryHandle> {
    let message = Message::new("payload").id("id");
    Ok(push_and_claim(queue, message).await?.into_handle())
}

#[tokio::test]
async fn another_client_settles_by_handle() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let remote = elsewhere(&setup, &handle(queue).await?).await?;
    assert!(matches!(
        remote.extend(2 * LONG).await?,
        ExtendOutcome::Until(_)
    ));
    assert_eq!(remote.ack().await?, SettleOutcome::Done);
    assert_eq!(remote.ack().await?, SettleOutcome::Gone);

    let remote = elsewhere(&setup, &handle(queue).await?).await?;
    let retried = remote.retry(HOUR, "the bank is closed").await?;
    assert!(matches!(retried, RetryOutcome::Scheduled(_)), "{retried:?}");
    let stored = queue.get("id").await?.context("the message")?;
    assert_eq!((stored.failures, &*stored.error), (1, "the bank is closed"));
    let _ = queue.cancel("id").await?;

    let remote = elsewhere(&setup, &handle(queue).await?).await?;
    assert_eq!(remote.release().await?, SettleOutcome::Done);
    assert_eq!(
        queue.get("id").await?.map(|stored| stored.failures),
        Some(0)
    );
    let _ = queue.cancel("id").await?;

    let remote = elsewhere(&setup, &handle(queue).await?).await?;
    assert_eq!(remote.again(HOUR).await?, SettleOutcome::Done);
    let _ = queue.cancel("id").await?;

    let remote = elsewhere(&setup, &handle(queue).await?).await?;
    assert!(matches!(
        remote.snooze(HOUR).await?,
        SnoozeOutcome::Scheduled(_)
    ));
    assert_eq!(queue.get("id").await?.map(|stored| stored.snoozes), Some(1));
    let _ = queue.cancel("id").await?;

    let remote = elsewhere(&setup, &handle(queue).await?).await?;
    let followed = remote.ack_push([Message::new("").due(HOUR)]).await?;
    assert!(matches!(followed, AckPushOutcome::Done(receipts) if receipts[0].id() == "{id}/1"));

    let remote = elsewhere(&setup, &handle(queue).await?).await?;
    assert_eq!(remote.bury("no such order").await?, SettleOutcome::Done);
    let _ = queue.cancel_dead("id").await?;

    let remote = elsewhere(&setup, &handle(queue).await?).await?;
    assert!(matches!(
        remote.throttle(HOUR).await?,
        ThrottleOutcome::Until(_)
    ));
    assert!(queue.stats().await?.closed_ms > 0);
    Ok(())
}

#[tokio::test]
async fn a_retry_by_handle_accepts_a_fixed_due_time() -> Result<()> {
    let setup = setup().await?;
    let handle = handle(&setup.queue).await?;
    let at_ms = setup.client.server_time().await?.unix_us / 1_000 + 3_600_000;
    let remote = elsewhere(&setup, &handle).await?;
    let RetryOutcome::Scheduled(due_ms) = remote.retry(Due::at_ms(at_ms), "").await? else {
        anyhow::bail!("not scheduled");
    };
    assert!(
        (at_ms..at_ms + 60_000).contains(&due_ms),
        "{due_ms} for {at_ms}"
    );
    let too_late = remote
        .retry(Due::at_ms(u64::MAX), "")
        .await
        .expect_err("out of range");
    assert_eq!(too_late.kind(), dueq::ErrorKind::InvalidInput);
    Ok(())
}

/// Checks that no settlement acts. The outcome of each, by its debug output, is one of `words`.
async fn is_refused(remote: &RemoteDelivery, words: &[&str]) -> Result<()> {
    let outcomes = [
        format!("{:?}", remote.ack().await?),
        format!("{:?}", remote.again(HOUR).await?),
        format!("{:?}", remote.retry(HOUR, "").await?),
        format!("{:?}", remote.release().await?),
        format!("{:?}", remote.bury("").await?),
        format!("{:?}", remote.snooze(HOUR).await?),
        format!("{:?}", remote.throttle(HOUR).await?),
        format!("{:?}", remote.extend(HOUR).await?),
        format!("{:?}", remote.ack_push([Message::new("")]).await?),
    ];
    for outcome in outcomes {
        assert!(words.contains(&&*outcome), "{outcome}, not {words:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_handle_of_a_lost_lease_is_refused() -> Result<()> {
    let setup = setup().await?;
    let delivery = push_and_claim(&setup.queue, Message::new("").id("id")).await?;
    let handle = delivery.handle();
    let stolen = steal(&setup, &delivery).await?;
    is_refused(&elsewhere(&setup, &handle).await?, &["Lost"]).await?;
    let claim: String = setup
        .command(&["HGET", "dueq:{orders}:claims", "id"])
        .await?;
    assert_eq!(claim, stolen, "the new consumer has it still");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_of_an_expired_lease_is_refused() -> Result<()> {
    let setup = setup().await?;
    let puller = setup.queue.puller();
    setup.queue.push("").id("id").await?;
    let pulled = puller.pull(1, MS, crate::support::LIMIT).await?;
    let lapsed = pulled
        .into_iter()
        .next()
        .context("a message")?
        .into_handle();
    // The node reaps the lease, and the next pull gets the message.
    let delivery = pull_one(&puller).await?;
    assert_eq!((&*delivery.id(), delivery.attempt()), ("id", 2));
    is_refused(&elsewhere(&setup, &lapsed).await?, &["Lost"]).await?;
    assert_eq!(delivery.ack().await?, SettleOutcome::Done);
    is_refused(&elsewhere(&setup, &lapsed).await?, &["Gone"]).await?;
    Ok(puller.shutdown().await?)
}

#[tokio::test]
async fn forged_handles_change_nothing() -> Result<()> {
    let setup = setup().await?;
    let first = push_and_claim(&setup.queue, Message::new("").id("first")).await?;
    let second = push_and_claim(&setup.queue, Message::new("").id("second")).await?;
    let state = |stats: QueueStats| (stats.leased, stats.scheduled, stats.dead, stats.closed_ms);
    let before = state(setup.queue.stats().await?);
    let parts = |delivery: &Delivery| {
        let text = delivery.handle().to_string();
        let parts: Vec<_> = text.split('.').map(str::to_owned).collect();
        (parts[0].clone(), parts[1].clone(), parts[2].clone())
    };
    let ((head, token, id), (_, _, other_id)) = (parts(&first), parts(&second));
    for (text, outcome) in [
        // Handles of another message, with a token of no claim, of no message, and of no partition.
        (format!("{head}.{token}.{other_id}"), "Lost"),
        (format!("{head}.{}.{id}", "00".repeat(16)), "Lost"),
        (format!("{head}.{token}.616273656e74"), "Gone"),
        (format!("a999999999.{}.{id}", "00".repeat(16)), "Lost"),
    ] {
        let remote = setup.queue.delivery(text.parse()?);
        is_refused(&remote, &[outcome]).await?;
    }
    assert_eq!(state(setup.queue.stats().await?), before);
    for text in [
        "",
        "a",
        "id",
        "a-.zz.6964",
        &format!("{head}.{token}.00"),
        "'; DROP",
        &"0".repeat(1_000),
        "a-.\u{0}.\n",
    ] {
        assert!(text.parse::<DeliveryHandle>().is_err(), "{text:?}");
    }
    assert_eq!(first.ack().await?, SettleOutcome::Done);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_does_not_settle_a_detached_delivery() -> Result<()> {
    let setup = setup().await?;
    let (sender, mut handles) = seen();
    let worker = setup
        .queue
        .worker()
        .lease(LONG)
        .spawn(move |delivery: Delivery| {
            let _ = sender.send(delivery.into_handle());
            async { Err::<(), _>("ignored") }
        })?;
    setup.queue.push("").id("id").await?;
    let handle = handles.next().await?;
    worker.shutdown().await?;
    let stats = setup.queue.stats().await?;
    assert_eq!((stats.leased, stats.retried, stats.acked), (1, 0, 0));
    assert_eq!(
        elsewhere(&setup, &handle).await?.ack().await?,
        SettleOutcome::Done
    );
    Ok(())
}

#[tokio::test]
async fn a_dropped_delivery_stays_leased() -> Result<()> {
    let setup = setup().await?;
    let handle = handle(&setup.queue).await?;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(setup.queue.stats().await?.leased, 1);
    assert_eq!(
        elsewhere(&setup, &handle).await?.ack().await?,
        SettleOutcome::Done
    );
    Ok(())
}
