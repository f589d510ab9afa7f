//! Lost replies to settlements, cancels, reschedules, claims and reads.

use std::time::Duration;

use anyhow::Result;
use dueq::claims::LeaseToken;
use dueq::outcomes::{CancelOutcome, PushOutcome, RescheduleOutcome, SettleOutcome};
use dueq::{Applied, Client, Due, ErrorKind, Message, MessageState, OnConflict};

use super::proxied::{ACK, CANCEL, CLAIM, PUSH, RESCHEDULE, RETRY, UPSERT, proxied};
use crate::support::{HOUR, claim_one, push_and_claim, setup, until, within};

#[tokio::test]
async fn ack_with_a_lost_reply_is_repeated() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    let delivery = push_and_claim(&queue, Message::new("").id("id")).await?;
    proxy.cut_reply_of(ACK);
    assert_eq!(
        delivery.ack().await?,
        SettleOutcome::Gone,
        "the first attempt was applied"
    );
    assert_eq!(proxy.cuts(), 1);
    assert_eq!(setup.queue.stats().await?.acked, 2);
    Ok(())
}

/// A repeated retry must not charge a second failure.
#[tokio::test]
async fn retry_with_a_lost_reply_is_charged_once() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    let delivery = push_and_claim(&queue, Message::new("").id("id")).await?;
    proxy.cut_reply_of(RETRY);
    assert_eq!(
        delivery.retry(HOUR, "why").await?,
        dueq::outcomes::RetryOutcome::Lost
    );
    assert_eq!(proxy.cuts(), 1);
    let stored = setup.queue.get("id").await?.expect("scheduled");
    assert_eq!((stored.failures, stored.error.as_str()), (1, "why"));
    Ok(())
}

#[tokio::test]
async fn cancel_with_a_lost_reply_still_reports_cancelled() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    queue.push("").id("id").due(HOUR).await?;
    proxy.cut_reply_of(CANCEL);
    assert_eq!(queue.cancel("id").await?, CancelOutcome::Cancelled);
    assert_eq!(proxy.cuts(), 1);
    assert_eq!(setup.queue.stats().await?.cancelled, 1);
    Ok(())
}

/// Another client pushes the id again before the repetition arrives. The repetition must not cancel
/// that message.
#[tokio::test]
async fn repeated_cancel_spares_a_message_pushed_in_between() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    for (due, state) in [
        (HOUR, MessageState::Scheduled),
        (Duration::ZERO, MessageState::Leased),
    ] {
        queue.push("old").id("id").due(HOUR).await?;
        let cuts = proxy.cuts();
        proxy.cut_reply_of(CANCEL);
        proxy.shut();
        let cancel = tokio::spawn({
            let queue = queue.clone();
            async move { queue.cancel("id").await }
        });
        until(
            "the lost reply",
            async || Ok(proxy.cuts()),
            |now| *now > cuts,
        )
        .await?;
        assert_eq!(
            setup.queue.push("new").id("id").due(due).await?,
            PushOutcome::Created
        );
        let claimed = if state == MessageState::Leased {
            Some(claim_one(&setup.queue).await?)
        } else {
            None
        };
        proxy.let_in();
        assert_eq!(
            within("the cancel", cancel).await???,
            CancelOutcome::Cancelled,
            "the first attempt was applied"
        );
        let there = setup
            .queue
            .get("id")
            .await?
            .expect("the other message exists");
        assert_eq!(
            (there.payload.as_slice(), there.state),
            (&b"new"[..], state)
        );
        match claimed {
            Some(delivery) => assert_eq!(delivery.ack().await?, SettleOutcome::Done),
            None => assert_eq!(
                queue.cancel("id").await?,
                CancelOutcome::Cancelled,
                "a new call cancels the current message"
            ),
        }
    }
    Ok(())
}

#[tokio::test]
async fn unrepeatable_call_with_a_lost_reply_reports_unknown() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    queue.push("old").id("id").due(HOUR).await?;

    proxy.cut_reply_of(RESCHEDULE);
    let error = queue.reschedule("id", 2 * HOUR).await.expect_err("unknown");
    assert_eq!(
        (error.was_applied(), error.kind()),
        (Applied::Unknown, ErrorKind::Unavailable),
        "{error}"
    );

    proxy.cut_reply_of(UPSERT);
    let replace = Message::new("new")
        .id("id")
        .due(HOUR)
        .on_conflict(OnConflict::Replace);
    let error = queue.push_message(replace).await.expect_err("unknown");
    assert_eq!(
        (error.was_applied(), error.kind()),
        (Applied::Unknown, ErrorKind::Unavailable),
        "{error}"
    );
    assert_eq!(error.message_id(), Some(&b"id"[..]));
    assert_eq!(proxy.cuts(), 2);
    assert_eq!(
        setup.queue.get("id").await?.expect("stored").payload,
        b"new"
    );

    // With an absolute and an expected time the call is idempotent, so the client repeats it.
    let due_ms = queue.get("id").await?.expect("stored").time_ms;
    proxy.cut_reply_of(RESCHEDULE);
    let moved = queue
        .reschedule_if("id", Due::at_ms(due_ms + 5_000), due_ms)
        .await?;
    assert_eq!(
        (moved, proxy.cuts()),
        (RescheduleOutcome::Moved(due_ms + 5_000), 3)
    );
    Ok(())
}

