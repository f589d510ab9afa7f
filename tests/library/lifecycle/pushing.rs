//! Pushes of existing ids, of ids that have just ended, and of many ids at once.

use std::time::Duration;

use anyhow::Result;
use dueq::handlers::BoxError;
use dueq::outcomes::{CancelOutcome, PushOutcome, SettleOutcome};
use dueq::{Codec, ErrorKind, Message, MessageState, OnConflict, QueueLimits};

use crate::support::{HOUR, claim_one, messages, push_all, setup, stats_until, within};

#[tokio::test]
async fn a_message_is_pushed_delivered_and_acked_once() -> Result<()> {
    let setup = setup().await?;
    let rate = (u64::MAX, "größer als 2^53 \u{1f4e6}".to_owned());
    let pushed = setup
        .queue
        .push_message(
            Message::json(&rate)?
                .id("order:42")
                .due(Duration::from_millis(5)),
        )
        .await?;
    assert_eq!(pushed, PushOutcome::Created);
    let delivery = claim_one(&setup.queue).await?;
    assert_eq!(
        (delivery.id().as_ref(), delivery.attempt()),
        ("order:42", 1)
    );
    assert_eq!(delivery.json::<(u64, String)>()?, rate);
    assert_eq!(
        delivery.json::<Vec<u8>>().expect_err("another type").kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(delivery.ack().await?, SettleOutcome::Done);
    assert_eq!(setup.queue.get("order:42").await?, None);
    let stats = setup.queue.stats().await?;
    assert_eq!((stats.pushed, stats.claimed, stats.acked), (1, 1, 1));
    assert_eq!(
        (stats.scheduled, stats.ready, stats.leased, stats.dead),
        (0, 0, 0, 0)
    );
    Ok(())
}

#[tokio::test]
async fn push_of_an_existing_id_changes_nothing_in_any_state() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let push = async |text: &str| queue.push(text).id("id").due(HOUR).await;
    assert_eq!(push("first").await?, PushOutcome::Created);
    assert_eq!(
        push("second").await?,
        PushOutcome::Exists(MessageState::Scheduled)
    );
    let _ = queue.run_now("id").await?;
    queue.push("").id("other").due(HOUR).await?;
    let _ = queue.run_now("other").await?;
    let delivery = claim_one(queue).await?;
    assert_eq!(delivery.payload(), b"first");
    setup.promote(1).await?;
    assert_eq!(
        queue.push("").id("other").await?,
        PushOutcome::Exists(MessageState::Ready)
    );
    assert_eq!(
        push("third").await?,
        PushOutcome::Exists(MessageState::Leased)
    );
    assert_eq!(delivery.bury("enough").await?, SettleOutcome::Done);
    for conflict in [
        OnConflict::Keep,
        OnConflict::Reschedule,
        OnConflict::Replace,
    ] {
        let pushed = queue.push("fourth").id("id").on_conflict(conflict).await?;
        assert_eq!(
            pushed,
            PushOutcome::Exists(MessageState::Dead),
            "{conflict:?}"
        );
    }
    assert_eq!(queue.get("id").await?.expect("dead").payload, b"first");
    assert_eq!(queue.stats().await?.pushed, 2);
    Ok(())
}

#[tokio::test]
async fn push_all_answers_in_order_and_one_invalid_item_alone_fails() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.push("").id("message-0007").due(HOUR).await?;
    let mut all = messages(2_000);
    all[3] = Message::new("").id("");
    all[700] = Message::new(vec![0; 1024 * 1024 + 1]).id("too large for this queue");
    all[1_500] = Message::new("").id("message-0001");
    let results = queue.push_many(all).await;
    assert_eq!(results.len(), 2_000);
    for (place, result) in results.into_iter().enumerate() {
        match place {
            3 | 700 => assert_eq!(
                result.expect_err("refused").kind(),
                ErrorKind::InvalidInput,
                "{place}"
            ),
            7 | 1_500 => assert_eq!(
                result?,
                PushOutcome::Exists(MessageState::Scheduled),
                "{place}"
            ),
            _ => assert_eq!(result?, PushOutcome::Created, "{place}"),
        }
    }
    assert_eq!(queue.stats().await?.scheduled, 1_997);
    Ok(())
}

