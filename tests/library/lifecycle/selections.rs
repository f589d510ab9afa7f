//! Reads and removals of a part of a queue: the newest first, from a time on, up to a time, or the
//! first bytes of a payload.

use std::time::Duration;

use anyhow::Result;
use dueq::inspect::MessageCursor;
use dueq::outcomes::SettleOutcome;
use dueq::{Client, Due, Message, MessageState, Queue};

use crate::support::{Setup, claim, command, ids, push_all, push_and_claim, setup};

pub(super) const FAR_MS: u64 = 4_000_000_000_000;

/// All ids in a state from this cursor on, read in pages of `size` messages.
async fn all(
    queue: &Queue,
    state: MessageState,
    from: Option<MessageCursor>,
    size: usize,
    newest: bool,
) -> Result<Vec<String>> {
    let (mut found, mut cursor) = (Vec::new(), from);
    loop {
        let page = match newest {
            true => queue.list_newest(state, cursor.as_ref(), size).await?,
            false => queue.list(state, cursor.as_ref(), size).await?,
        };
        assert!(page.messages.len() <= size);
        let id = |message: dueq::inspect::MessageEntry| {
            String::from_utf8_lossy(&message.id).into_owned()
        };
        found.extend(page.messages.into_iter().map(id));
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(found),
        }
    }
}

