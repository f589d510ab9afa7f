//! Acks with follow-ups, and forwards to another queue.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::metrics::Counter;
use dueq::outcomes::{AckPushOutcome, PushOutcome, SettleOutcome};
use dueq::{
    Delivery, Due, ErrorKind, Message, MessageState, OnConflict, QueueLimits, Retry, Settlement,
};

use crate::support::{
    HOUR, Running, claim_one, push_and_claim, seen, setup, setup_with, stats_until, steal,
};

fn step(number: u32) -> Message {
    Message::new(number.to_string())
}

#[tokio::test]
async fn chain_of_five_steps_ignores_stale_tokens() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let mut delivery = push_and_claim(queue, step(1).id("order:42")).await?;
    for number in 2..=5 {
        let stale = delivery.clone();
        assert_eq!(delivery.release().await?, SettleOutcome::Done);
        delivery = claim_one(queue).await?;
        assert_eq!(
            stale.ack_push([step(99).id("stale")]).await?,
            AckPushOutcome::Lost
        );
        let AckPushOutcome::Done(receipts) = delivery.ack_push([step(number)]).await? else {
            anyhow::bail!("step {number} was not pushed");
        };
        let steps = "/1".repeat(number as usize - 1);
        assert_eq!(receipts[0].id(), format!("{{order:42}}{steps}"));
        assert_eq!(receipts[0].outcome(), PushOutcome::Created);
        assert_eq!(
            stale.ack_push([step(99).id("stale")]).await?,
            AckPushOutcome::Gone
        );
        delivery = claim_one(queue).await?;
        assert_eq!(delivery.payload(), number.to_string().as_bytes());
    }
    // The last step pushes no follow-up.
    assert_eq!(
        delivery.ack_push([]).await?,
        AckPushOutcome::Done(Vec::new())
    );
    let stats = queue.stats().await?;
    assert_eq!((stats.pushed, stats.acked), (5, 5));
    assert_eq!((stats.scheduled, stats.ready, stats.leased), (0, 0, 0));
    assert_eq!(queue.metrics().count(Counter::Acked), 5);
    assert_eq!(queue.metrics().count(Counter::PushCreated), 5);
    Ok(())
}

#[tokio::test]
async fn follow_ups_have_due_times_and_keep_existing_messages() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.push("there before").id("there").delay(HOUR).await?;
    let delivery = push_and_claim(queue, Message::new("").id("a")).await?;
    let moment = 4_000_000_000_000;
    let messages = [
        Message::new("soon").due(Due::at_ms(moment)).max_attempts(3),
        Message::new("new").id("there"),
    ];
    let AckPushOutcome::Done(receipts) = delivery.ack_push(messages).await? else {
        anyhow::bail!("not acked");
    };
    assert_eq!(receipts[0].due_ms(), Some(moment));
    assert_eq!(
        receipts[1].outcome(),
        PushOutcome::Exists(MessageState::Scheduled)
    );
    let first = queue.get("{a}/1").await?.context("stored")?;
    assert_eq!((first.time_ms, first.max_attempts), (moment, Some(3)));
    let there = queue.get("there").await?.context("stored")?;
    assert_eq!(there.payload, b"there before");
    Ok(())
}

