//! Unusual queue contents: invalid entries, large crowds, equal payloads, and past due times.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use dueq::{Delivery, Due, Message, MessageState, Queue, QueueStats};

use crate::support::{
    HOUR, Running, acking, claim, claim_one, messages, push_all, seen, server_us, setup,
    stats_until, until,
};

const PUSH: &str = include_str!("../../../lua/dist/push.lua");
/// More values than Lua can unpack at once, which is slightly below 8,000.
const CROWD: usize = 12_000;

/// In Redisson's delayed queue, an element that cannot be unpacked aborts every transfer. Elements
/// before it are transferred repeatedly, elements behind it never.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unparsable_entries_stop_no_other_message() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.push("").id("far").due(HOUR).await?;
    // Written directly to Redis, and due before the messages pushed below.
    let mut redis = setup.redis().await?;
    let entries: [&[u8]; 11] = [
        b"",
        b":",
        b"garbage",
        b"x:y",
        b"-5:id",
        b"1e3:id",
        b"1:",
        b"1:\0",
        b"9999999999999999999999999:id",
        b"nan:id",
        b"\xff\xfe:\xff",
    ];
    for entry in entries {
        redis::cmd("RPUSH")
            .arg("dueq:{orders}:ready")
            .arg(entry)
            .query_async::<()>(&mut redis)
            .await?;
    }
    for (key, score, member) in [
        ("scheduled", "1", &b"no payload"[..]),
        ("scheduled", "1.5", b""),
        ("scheduled", "-inf", b"before all time"),
        ("scheduled", "-5", b"\xff\xfe\0"),
        ("leases", "1", b"no claim, no payload"),
        ("leases", "-inf", b"\0"),
        ("nodes", "-inf", b""),
        ("recent", "-inf", b""),
    ] {
        let key = format!("dueq:{{orders}}:{key}");
        redis::cmd("ZADD")
            .arg(key)
            .arg(score)
            .arg(member)
            .query_async::<()>(&mut redis)
            .await?;
    }
    for (key, field, value) in [
        ("claims", "no claim, no payload", "short"),
        ("attrs", "5", "no such form"),
        ("attrs", "6", ""),
    ] {
        setup
            .command::<()>(&["HSET", &format!("dueq:{{orders}}:{key}"), field, value])
            .await?;
    }
    setup
        .command::<()>(&["RPUSH", "dueq:{orders}:wake", "not", "", "tokens"])
        .await?;

    // Payloads that the handler cannot decode: empty, not text, not JSON, and JSON of another type.
    let poison: [&[u8]; 5] = [b"", b"\xff\xfe", b"{\"unfinished\":", b"\"a text\"", b"-1"];
    for payload in poison {
        queue.push(payload).max_attempts(1).await?;
    }
    let good: Result<Vec<_>, _> = (0..50)
        .map(|n| Message::json(&n).map(|message| message.id(n.to_string())))
        .collect();
    push_all(queue, good?).await?;
    let (sender, mut seen) = seen();
    let handler = move |delivery: Delivery| {
        let sender = sender.clone();
        async move {
            let _ = sender.send(delivery.json::<u64>()?);
            anyhow::Ok(())
        }
    };
    let worker = Running::start(queue.worker().concurrency(3), handler);
    let mut handled = seen.take(50).await?;
    handled.sort_unstable();
    assert_eq!(handled, (0..50).collect::<Vec<_>>());
    let stats = stats_until(queue, "all settled", |stats| stats.acked + stats.dead == 55).await?;
    assert_eq!((stats.acked, stats.dead), (50, 5), "{stats:?}");
    // No key contains any of the bad entries. A reap turns the invalid leases into due messages
    // without a payload, which a later claim drops: it may do so after the last ack.
    let left = async || {
        let stats = queue.stats().await?;
        let head = ["ZRANGE", "dueq:{orders}:scheduled", "0", "0"];
        let head: Vec<Vec<u8>> = setup.command(&head).await?;
        let leases: u64 = setup.command(&["ZCARD", "dueq:{orders}:leases"]).await?;
        Ok((stats.scheduled, stats.ready, stats.leased, leases, head))
    };
    let is_clean = |(scheduled, ready, leased, leases, head): &(u64, u64, u64, u64, Vec<_>)| {
        // The one lease is the placeholder.
        (*scheduled, *ready, *leased, *leases) == (1, 0, 0, 1) && head == &[b"far"]
    };
    until("no invalid entry", left, is_clean).await?;
    worker.stop().await?;
    Ok(())
}

