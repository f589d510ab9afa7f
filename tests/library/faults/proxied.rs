//! Replies that are lost: the call was made, and nobody heard the answer.

use std::time::Duration;

use anyhow::Result;
use dueq::{
    Applied, Cancelled, Client, Due, ErrorKind, Limits, Message, OnConflict, Pushed, Queue,
    Rescheduled, Settled, State,
};

use crate::support::proxy::Proxy;
use crate::support::{
    HOUR, Running, Setup, claim_one, push_and_claim, setup, stats_until, until, within,
};

const UPSERT: &str = include_str!("../../../lua/dist/upsert.lua");
pub(super) const PUSH: &str = include_str!("../../../lua/dist/push.lua");
const ACK: &str = include_str!("../../../lua/dist/ack.lua");
const CANCEL: &str = include_str!("../../../lua/dist/cancel.lua");
const CLAIM: &str = include_str!("../../../lua/dist/claim.lua");
const RESCHEDULE: &str = include_str!("../../../lua/dist/reschedule.lua");
const RETRY: &str = include_str!("../../../lua/dist/retry.lua");

/// A queue that is reached through a proxy, beside the one that is reached directly. All scripts are known to the server.
pub(super) async fn proxied() -> Result<(Setup, Proxy, Queue)> {
    let setup = setup().await?;
    let proxy = Proxy::start(setup.server.port()).await?;
    let queue = Client::connect(&proxy.url()).await?.queue("orders")?;
    push_and_claim(&queue, Message::new("").id("warm"))
        .await?
        .retry(Duration::ZERO, "")
        .await?;
    claim_one(&queue).await?.ack().await?;
    queue.cancel("warm").await?;
    queue.reschedule("warm", HOUR).await?;
    setup.command::<String>(&["SCRIPT", "LOAD", UPSERT]).await?;
    Ok((setup, proxy, queue))
}

#[tokio::test]
async fn push_with_a_lost_reply_is_repeated_and_stored_once() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    proxy.cut_reply_of(PUSH);
    assert_eq!(
        queue.push(Message::new("a").id("id").due(HOUR)).await?,
        Pushed::Exists(State::Scheduled)
    );
    assert_eq!(proxy.cuts(), 1);
    let stats = setup.queue.stats().await?;
    assert_eq!((stats.scheduled, stats.pushed), (1, 2));
    Ok(())
}

/// The first attempt may still lie before the server, and be made when the queue has room again.
#[tokio::test]
async fn full_after_a_lost_reply_may_have_been_applied() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    setup
        .queue
        .push(Message::new("").id("other").due(HOUR))
        .await?;
    setup
        .queue
        .configure(Limits::new().max_messages(Some(1)))
        .await?;
    let error = queue
        .push(Message::new("").id("id"))
        .await
        .expect_err("no room");
    assert_eq!(
        (error.kind(), error.was_applied()),
        (ErrorKind::Full, Applied::No),
        "{error}"
    );
    proxy.cut_reply_of(PUSH);
    let error = queue
        .push(Message::new("").id("id"))
        .await
        .expect_err("no room");
    assert_eq!(proxy.cuts(), 1);
    assert_eq!(
        (error.kind(), error.was_applied()),
        (ErrorKind::Full, Applied::Unknown),
        "{error}"
    );
    Ok(())
}

/// Delivered and acked between the push and its repetition: it must not run twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_push_of_an_acked_message_delivers_nothing() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    let (worker, mut seen) = crate::support::acking(setup.queue.worker());
    for round in 0..20 {
        proxy.cut_reply_of(PUSH);
        let id = format!("{round}");
        let pushed = queue.push(Message::new("").id(&id)).await?;
        assert!(
            matches!(pushed, Pushed::Exists(_) | Pushed::Finished),
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

/// The same of many: Redis remembers their call.
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
            .map(|place| Message::new(format!("{round} {place}")))
            .chain([later])
            .collect();
        let push = tokio::spawn({
            let queue = queue.clone();
            async move { queue.push_many(messages).await }
        });
        let mut expected: Vec<_> = (0..20)
            .map(|place| format!("{round} {place}").into_bytes())
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
        let told: Vec<_> = within("the push", push)
            .await??
            .into_iter()
            .collect::<Result<_, _>>()?;
        let (last, gone) = told.split_last().expect("answers");
        assert!(
            gone.iter().all(|pushed| *pushed == Pushed::Finished),
            "{gone:?}"
        );
        assert_eq!(*last, Pushed::Exists(State::Scheduled));
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
    queue
        .push(Message::new("old").id("there").due(HOUR))
        .await?;
    proxy.cut_reply_of(PUSH);
    let results = queue
        .push_many([
            Message::new("new").id("new").due(HOUR),
            Message::new("").id(""),
        ])
        .await;
    assert_eq!(proxy.cuts(), 1);
    assert!(
        matches!(results[0], Ok(Pushed::Exists(State::Scheduled))),
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
        let error = unknown.as_ref().expect_err("nobody knows");
        assert_eq!(error.was_applied(), Applied::Unknown, "{error}");
    }
    assert_eq!(
        setup.queue.get("there").await?.expect("stored").payload,
        b"new"
    );
    Ok(())
}

#[tokio::test]
async fn an_ack_whose_reply_is_lost_is_repeated() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    let delivery = push_and_claim(&queue, Message::new("").id("id")).await?;
    proxy.cut_reply_of(ACK);
    assert_eq!(delivery.ack().await?, Settled::Gone, "its first try did it");
    assert_eq!(proxy.cuts(), 1);
    assert_eq!(setup.queue.stats().await?.acked, 2);
    Ok(())
}