#[tokio::test]
async fn empty_batch_of_pushes_does_nothing() -> Result<()> {
    let setup = setup().await?;
    assert!(setup.queue.push_many([]).await.is_empty());
    assert_eq!(
        setup.command::<Vec<String>>(&["KEYS", "*"]).await?,
        Vec::<String>::new()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushes_of_one_id_from_many_tasks_create_it_once() -> Result<()> {
    let setup = setup().await?;
    let tasks: Vec<_> = (0..200)
        .map(|number| {
            let queue = setup.queue.clone();
            tokio::spawn(async move { queue.push(number.to_string()).id("one").due(HOUR).await })
        })
        .collect();
    let mut created = 0;
    for task in tasks {
        match task.await??.outcome() {
            PushOutcome::Created => created += 1,
            other => assert_eq!(other, PushOutcome::Exists(MessageState::Scheduled)),
        }
    }
    assert_eq!((created, setup.queue.stats().await?.pushed), (1, 1));
    Ok(())
}

#[tokio::test]
async fn dropped_push_does_not_affect_others() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    for round in 0..50 {
        let dropped = queue.push_message(Message::new("").id(format!("dropped {round}")).due(HOUR));
        // Poll once, which enqueues the push, then drop it.
        tokio::select! { biased; _ = dropped => {}, () = std::future::ready(()) => {} }
        assert_eq!(
            queue.push("").id(format!("kept {round}")).due(HOUR).await?,
            PushOutcome::Created
        );
    }
    let stats = queue.stats().await?;
    assert_eq!(stats.pushed, stats.scheduled);
    assert!((50..=100).contains(&stats.scheduled), "{stats:?}");
    Ok(())
}

#[tokio::test]
async fn a_single_push_is_stored_though_its_caller_is_dropped() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.push("").due(HOUR).await?; // opens the connection
    for round in 1..=20 {
        // The flush makes the push need a second call, which is not sent yet when its caller is
        // dropped.
        setup.command::<()>(&["SCRIPT", "FLUSH"]).await?;
        let dropped = queue.push_message(Message::new("").due(HOUR));
        tokio::select! { biased; _ = dropped => {}, () = std::future::ready(()) => {} }
        stats_until(queue, "it is stored", |stats| stats.scheduled == round + 1).await?;
    }
    Ok(())
}

#[tokio::test]
async fn push_that_is_no_longer_polled_blocks_no_other() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.push("").due(HOUR).await?; // opens the connection
    setup.command::<()>(&["SCRIPT", "FLUSH"]).await?;
    let mut left = std::pin::pin!(queue.push_message(Message::new("").due(HOUR)));
    tokio::select! { biased; _ = &mut left => {}, () = std::future::ready(()) => {} }
    for pushed in within("others push", queue.push_many(messages(1_000))).await? {
        assert_eq!(pushed?, PushOutcome::Created);
    }
    assert_eq!(
        within(
            "another pushes",
            queue.push_message(Message::new("").due(HOUR))
        )
        .await??,
        PushOutcome::Created
    );
    assert_eq!(left.await?, PushOutcome::Created);
    Ok(())
}

#[tokio::test]
async fn full_queue_refuses_new_messages_until_there_is_room() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue
        .configure(QueueLimits::new().max_messages(Some(3)))
        .await?;
    let results = queue.push_many(messages(5)).await;
    let kinds: Vec<_> = results
        .iter()
        .map(|result| result.as_ref().err().map(dueq::Error::kind))
        .collect();
    assert_eq!(
        kinds,
        [
            None,
            None,
            None,
            Some(ErrorKind::Full),
            Some(ErrorKind::Full)
        ]
    );
    let error = results[4].as_ref().expect_err("full");
    assert!(
        error.to_string().contains("3 messages") && error.is_retryable(),
        "{error}"
    );
    assert_eq!(error.was_applied(), dueq::Applied::No);
    let _ = claim_one(queue).await?.ack().await?;
    assert_eq!(queue.push("").id("fits").await?, PushOutcome::Created);
    queue
        .configure(QueueLimits::new().max_messages(None))
        .await?;
    push_all(queue, (0..10).map(|_| Message::new("")).collect()).await
}

