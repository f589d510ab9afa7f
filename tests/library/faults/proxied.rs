//! Lost replies to pushes: the server made the call, and the client did not get the reply.

use std::time::Duration;

use anyhow::Result;
use dueq::outcomes::PushOutcome;
use dueq::{Applied, Client, ErrorKind, Message, MessageState, OnConflict, Queue, QueueLimits};

use crate::support::proxy::Proxy;
use crate::support::{HOUR, Running, Setup, claim_one, push_and_claim, setup, stats_until, within};

pub(super) const UPSERT: &str = include_str!("../../../lua/dist/upsert.lua");
pub(super) const PUSH: &str = include_str!("../../../lua/dist/push.lua");
pub(super) const ACK: &str = include_str!("../../../lua/dist/ack.lua");
pub(super) const ACK_PUSH: &str = include_str!("../../../lua/dist/ack_push.lua");
pub(super) const CANCEL: &str = include_str!("../../../lua/dist/cancel.lua");
pub(super) const CLAIM: &str = include_str!("../../../lua/dist/claim.lua");
pub(super) const RESCHEDULE: &str = include_str!("../../../lua/dist/reschedule.lua");
pub(super) const RETRY: &str = include_str!("../../../lua/dist/retry.lua");

/// A queue behind a proxy, and the same queue reached directly. The server has all scripts.
pub(super) async fn proxied() -> Result<(Setup, Proxy, Queue)> {
    let setup = setup().await?;
    let proxy = Proxy::start(setup.server.port()).await?;
    let queue = Client::connect(&proxy.url()).await?.queue("orders")?;
    let _ = push_and_claim(&queue, Message::new("").id("warm"))
        .await?
        .retry(Duration::ZERO, "")
        .await?;
    let _ = claim_one(&queue).await?.ack().await?;
    let _ = queue.cancel("warm").await?;
    let _ = queue.reschedule("warm", HOUR).await?;
    setup.command::<String>(&["SCRIPT", "LOAD", UPSERT]).await?;
    Ok((setup, proxy, queue))
}

#[tokio::test]
async fn push_with_a_lost_reply_is_repeated_and_stored_once() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    proxy.cut_reply_of(PUSH);
    assert_eq!(
        queue.push("a").id("id").due(HOUR).await?,
        PushOutcome::Exists(MessageState::Scheduled)
    );
    assert_eq!(proxy.cuts(), 1);
    let stats = setup.queue.stats().await?;
    assert_eq!((stats.scheduled, stats.pushed), (1, 2));
    Ok(())
}

/// The server may still execute the first try later, when the queue has room again.
#[tokio::test]
async fn full_after_a_lost_reply_is_reported_as_unknown() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    setup.queue.push("").id("other").due(HOUR).await?;
    setup
        .queue
        .configure(QueueLimits::new().max_messages(Some(1)))
        .await?;
    let error = queue.push("").id("id").await.expect_err("no room");
    assert_eq!(
        (error.kind(), error.was_applied()),
        (ErrorKind::Full, Applied::No),
        "{error}"
    );
    proxy.cut_reply_of(PUSH);
    let error = queue.push("").id("id").await.expect_err("no room");
    assert_eq!(proxy.cuts(), 1);
    assert_eq!(
        (error.kind(), error.was_applied()),
        (ErrorKind::Full, Applied::Unknown),
        "{error}"
    );
    Ok(())
}

/// The message is delivered and acked between the push and its repetition, which must not deliver
/// it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_push_of_an_acked_message_delivers_nothing() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    let (worker, mut seen) = crate::support::acking(setup.queue.worker());
    for round in 0..20 {
        proxy.cut_reply_of(PUSH);
        let id = format!("{round}");
        let pushed = queue.push("").id(&id).await?;
        assert!(
            matches!(
                pushed.outcome(),
                PushOutcome::Exists(_) | PushOutcome::Finished
            ),
            "{pushed:?}"
        );
        assert_eq!(seen.next().await?, id);
    }
    assert_eq!(proxy.cuts(), 20);
    worker.stop().await?;
    assert_eq!(seen.rest(), Vec::<String>::new());
    assert_eq!(setup.queue.stats().await?.pushed, 21);
    Ok(())
}