/// A queue of `count` messages whose due times differ, from `base_ms` on.
pub(super) async fn filled(count: usize, partitions: usize, base_ms: u64) -> Result<Setup> {
    let setup = setup().await?;
    if partitions > 1 {
        setup.queue.partition_into(partitions).await?;
    }
    let message = |(place, id): (usize, String)| {
        Message::new("")
            .id(id)
            .due(Due::at_ms(base_ms + place as u64))
    };
    let messages = ids(count).into_iter().enumerate().map(message);
    push_all(&setup.queue, messages.collect()).await?;
    Ok(setup)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newest_pages_reverse_the_order_over_all_partitions() -> Result<()> {
    for partitions in [1, 5] {
        let setup = filled(60, partitions, FAR_MS).await?;
        let expected = ids(60);
        let (mid, state) = (MessageCursor::at_ms(FAR_MS + 30), MessageState::Scheduled);
        for size in [1, 7, 59, 60, 1_000] {
            let queue = &setup.queue;
            let mut newest = all(queue, state, None, size, true).await?;
            newest.reverse();
            assert_eq!(newest, expected, "{size}");
            let from = all(queue, state, Some(mid.clone()), size, false).await?;
            assert_eq!(from, expected[30..], "{size}");
            let mut until = all(queue, state, Some(mid.clone()), size, true).await?;
            until.reverse();
            assert_eq!(until, expected[..31], "{size}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ready_and_leased_pages_have_both_orders() -> Result<()> {
    for partitions in [1, 3] {
        let setup = filled(60, partitions, 1_000_000).await?;
        let queue = &setup.queue;
        for key in queue.partitions().await?.iter().map(|one| &one.tag) {
            let base = match key.as_str() {
                "-" => "dueq:{orders}".to_owned(),
                tag => format!("dueq:{{orders/{tag}}}"),
            };
            promote(&setup, &base).await?;
        }
        assert_eq!(queue.stats().await?.ready, 60);
        for size in [1, 7, 60] {
            let mut newest = all(queue, MessageState::Ready, None, size, true).await?;
            newest.reverse();
            assert_eq!(newest, ids(60), "{size}");
            let mid = Some(MessageCursor::at_ms(1_000_030));
            let from = all(queue, MessageState::Ready, mid.clone(), size, false).await?;
            assert_eq!(from, ids(60)[30..], "{size}");
            let until = all(queue, MessageState::Ready, mid, size, true).await?;
            assert_eq!(until.len(), 31, "{size}");
        }
        let _held = claim(queue, 60).await?;
        let oldest = all(queue, MessageState::Leased, None, 7, false).await?;
        let mut newest = all(queue, MessageState::Leased, None, 7, true).await?;
        newest.reverse();
        assert_eq!((oldest.len(), newest.len()), (60, 60));
        if partitions == 1 {
            assert_eq!(oldest, newest);
        }
    }
    Ok(())
}

/// Promotes up to 1,000 messages of the partition with this base.
async fn promote(setup: &Setup, base: &str) -> Result<()> {
    let keys = dueq::admin::queue_keys("orders")?;
    let keys: Vec<_> = keys
        .iter()
        .map(|key| key.replace("dueq:{orders}", base))
        .collect();
    let code = include_str!("../../../lua/dist/promote.lua");
    let mut words = vec!["EVAL", code, "10"];
    words.extend(keys.iter().map(String::as_str));
    words.extend(["", "1000"]);
    setup.command::<redis::Value>(&words).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn purge_and_requeue_stop_at_the_given_time() -> Result<()> {
    for partitions in [1, 5] {
        let setup = filled(60, partitions, FAR_MS).await?;
        let queue = &setup.queue;
        let purged = queue
            .purge_before(MessageState::Scheduled, FAR_MS + 9)
            .await?;
        assert_eq!((purged, queue.stats().await?.scheduled), (10, 50));
        assert!(
            queue
                .purge_before(MessageState::Leased, u64::MAX)
                .await
                .is_err()
        );
        assert_eq!(
            queue
                .purge_before(MessageState::Scheduled, u64::MAX)
                .await?,
            50
        );
        let now = Message::new("").due(Due::at_ms(1_000));
        push_all(queue, (0..20).map(|_| now.clone()).collect()).await?;
        let (mut died_ms, mut last_ms) = (0, 0);
        for (place, delivery) in claim(queue, 20).await?.into_iter().enumerate() {
            let _ = delivery.bury("why").await?;
            let died = queue.get(delivery.id_bytes()).await?;
            last_ms = died.map_or(0, |stored| stored.time_ms);
            if place == 9 {
                died_ms = last_ms;
                // The other messages die in a later millisecond.
                while queue.dues(&[]).await?.now_ms <= died_ms {}
            }
        }
        assert_eq!(queue.requeue_before(died_ms - 60_000).await?, 0);
        assert_eq!(queue.requeue_before(died_ms).await?, 10);
        assert_eq!(queue.stats().await?.dead, 10);
        assert_eq!(queue.purge_before(MessageState::Dead, died_ms).await?, 0);
        assert_eq!(queue.purge_before(MessageState::Dead, last_ms).await?, 10);
    }
    Ok(())
}

#[tokio::test]
async fn a_payload_is_read_up_to_a_number_of_bytes() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let delay = Duration::from_secs(60);
    queue
        .push(b"payload".to_vec())
        .id("id")
        .delay(delay)
        .await?;
    for most in [0, 1, 7, 8, usize::MAX] {
        let stored = queue.get_up_to("id", most).await?.expect("it waits");
        assert_eq!(stored.payload, b"payload"[..most.min(7)]);
        assert_eq!(stored.payload_bytes, 7);
    }
    assert_eq!(queue.get("id").await?.expect("it waits").payload_bytes, 7);
    assert_eq!(queue.get_up_to("other", 5).await?, None);
    Ok(())
}

#[tokio::test]
async fn id_is_looked_for_where_get_may_find_it_or_fail() -> Result<()> {
    let setup = setup().await?;
    let delay = Duration::from_secs(60);
    let mut names = Vec::new();
    for (name, id) in [("lacks", "other"), ("scheduled", "id"), ("parts", "other")] {
        let queue = setup.client.queue(name)?;
        if name == "parts" {
            queue.partition_into(2).await?;
        }
        queue.push("").id(id).delay(delay).await?;
        names.push(name);
    }
    for name in ["leased", "dead"] {
        let queue = setup.client.queue(name)?;
        let delivery = push_and_claim(&queue, Message::new("").id("id")).await?;
        if name == "dead" {
            assert_eq!(delivery.bury("broken").await?, SettleOutcome::Done);
        }
        names.push(name);
    }
    // What `get` finds without a payload, and what it refuses.
    for (name, command) in [
        ("lost-scheduled", ["ZADD", "scheduled", "9", "id"]),
        ("lost-dead", ["ZADD", "dead", "9", "id"]),
        ("lost-leased", ["HSET", "claims", "id", "x"]),
        ("newer", ["HSET", "meta", "layout", "9"]),
        ("map", ["HSET", "meta", "map", "x"]),
    ] {
        let queue = setup.client.queue(name)?;
        queue.push("").id("other").delay(delay).await?;
        let key = format!("dueq:{{{name}}}:{}", command[1]);
        setup
            .command::<i64>(&[command[0], &key, command[2], command[3]])
            .await?;
        names.push(name);
    }
    setup
        .command::<()>(&["SET", "dueq:{foreign}:messages", "x"])
        .await?;
    names.extend(["foreign", "absent", "not/valid"]);
    // A fresh client: it knows no map.
    let client = Client::connect(&setup.server.url()).await?;
    let mut expected = names.clone();
    expected.retain(|name| *name != "lacks");
    assert_eq!(client.may_hold("id", names.clone()).await, expected);
    for name in ["", "\n"] {
        assert_eq!(client.may_hold(name, names.clone()).await, names, "no id");
    }
    let many: Vec<_> = std::iter::repeat_n(["lacks", "dead"], 150)
        .flatten()
        .collect();
    assert_eq!(client.may_hold("id", many).await, ["dead"; 150]);
    setup.command::<()>(&["CONFIG", "RESETSTAT"]).await?;
    client.may_hold("id", names).await;
    let stats: String = setup.command(&["INFO", "commandstats"]).await?;
    assert!(!stats.contains("eval"), "it calls scripts: {stats}");
    Ok(())
}

/// Without the pipelines, or with a script call for each queue, a search in 1,000 queues would take
/// Redis ten times as long.
#[tokio::test]
async fn an_id_is_looked_for_in_a_hundred_queues_at_once() -> Result<()> {
    let setup = setup().await?;
    let names: Vec<_> = (0..400).map(|number| format!("queue-{number}")).collect();
    for name in &names {
        let queue = setup.client.queue(name)?;
        queue.push("").delay(Duration::from_secs(60)).await?;
    }
    let mut redis = setup.redis().await?;
    command::<()>(&mut redis, &["CONFIG", "RESETSTAT"]).await?;
    assert!(setup.client.may_hold("id", names).await.is_empty());
    let stats: String = command(&mut redis, &["INFO", "all"]).await?;
    let figure = |line: &str| {
        let line = stats.lines().find_map(|it| it.strip_prefix(line));
        let digits = line.and_then(|rest| rest.split(',').next());
        digits.and_then(|digits| digits.parse::<u64>().ok())
    };
    let calls = ["hmget", "hexists", "zscore", "evalsha", "eval"]
        .map(|name| figure(&format!("cmdstat_{name}:calls=")));
    assert_eq!(calls, [Some(400), Some(800), Some(800), None, None]);
    // Redis reads 16 KiB at once, and a pipeline of a hundred queues has twice as much. The other
    // read is that of INFO.
    let reads = figure("total_reads_processed:").expect("Redis counts them");
    assert!(reads <= 4 * 8 + 1, "{reads} reads for four pipelines");
    Ok(())
}
