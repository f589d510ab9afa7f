//! Inspection: one message, pages of messages, counts.

use std::collections::BTreeSet;

use anyhow::Result;
use dueq::{Due, Message, Queue, State, Stats};

use crate::support::{HOUR, LONG, claim, messages, push_all, setup};

/// All ids in a state, read in pages of `size`.
async fn all(queue: &Queue, state: State, size: usize) -> Result<Vec<String>> {
    let (mut ids, mut cursor) = (Vec::new(), None);
    loop {
        let page = queue.list(state, cursor.as_ref(), size).await?;
        assert!(page.messages.len() <= size);
        assert!(page.messages.is_sorted_by_key(|message| message.time_ms));
        ids.extend(
            page.messages
                .into_iter()
                .map(|message| String::from_utf8_lossy(&message.id).into_owned()),
        );
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(ids),
        }
    }
}

#[tokio::test]
async fn queue_exists_from_its_first_push_to_its_deletion() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    assert!(!queue.exists().await?);
    assert_eq!(
        queue.stats().await?,
        Stats::default(),
        "reading creates no queue"
    );
    assert!(!queue.exists().await?);
    queue.push_message(Message::new("").due(HOUR)).await?;
    assert!(queue.exists().await?);
    assert!(queue.delete().await?);
    assert!(!queue.exists().await?);
    Ok(())
}

#[tokio::test]
async fn pages_of_any_size_show_every_message_once_and_in_order() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    push_all(queue, messages(60)).await?;
    let held = claim(queue, 40).await?;
    setup.promote(20).await?;
    for delivery in &held[..20] {
        let _ = delivery.bury("why not").await?;
    }
    let base_ms = 4_000_000_000_000;
    // Many messages share a due time, so a page can end among them.
    push_all(
        queue,
        (0..60)
            .map(|n| {
                Message::new("")
                    .id(format!("later-{n:02}"))
                    .due(Due::at_ms(base_ms + n / 25))
            })
            .collect(),
    )
    .await?;
    for (state, count) in [
        (State::Scheduled, 60),
        (State::Ready, 20),
        (State::Leased, 20),
        (State::Dead, 20),
    ] {
        let whole = all(queue, state, 1_000).await?;
        assert_eq!(
            whole.iter().collect::<BTreeSet<_>>().len(),
            count,
            "{state}"
        );
        for size in [1, 7, 20, 59, 60, 61] {
            assert_eq!(all(queue, state, size).await?, whole, "{state} by {size}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn next_page_continues_though_the_last_message_is_gone() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let base_ms = 4_000_000_000_000;
    push_all(
        queue,
        (0..10)
            .map(|n| {
                Message::new("")
                    .id(format!("{n}"))
                    .due(Due::at_ms(base_ms + n))
            })
            .collect(),
    )
    .await?;
    let first = queue.list(State::Scheduled, None, 5).await?;
    let _ = queue.cancel("4").await?;
    let second = queue.list(State::Scheduled, first.next.as_ref(), 5).await?;
    let ids: Vec<_> = second
        .messages
        .iter()
        .map(|message| message.id.as_slice())
        .collect();
    assert_eq!(ids, [b"5", b"6", b"7", b"8", b"9"]);
    Ok(())
}

#[tokio::test]
async fn a_message_is_shown_in_every_state() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    assert_eq!(queue.get("id").await?, None);
    queue
        .push_message(Message::new("payload").id("id").due(HOUR).max_attempts(9))
        .await?;
    let scheduled = queue.get("id").await?.expect("scheduled");
    assert_eq!(
        (scheduled.state, scheduled.max_attempts),
        (State::Scheduled, Some(9))
    );
    assert_eq!(
        (
            scheduled.payload.as_slice(),
            scheduled.failures,
            scheduled.crashes
        ),
        (&b"payload"[..], 0, 0)
    );
    let _ = queue.run_now("id").await?;
    let leased = claim(queue, 1).await?.remove(0);
    let stored = queue.get("id").await?.expect("leased");
    assert_eq!(
        (stored.state, stored.time_ms),
        (State::Leased, leased.deadline_ms())
    );
    let _ = leased.bury("over").await?;
    let dead = queue.get("id").await?.expect("dead");
    assert_eq!((dead.state, dead.error.as_str()), (State::Dead, "over"));
    let page = queue.list(State::Dead, None, 1).await?;
    assert_eq!(
        (page.messages[0].error.as_str(), page.messages[0].time_ms),
        ("over", dead.time_ms)
    );
    Ok(())
}

#[tokio::test]
async fn reading_an_absent_queue_finds_it_empty_and_creates_nothing() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    assert_eq!(queue.stats().await?, Stats::default());
    for state in [State::Scheduled, State::Ready, State::Leased, State::Dead] {
        let page = queue.list(state, None, 10).await?;
        assert!(page.messages.is_empty() && page.next.is_none(), "{state}");
    }
    assert_eq!(queue.claim(10, LONG).await?.len(), 0);
    assert_eq!(queue.purge(State::Scheduled).await?, 0);
    queue.resume().await?;
    assert_eq!(
        setup.command::<Vec<String>>(&["KEYS", "*"]).await?,
        Vec::<String>::new()
    );
    Ok(())
}

#[tokio::test]
async fn queues_of_one_server_know_nothing_of_each_other() -> Result<()> {
    let setup = setup().await?;
    let names = ["a", "a:b", "größe", "a b", "A", "1"];
    for name in names {
        setup
            .client
            .queue(name)?
            .push_message(Message::new(name).id("the same").due(HOUR))
            .await?;
    }
    for name in names {
        let queue = setup.client.queue(name)?;
        assert_eq!(queue.name(), name);
        assert_eq!(queue.stats().await?.scheduled, 1, "{name}");
        assert_eq!(
            queue.get("the same").await?.expect("stored").payload,
            name.as_bytes()
        );
        assert_eq!(queue.purge(State::Scheduled).await?, 1);
    }
    Ok(())
}