/// The first reply is lost and the repetition rejected. For a write, the outcome would be unknown.
#[tokio::test]
async fn read_with_a_lost_reply_was_not_applied() -> Result<()> {
    let setup = setup().await?;
    let proxy = dueq_testkit::Proxy::start(setup.server.port())?;
    let queue = Client::connect(&proxy.url()).await?.queue("orders")?;
    let (stats, get, peek) = (
        include_str!("../../../lua/dist/stats.lua"),
        include_str!("../../../lua/dist/get.lua"),
        include_str!("../../../lua/dist/peek.lua"),
    );
    for script in [stats, get, peek] {
        setup.command::<String>(&["SCRIPT", "LOAD", script]).await?;
    }
    let cut = |request: &str| proxy.cut_reply_then_refuse(request, "NOPERM refused");
    let sha = |script: &str| redis::Script::new(script).get_hash().to_owned();
    cut(&sha(stats));
    let mut errors = vec![queue.stats().await.map(drop)];
    cut(&sha(get));
    errors.push(queue.get("id").await.map(drop));
    cut(&sha(peek));
    errors.push(queue.list(MessageState::Dead, None, 1).await.map(drop));
    cut("EXISTS");
    errors.push(queue.exists().await.map(drop));
    assert_eq!(proxy.cuts(), 4);
    for error in errors {
        let error = error.expect_err("refused");
        assert_eq!(
            (error.was_applied(), error.kind()),
            (Applied::No, ErrorKind::Denied),
            "{error}"
        );
        assert!(!error.to_string().contains("may have"), "{error}");
    }
    Ok(())
}

/// The messages of the lost reply return when their lease expires. The repeated call claims other
/// messages.
#[tokio::test]
async fn claim_with_a_lost_reply_is_repeated() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    for id in ["first", "second"] {
        queue
            .push("")
            .id(id)
            .due(std::time::SystemTime::UNIX_EPOCH)
            .await?;
    }
    proxy.cut_reply_of(CLAIM);
    let deliveries = queue.claim(1, HOUR).await?;
    assert_eq!(proxy.cuts(), 1);
    assert_eq!(
        deliveries
            .iter()
            .map(|delivery| delivery.id())
            .collect::<Vec<_>>(),
        ["second"]
    );
    let first = setup.queue.get("first").await?.expect("leased");
    assert_eq!((first.state, first.crashes), (MessageState::Leased, 0));
    Ok(())
}

/// An upsert is never repeated after a lost reply, a push is. The two are sent in different calls,
/// so that an upsert does not make a push's outcome unknown.
#[tokio::test]
async fn push_beside_an_upsert_is_repeated_after_a_lost_reply() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    proxy.cut_reply_of(PUSH);
    let upsert = Message::new("u")
        .id("upsert")
        .due(HOUR)
        .on_conflict(OnConflict::Replace);
    let (pushed, upserted) = tokio::join!(
        queue.push_message(Message::new("p").id("push").due(HOUR)),
        queue.push_message(upsert),
    );
    assert_eq!(pushed?, PushOutcome::Exists(MessageState::Scheduled));
    assert_eq!(proxy.cuts(), 1);
    // The upsert was on the connection that was cut, or it came later.
    if let Err(error) = upserted {
        assert_eq!(error.was_applied(), Applied::Unknown);
    }
    assert!(setup.queue.get("push").await?.is_some());
    Ok(())
}

/// The library finds what the lost reply granted by the token of the claim.
#[tokio::test]
async fn claim_with_a_token_finds_the_grant_of_a_lost_reply() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    queue.push("payload").id("id").due(Due::at_ms(1)).await?;
    let before = setup.queue.stats().await?.claimed;
    proxy.cut_reply_of(CLAIM);
    let token = LeaseToken::random();
    let granted = queue.claim_with_token(token, 10, HOUR).await?;
    assert_eq!(proxy.cuts(), 1);
    assert_eq!((granted.len(), granted[0].payload()), (1, &b"payload"[..]));
    assert_eq!(setup.queue.stats().await?.claimed, before + 1);
    assert_eq!(granted[0].ack().await?, SettleOutcome::Done);
    Ok(())
}