/// A repeated retry must not charge a second failure.
#[tokio::test]
async fn a_retry_whose_reply_is_lost_is_charged_once() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    let delivery = push_and_claim(&queue, Message::new("").id("id")).await?;
    proxy.cut_reply_of(RETRY);
    assert_eq!(delivery.retry(HOUR, "why").await?, dueq::Retried::Lost);
    assert_eq!(proxy.cuts(), 1);
    let stored = setup.queue.get("id").await?.expect("scheduled");
    assert_eq!((stored.failures, stored.error.as_str()), (1, "why"));
    Ok(())
}

#[tokio::test]
async fn a_cancel_whose_reply_is_lost_still_says_cancelled() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    queue.push(Message::new("").id("id").due(HOUR)).await?;
    proxy.cut_reply_of(CANCEL);
    assert_eq!(queue.cancel("id").await?, Cancelled::Cancelled);
    assert_eq!(proxy.cuts(), 1);
    assert_eq!(setup.queue.stats().await?.cancelled, 1);
    Ok(())
}

/// Somebody pushed the id anew before the repetition arrived: that is another message.
#[tokio::test]
async fn repeated_cancel_spares_a_message_pushed_in_between() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    for (due, state) in [(HOUR, State::Scheduled), (Duration::ZERO, State::Leased)] {
        queue.push(Message::new("old").id("id").due(HOUR)).await?;
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
            setup
                .queue
                .push(Message::new("new").id("id").due(due))
                .await?,
            Pushed::Created
        );
        let claimed = if state == State::Leased {
            Some(claim_one(&setup.queue).await?)
        } else {
            None
        };
        proxy.let_in();
        assert_eq!(
            within("the cancel", cancel).await???,
            Cancelled::Cancelled,
            "its first try did it"
        );
        let there = setup.queue.get("id").await?.expect("it is another message");
        assert_eq!(
            (there.payload.as_slice(), there.state),
            (&b"new"[..], state)
        );
        match claimed {
            Some(delivery) => assert_eq!(delivery.ack().await?, Settled::Done),
            None => assert_eq!(
                queue.cancel("id").await?,
                Cancelled::Cancelled,
                "a new call means what is there now"
            ),
        }
    }
    Ok(())
}

#[tokio::test]
async fn what_must_not_be_repeated_says_that_nobody_knows() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    queue.push(Message::new("old").id("id").due(HOUR)).await?;

    proxy.cut_reply_of(RESCHEDULE);
    let error = queue
        .reschedule("id", 2 * HOUR)
        .await
        .expect_err("nobody knows");
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
    let error = queue.push(replace).await.expect_err("nobody knows");
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

    // With an absolute time and an expected one, a repetition is harmless, and so made.
    let due_ms = queue.get("id").await?.expect("stored").time_ms;
    proxy.cut_reply_of(RESCHEDULE);
    let moved = queue
        .reschedule_if("id", Due::at_ms(due_ms + 5_000), due_ms)
        .await?;
    assert_eq!(
        (moved, proxy.cuts()),
        (Rescheduled::Moved(due_ms + 5_000), 3)
    );
    Ok(())
}

/// Of an id that the library made the error is the only one who can tell it.
#[tokio::test]
async fn an_unknown_push_names_the_message_it_made() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    let made = || {
        Message::new("made")
            .due(HOUR)
            .on_conflict(OnConflict::Replace)
    };
    proxy.cut_reply_of(UPSERT);
    let mut errors = vec![queue.push(made()).await.expect_err("unknown")];
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
    let refused = queue
        .push(Message::new("").id(""))
        .await
        .expect_err("no id");
    assert_eq!(
        (refused.was_applied(), refused.message_id()),
        (Applied::No, None)
    );
    Ok(())
}

/// The first reply is lost and the repetition refused: of a write that would leave open whether the first attempt was applied.
#[tokio::test]
async fn a_read_whose_reply_was_lost_was_not_applied() -> Result<()> {
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
    let cut = |request: &str| proxy.cut_reply_then_refuse(request, "NOPERM no more");
    let sha = |script: &str| redis::Script::new(script).get_hash().to_owned();
    cut(&sha(stats));
    let mut errors = vec![queue.stats().await.map(drop)];
    cut(&sha(get));
    errors.push(queue.get("id").await.map(drop));
    cut(&sha(peek));
    errors.push(queue.list(State::Dead, None, 1).await.map(drop));
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

/// What the lost reply granted comes back when its lease runs out; the call itself goes on.
#[tokio::test]
async fn a_claim_whose_reply_is_lost_is_made_anew() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    for id in ["first", "second"] {
        queue
            .push(
                Message::new("")
                    .id(id)
                    .due(std::time::SystemTime::UNIX_EPOCH),
            )
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
    assert_eq!((first.state, first.crashes), (State::Leased, 0));
    Ok(())
}