#[test]
fn a_client_outlives_the_runtime_it_was_made_on() -> Result<()> {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
    };
    let first = runtime()?;
    let setup = first.block_on(setup())?;
    first.block_on(
        setup
            .queue
            .push_message(Message::new("").id("first").due(HOUR)),
    )?;
    drop(first);
    let second = runtime()?;
    assert_eq!(
        second.block_on(
            setup
                .queue
                .push_message(Message::new("").id("second").due(HOUR))
        )?,
        PushOutcome::Created
    );
    assert_eq!(
        second.block_on(setup.queue.cancel("first"))?,
        CancelOutcome::Cancelled
    );
    assert_eq!(second.block_on(setup.queue.stats())?.scheduled, 1);
    Ok(())
}

/// Redis remembers one completed id for a call of ten pushes, whether or not the caller chose the
/// ids.
#[tokio::test]
async fn a_call_of_many_is_remembered_once() -> Result<()> {
    let setup = setup().await?;
    for messages in [
        (0..10).map(|_| Message::new("")).collect::<Vec<_>>(),
        messages(10),
    ] {
        for pushed in setup
            .queue
            .push_many(
                messages
                    .into_iter()
                    .map(|message| message.due(Duration::ZERO)),
            )
            .await
        {
            assert_eq!(pushed?, PushOutcome::Created);
        }
    }
    assert_eq!(setup.queue.stats().await?.recent, 2);
    Ok(())
}

#[tokio::test]
async fn receipt_has_the_due_time_that_redis_stored() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    for _ in 0..20 {
        let receipt = queue.push("x").delay(HOUR).await?;
        let stored = queue.get(receipt.id_bytes()).await?.expect("a message");
        assert_eq!(receipt.due_ms(), Some(stored.time_ms));
    }
    let created = queue.push("x").id("a").delay(HOUR).await?;
    let again = queue.push("x").id("a").await?;
    assert_eq!(again, PushOutcome::Exists(MessageState::Scheduled));
    assert_eq!((created.is_created(), again.due_ms()), (true, None));
    let moved = queue.push("x").id("a").delay(2 * HOUR);
    let moved = moved.on_conflict(OnConflict::Reschedule).await?;
    let stored = queue.get("a").await?.expect("a message");
    assert_eq!(moved.due_ms(), Some(stored.time_ms));
    Ok(())
}

#[tokio::test]
async fn each_push_of_a_message_with_a_private_id_is_new() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let message = Message::new("x").due(HOUR);
    println!("{message:?}");
    let first = queue.push_message(message.clone()).await?;
    let second = queue.push_message(message).await?;
    assert!(first.is_created() && second.is_created());
    assert_ne!(first.id(), second.id());
    let named = Message::new("x").due(HOUR).new_id();
    assert!(queue.push_message(named.clone()).await?.is_created());
    let again = queue.push_message(named).await?;
    assert_eq!(again, PushOutcome::Exists(MessageState::Scheduled));
    Ok(())
}

#[derive(Clone)]
struct Panics;

impl Codec for Panics {
    type Value = u32;

    fn encode(&self, value: &u32) -> Result<Vec<u8>, BoxError> {
        assert_ne!(*value, 13, "an unlucky number");
        Ok(value.to_string().into_bytes())
    }

    fn decode(&self, payload: &[u8]) -> Result<u32, BoxError> {
        Ok(std::str::from_utf8(payload)?.parse()?)
    }
}

#[tokio::test]
async fn panic_of_a_codec_fails_only_its_push() -> Result<()> {
    let setup = setup().await?;
    let queue = setup.client.queue_with_codec(setup.queue.name(), Panics)?;
    let error = queue.push(13_u32).await.expect_err("the codec panics");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("an unlucky number"), "{error}");
    assert!(queue.push(14_u32).await?.is_created());
    assert_eq!(queue.stats().await?.pushed, 1);
    Ok(())
}