/// Waits until a worker has handled the whole crowd, each message once.
async fn handled(queue: &Queue) -> Result<QueueStats> {
    let (worker, mut seen) = acking(queue.worker().concurrency(500));
    let mut handled = seen.take(CROWD).await?;
    handled.sort_unstable();
    handled.dedup();
    assert_eq!(handled.len(), CROWD);
    worker.stop().await?;
    Ok(queue.stats().await?)
}

/// Scripts that unpack all due messages at once, as in apalis-redis, bee-queue and delayqueue, fail
/// at 8,000 due messages. Every later try fails as well, because the number never shrinks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_8000_due_messages_stop_no_claim() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let due = Due::at_ms(server_us(&mut setup.redis().await?).await? / 1_000);
    push_all(
        queue,
        messages(CROWD)
            .into_iter()
            .map(|message| message.due(due))
            .collect(),
    )
    .await?;
    assert_eq!(queue.stats().await?.due, CROWD as u64);
    let stats = handled(queue).await?;
    assert_eq!(
        (stats.acked, stats.claimed, stats.crashed),
        (CROWD as u64, CROWD as u64, 0)
    );
    Ok(())
}

/// When more than 8,000 leases expire together, the recovery of BullMQ, bee-queue and delayqueue
/// fails for good, because their scripts unpack all of them at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_8000_expired_leases_stop_no_reap() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    push_all(queue, messages(CROWD)).await?;
    // No worker beats, so nothing is reaped until all leases have expired.
    let mut granted = 0;
    while granted < CROWD {
        granted += queue.claim(1_000, Duration::from_millis(1)).await?.len();
    }
    assert_eq!(queue.stats().await?.leased, CROWD as u64);
    let stats = handled(queue).await?;
    assert_eq!(
        (stats.acked, stats.crashed, stats.dead),
        (CROWD as u64, CROWD as u64, 0)
    );
    Ok(())
}

/// A simple delay queue uses the payload as the member of a sorted set. It then keeps one message
/// where two equal ones were pushed.
#[tokio::test]
async fn messages_with_equal_payloads_stay_separate() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let due = Due::at_ms(server_us(&mut setup.redis().await?).await? / 1_000);
    push_all(
        queue,
        (0..100)
            .map(|_| Message::new("the same").due(due))
            .collect(),
    )
    .await?;
    let twins = claim(queue, 100).await?;
    assert!(
        twins
            .iter()
            .all(|delivery| delivery.payload() == b"the same")
    );
    // The end of one message does not remove the other.
    for delivery in &twins[..50] {
        let _ = delivery.ack().await?;
    }
    let _ = twins[50].bury("").await?;
    assert_eq!(
        queue.cancel_dead(twins[50].id_bytes()).await?,
        dueq::outcomes::CancelOutcome::Cancelled
    );
    assert_eq!(queue.stats().await?.leased, 49);
    Ok(())
}

/// In Redisson's delayed queue, an element offered with a negative delay arrived long after the
/// others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_times_are_due_now_and_negative_delays_refused() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let (worker, mut seen) = acking(queue.worker());
    // A past time is due now, and so is a time before 1970.
    for (id, due) in [
        ("an hour ago", Due::from(SystemTime::now() - HOUR)),
        ("before 1970", Due::from(SystemTime::UNIX_EPOCH - HOUR)),
        ("zero", Due::at_ms(0)),
        ("none", Due::from(Duration::ZERO)),
    ] {
        queue.push("").id(id).due(due).await?;
        assert_eq!(seen.next().await?, id);
    }
    worker.stop().await?;
    // Only the script accepts a negative delay as text. It rejects that item and accepts the other
    // items.
    let mut redis = setup.redis().await?;
    let mut call = redis::cmd("EVAL");
    call.arg(PUSH).arg(10).arg(queue.keys()).arg("").arg("");
    for (id, due) in [
        ("a", "-5"),
        ("b", "+-5"),
        ("c", "+0"),
        ("d", "-1e3"),
        ("e", "- 5"),
    ] {
        call.arg(id).arg(due).arg("").arg("");
    }
    let (_, results): (redis::Value, Vec<String>) = call.query_async(&mut redis).await?;
    for (place, result) in results.iter().enumerate() {
        let expected = if place == 2 {
            "CREATED"
        } else {
            "INVALID due must be"
        };
        assert!(result.starts_with(expected), "{place}: {result}");
    }
    assert_eq!(claim_one(queue).await?.id(), "c");
    assert_eq!(
        queue
            .list(MessageState::Scheduled, None, 10)
            .await?
            .messages
            .len(),
        0
    );
    Ok(())
}
