//! Lost replies to pushes with a window, to pushes of next messages, and to acks with follow-ups.

use anyhow::{Result, ensure};
use dueq::outcomes::{AckPushOutcome, CancelOutcome, PushOutcome, SettleOutcome};
use dueq::{Due, Message, MessageState, OnConflict, QueueLimits};

use super::proxied::{CANCEL, PUSH, UPSERT, proxied};
use crate::support::{HOUR, claim_one, push_and_claim, setup};

const ACK_PUSH: &str = include_str!("../../../lua/dist/ack_push.lua");

/// The first try acted. The repetition finds the message gone, and pushes nothing twice.
#[tokio::test]
async fn ack_push_with_a_lost_reply_acts_once() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    setup
        .command::<String>(&["SCRIPT", "LOAD", ACK_PUSH])
        .await?;
    let delivery = push_and_claim(&queue, Message::new("").id("a")).await?;
    let before = setup.queue.stats().await?;
    for _ in 0..2 {
        proxy.cut_reply_of(ACK_PUSH);
    }
    let followed = delivery.ack_push([Message::new("next")]).await?;
    assert_eq!(followed, AckPushOutcome::Gone);
    assert_eq!(proxy.cuts(), 2);
    let after = setup.queue.stats().await?;
    let changed = (after.acked - before.acked, after.pushed - before.pushed);
    assert_eq!((changed, after.leased), ((1, 1), 0));
    assert!(setup.queue.get("{a}/1").await?.is_some());
    Ok(())
}

#[tokio::test]
async fn push_of_a_next_message_is_repeated_after_a_lost_reply() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    setup.queue.configure(QueueLimits::new().layout3()).await?;
    let next = |payload: &str| {
        let message = Message::new(payload).id("a");
        message.on_conflict(OnConflict::Next)
    };
    let delivery = push_and_claim(&queue, next("first")).await?;
    for _ in 0..2 {
        proxy.cut_reply_of(UPSERT);
    }
    let receipt = queue.push_message(next("second")).await?;
    assert_eq!(receipt.outcome(), PushOutcome::Next);
    assert_eq!(proxy.cuts(), 2);
    assert_eq!(delivery.ack().await?, SettleOutcome::Done);
    let delivery = claim_one(&queue).await?;
    assert_eq!(delivery.payload(), b"second");
    let _ = queue.push_message(next("third")).await?;
    proxy.cut_reply_of(CANCEL);
    assert_eq!(queue.cancel("a").await?, CancelOutcome::Leased);
    assert_eq!(proxy.cuts(), 3);
    assert_eq!(delivery.ack().await?, SettleOutcome::Done);
    assert_eq!(setup.queue.get("a").await?, None);
    Ok(())
}

/// A caller who repeats a push with a window learns that the id was taken, never a second `Created`.
#[tokio::test]
async fn push_with_a_window_is_stored_once() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    let before = setup.queue.stats().await?.pushed;
    let message = || Message::new("").id("a").window(HOUR);
    for _ in 0..2 {
        proxy.cut_reply_of(PUSH);
    }
    let receipt = queue.push_message(message()).await?;
    assert!(
        matches!(receipt.outcome(), PushOutcome::Exists(_)),
        "{receipt:?}"
    );
    assert_eq!(proxy.cuts(), 2);
    assert_eq!(claim_one(&queue).await?.ack().await?, SettleOutcome::Done);
    proxy.cut_reply_of(PUSH);
    let receipt = queue.push_message(message()).await?;
    assert!(
        matches!(receipt.outcome(), PushOutcome::Remembered(_)),
        "{receipt:?}"
    );
    assert_eq!(setup.queue.stats().await?.pushed, before + 1);
    Ok(())
}

fn rounds() -> u64 {
    std::env::var("DUEQ_ROUNDS")
        .ok()
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(1_000)
}

#[tokio::test]
async fn every_push_after_the_end_of_a_message_is_a_new_message() -> Result<()> {
    for end in ["cancel", "purge", "ack"] {
        let setup = setup().await?;
        let queue = &setup.queue;
        for round in 0..rounds() {
            let due = match end {
                "ack" => Due::from(std::time::Duration::ZERO),
                _ => HOUR.into(),
            };
            let payload = round.to_string();
            let pushed = queue.push(payload.clone()).id("order:42").due(due).await?;
            ensure!(
                pushed == PushOutcome::Created,
                "{end}, round {round}: {pushed:?}"
            );
            match end {
                "cancel" => assert_eq!(queue.cancel("order:42").await?, CancelOutcome::Cancelled),
                "purge" => assert_eq!(queue.purge(MessageState::Scheduled).await?, 1),
                _ => {
                    let delivery = claim_one(queue).await?;
                    assert_eq!(delivery.payload(), payload.as_bytes());
                    assert_eq!(delivery.ack().await?, SettleOutcome::Done);
                }
            }
        }
        assert_eq!(queue.stats().await?.pushed, rounds());
    }
    Ok(())
}

/// Two clients whose estimates of the server's time differ: one ends a message, the other pushes
/// its id at once.
#[tokio::test]
async fn a_push_after_another_clients_cancel_is_a_new_message() -> Result<()> {
    let setup = setup().await?;
    let other = dueq::Client::connect(&setup.server.url())
        .await?
        .queue("orders")?;
    for round in 0..rounds() {
        let (pusher, canceller) = if round % 2 == 0 {
            (&setup.queue, &other)
        } else {
            (&other, &setup.queue)
        };
        let pushed = pusher.push("").id("order:42").due(HOUR).await?;
        ensure!(pushed == PushOutcome::Created, "round {round}: {pushed:?}");
        assert_eq!(
            canceller.cancel("order:42").await?,
            CancelOutcome::Cancelled
        );
    }
    assert_eq!(setup.queue.stats().await?.pushed, rounds());
    Ok(())
}