#[tokio::test]
async fn refused_follow_ups_leave_the_delivery_leased() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue
        .configure(
            QueueLimits::new()
                .max_messages(Some(2))
                .max_payload_bytes(100),
        )
        .await?;
    let delivery = push_and_claim(queue, Message::new("").id("a")).await?;
    let conflict = step(2).on_conflict(OnConflict::Replace);
    let long = "x".repeat(199);
    for (messages, kind, words) in [
        (
            vec![step(2); 101],
            ErrorKind::InvalidInput,
            ["101 messages", "at most 100"],
        ),
        (
            vec![step(2), conflict],
            ErrorKind::InvalidInput,
            ["message 2 of 2", "on_conflict"],
        ),
        (
            vec![step(2).id("a")],
            ErrorKind::InvalidInput,
            ["message 1 of 1", "another id"],
        ),
        (
            vec![step(2).id("")],
            ErrorKind::InvalidInput,
            ["message 1 of 1", "it is empty"],
        ),
        (
            vec![step(2), Message::new("x".repeat(101))],
            ErrorKind::InvalidInput,
            ["message 2 of 2", "101 bytes"],
        ),
        (
            vec![step(2); 3],
            ErrorKind::Full,
            ["message 3 of 3", "max-messages"],
        ),
    ] {
        let error = delivery.ack_push(messages).await.expect_err(words[0]);
        assert_eq!(
            (error.kind(), error.was_applied()),
            (kind, dueq::Applied::No),
            "{error}"
        );
        for word in words {
            assert!(error.to_string().contains(word), "{error}");
        }
    }
    let stats = queue.stats().await?;
    assert_eq!((stats.leased, stats.scheduled, stats.pushed), (1, 0, 1));
    // The ack frees the place of its delivery, so that two follow-ups fit.
    let AckPushOutcome::Done(receipts) = delivery
        .ack_push([step(2).due(HOUR), step(3).due(HOUR)])
        .await?
    else {
        anyhow::bail!("not acked");
    };
    assert_eq!(receipts.len(), 2);
    queue
        .configure(QueueLimits::new().max_messages(None))
        .await?;
    let delivery = push_and_claim(queue, Message::new("").id(&long)).await;
    let error = delivery?
        .ack_push([step(2)])
        .await
        .expect_err("201 bytes and more");
    assert!(error.to_string().contains("it is too long"), "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_push_follow_ups_and_retry_if_one_is_refused() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.partition_into(3).await?;
    let (sender, mut steps) = seen();
    let handler = move |delivery: Delivery| {
        let _ = sender.send(delivery.id().into_owned());
        let number: u32 = String::from_utf8_lossy(delivery.payload())
            .parse()
            .unwrap_or(0);
        async move {
            match number {
                0 => Settlement::ack_and(vec![Message::new("1").id("elsewhere"); 7]),
                5 => Settlement::ack_and(Vec::new()),
                _ => Settlement::ack_and(vec![step(number + 1)]),
            }
        }
    };
    let worker = Running::start(queue.worker().retry(Retry::fixed(HOUR)), handler);
    for order in 0..8 {
        queue.push("1").id(format!("order:{order}")).await?;
    }
    for _ in 0..40 {
        steps.next().await?;
    }
    let acked = |stats: &dueq::QueueStats| stats.acked == 40;
    stats_until(queue, "the chains", acked).await?;
    // Some of these ids belong to another partition than "elsewhere".
    for id in ["a", "b", "c", "d", "e", "f"] {
        queue.push("0").id(id).await?;
    }
    let refused = |stats: &dueq::QueueStats| stats.retried > 0;
    stats_until(queue, "a retry", refused).await?;
    let mut errors = Vec::new();
    for id in ["a", "b", "c", "d", "e", "f"] {
        errors.extend(queue.get(id).await?.map(|stored| stored.error));
    }
    let of_route = |error: &String| error.contains("belongs to partition");
    assert!(errors.iter().any(of_route), "{errors:?}");
    worker.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_memory_turns_follow_ups_into_a_retry() -> Result<()> {
    let setup = setup_with(&["--maxmemory-policy", "noeviction"]).await?;
    let queue = &setup.queue;
    let delivery = push_and_claim(queue, Message::new("").id("a")).await?;
    setup
        .command::<()>(&["CONFIG", "SET", "maxmemory", "1"])
        .await?;
    let error = delivery.ack_push([step(2)]).await.expect_err("no memory");
    assert_eq!(
        (error.kind(), error.was_applied()),
        (ErrorKind::Full, dueq::Applied::No),
        "{error}"
    );
    assert_eq!(delivery.release().await?, SettleOutcome::Done);
    let handler = |_| async { Settlement::ack_and(vec![step(2)]) };
    let worker = Running::start(queue.worker().retry(Retry::fixed(HOUR)), handler);
    let retried = |stats: &dueq::QueueStats| stats.retried == 1;
    stats_until(queue, "the retry", retried).await?;
    setup
        .command::<()>(&["CONFIG", "SET", "maxmemory", "0"])
        .await?;
    worker.stop().await
}

#[tokio::test]
async fn second_forward_to_one_id_stores_nothing() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let invoices = setup.client.queue("invoices")?;
    let first = push_and_claim(queue, Message::new("").id("order:42")).await?;
    // The first execution of the handler forwards the message, but ends before its ack.
    steal(&setup, &first).await?;
    let (receipt, settled) = invoices.forward(&first, Message::new("42")).await?;
    assert_eq!(
        (receipt.id(), settled),
        ("orders/order:42".into(), SettleOutcome::Lost)
    );
    assert!(receipt.is_created());
    let forwarded = claim_one(&invoices).await?;
    assert_eq!(forwarded.ack().await?, SettleOutcome::Done);
    let second = push_and_claim(queue, Message::new("").id("order:43")).await?;
    let same = || Message::new("42").id("orders/order:42");
    let (receipt, settled) = invoices.forward(&second, same()).await?;
    assert!(
        matches!(receipt.outcome(), PushOutcome::Remembered(_)),
        "{receipt:?}"
    );
    assert_eq!(settled, SettleOutcome::Done);
    assert_eq!(invoices.stats().await?.pushed, 1);
    let third = push_and_claim(queue, Message::new("").id("order:44")).await?;
    let error = invoices.forward(&third, same().max_attempts(0)).await;
    assert_eq!(
        error.expect_err("0 attempts").kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(
        third.ack().await?,
        SettleOutcome::Done,
        "it was still leased"
    );
    let own_window = Message::new("").id("own").window(Duration::from_millis(1));
    let fourth = push_and_claim(queue, Message::new("").id("order:45")).await?;
    let _ = invoices.forward(&fourth, own_window).await?;
    let stored = invoices.get("own").await?.context("stored")?;
    assert_eq!(stored.window_ms, Some(1));
    Ok(())
}

#[tokio::test]
async fn a_hundred_follow_ups_fit_one_ack() -> Result<()> {
    let setup = setup().await?;
    let delivery = push_and_claim(&setup.queue, Message::new("").id("a")).await?;
    let AckPushOutcome::Done(receipts) = delivery.ack_push(vec![step(2); 100]).await? else {
        anyhow::bail!("not acked");
    };
    assert_eq!(receipts[99].id(), "{a}/100");
    assert_eq!(setup.queue.stats().await?.pushed, 101);
    Ok(())
}