/// All messages of a batch are delivered and acked between the push and its repetition, which must
/// deliver none again: Redis remembers the whole call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_batch_of_acked_messages_delivers_nothing() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    let (handled, mut seen) = crate::support::seen();
    let worker = Running::start(setup.queue.worker(), move |delivery: dueq::Delivery| {
        let _ = handled.send(delivery.payload().to_vec());
        std::future::ready(())
    });
    for round in 1..=5 {
        proxy.cut_reply_of(PUSH);
        proxy.shut();
        let later = Message::new("later").due(HOUR);
        let messages: Vec<_> = (0..20)
            .map(|index| Message::new(format!("{round} {index}")))
            .chain([later])
            .collect();
        let push = tokio::spawn({
            let queue = queue.clone();
            async move { queue.push_many(messages).await }
        });
        let mut expected: Vec<_> = (0..20)
            .map(|index| format!("{round} {index}").into_bytes())
            .collect();
        let mut found = seen.take(20).await?;
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
        stats_until(&setup.queue, "all acked", |stats| {
            stats.acked == 1 + 20 * round
        })
        .await?;
        proxy.let_in();
        let results: Vec<_> = within("the push", push)
            .await??
            .into_iter()
            .collect::<Result<_, _>>()?;
        let (last, gone) = results.split_last().expect("answers");
        assert!(
            gone.iter().all(|pushed| *pushed == PushOutcome::Finished),
            "{gone:?}"
        );
        assert_eq!(*last, PushOutcome::Exists(MessageState::Scheduled));
    }
    assert_eq!(proxy.cuts(), 5);
    worker.stop().await?;
    assert_eq!(seen.rest(), Vec::<Vec<u8>>::new());
    let stats = setup.queue.stats().await?;
    assert_eq!((stats.pushed, stats.scheduled), (1 + 5 * 21, 5));
    assert!(stats.recent <= 1 + 5, "{} are remembered", stats.recent);
    Ok(())
}

#[tokio::test]
async fn batch_with_a_lost_reply_answers_each_caller_correctly() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    queue.push("old").id("there").due(HOUR).await?;
    proxy.cut_reply_of(PUSH);
    let results = queue
        .push_many([
            Message::new("new").id("new").due(HOUR),
            Message::new("").id(""),
        ])
        .await;
    assert_eq!(proxy.cuts(), 1);
    assert!(
        results[0]
            .as_ref()
            .is_ok_and(|receipt| *receipt == PushOutcome::Exists(MessageState::Scheduled)),
        "{:?}",
        results[0]
    );
    assert_eq!(
        results[1].as_ref().expect_err("invalid").kind(),
        ErrorKind::InvalidInput
    );
    proxy.cut_reply_of(UPSERT);
    let results = queue
        .push_many([
            Message::new("new")
                .id("there")
                .due(HOUR)
                .on_conflict(OnConflict::Replace),
            Message::new("moved")
                .id("there")
                .due(HOUR)
                .on_conflict(OnConflict::Reschedule),
        ])
        .await;
    assert_eq!(proxy.cuts(), 2);
    for unknown in &results {
        let error = unknown.as_ref().expect_err("unknown");
        assert_eq!(error.was_applied(), Applied::Unknown, "{error}");
    }
    assert_eq!(
        setup.queue.get("there").await?.expect("stored").payload,
        b"new"
    );
    Ok(())
}

/// The library made the id, so only the error can tell it to the caller.
#[tokio::test]
async fn error_of_an_unknown_push_names_the_new_message() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    let made = || {
        Message::new("made")
            .due(HOUR)
            .on_conflict(OnConflict::Replace)
    };
    proxy.cut_reply_of(UPSERT);
    let mut errors = vec![queue.push_message(made()).await.expect_err("unknown")];
    proxy.cut_reply_of(UPSERT);
    errors.extend(
        queue
            .push_many([made(), made()])
            .await
            .into_iter()
            .map(|pushed| pushed.expect_err("unknown")),
    );
    for error in &errors {
        assert_eq!(error.was_applied(), Applied::Unknown, "{error}");
        let id = error.message_id().expect("an id");
        assert_eq!(setup.queue.get(id).await?.expect("stored").payload, b"made");
    }
    assert_eq!(errors.len(), 3);
    let refused = queue.push("").id("").await.expect_err("no id");
    assert_eq!(
        (refused.was_applied(), refused.message_id()),
        (Applied::No, None)
    );
    Ok(())
}
