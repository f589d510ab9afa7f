//! `on_conflict=next`: the queue keeps a message pushed during a delivery, and the message takes
//! over when the delivery ends.

use anyhow::{Result, ensure};

use crate::model::check_structure;
use crate::queue::{HOUR, Queue, T0, token};
use crate::reply::{Text, words};
use crate::vectors::pushes::debounce::layout_3;

pub(crate) const NEXT: &str = "on_conflict=next";

/// A queue in which a claim with the token `a` has leased `a`.
pub(crate) fn leased() -> Result<Queue> {
    let mut queue = layout_3()?;
    queue.push(T0, "a", T0, "first")?;
    ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
    Ok(queue)
}

pub(crate) fn push(queue: &mut Queue, now: u64, key: &str, payload: &str) -> Result<String> {
    let results = queue.items("upsert", now, words![key, "a", "+10", payload, NEXT])?;
    Ok(results[0].clone())
}

fn payload(queue: &mut Queue) -> Result<Option<Text>> {
    Ok(queue.state()?.messages.get(&"a".into()).cloned())
}

/// Claims `a` and acks it. Returns its payload; `None` if nothing is due.
pub(crate) fn run(queue: &mut Queue, now: u64) -> Result<Option<Text>> {
    let token = queue.new_token();
    if queue.take(now, 1, &token)?.is_empty() {
        return Ok(None);
    }
    let payload = payload(queue)?;
    ensure!(queue.items("ack", now, words![token, 1, "a"])? == ["OK"]);
    Ok(payload)
}

/// No other message of the queue has an expiry, so only the next message makes claims check
/// expiries.
#[test]
fn a_next_message_is_not_granted_after_its_expiry() -> Result<()> {
    let mut queue = leased()?;
    let options = format!("{NEXT} expires=+5 on_expire=drop");
    let call = words!["", "a", T0 + 10, "second", options];
    ensure!(queue.items("upsert", T0, call)? == ["NEXT"]);
    ensure!(queue.items("ack", T0, words![token('a'), 1, "a"])? == ["OK"]);
    ensure!(run(&mut queue, T0 + 16)?.is_none());
    ensure!(payload(&mut queue)?.is_none(), "it was not dropped");
    Ok(())
}

#[test]
fn a_refused_push_of_a_next_message_is_refused_again() -> Result<()> {
    let mut queue = leased()?;
    let options = format!("{NEXT} expires={}", T0 - 1);
    let key = crate::queue::attempt(T0, 1);
    for _ in 0..2 {
        let call = words![&key, "a", T0 - 1, "second", &options];
        let found = queue.items("upsert", T0, call)?;
        ensure!(found[0].starts_with("INVALID "), "{found:?}");
    }
    Ok(())
}

#[test]
fn a_next_message_is_refused_below_layout_3() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0, "first")?;
    ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
    let before = queue.contents()?;
    let found = push(&mut queue, T0, "", "second")?;
    ensure!(
        found.starts_with("INVALID ") && found.ends_with("dueq configure q --layout 3"),
        "{found}"
    );
    ensure!(queue.contents()? == before, "a refused item left a trace");
    Ok(())
}

#[test]
fn audit_replaces_a_lost_delivery_by_its_next_message() -> Result<()> {
    // The delivery was removed by hand. Its message is nowhere, or in another state.
    for place in ["nowhere", "scheduled", "dead"] {
        let mut queue = leased()?;
        push(&mut queue, T0, "", "second")?;
        queue.command(words!["HDEL", "dueq:{q}:claims", "a"])?;
        match place {
            "nowhere" => queue.command(words!["HDEL", "dueq:{q}:messages", "a"])?,
            place => queue.command(words![
                "ZADD",
                format!("dueq:{{q}}:{place}"),
                T0 + HOUR,
                "a"
            ])?,
        };
        let found = queue.ok("audit", T0, words!["attrs", 0, 100, ""])?;
        ensure!(
            found.part(3)?.list()?[0].list()?[0].text()? == "next",
            "{found:?}"
        );
        queue.ok("audit", T0, words!["attrs", 0, 100, "1"])?;
        queue.ok("audit", T0, words!["claims", 0, 100, "1"])?;
        queue.ok("audit", T0, words!["leases", 0, 100, "1"])?;
        check_structure(&queue.state()?, None)?;
        ensure!(
            run(&mut queue, T0 + 10)? == Some("second".into()),
            "{place}"
        );
        ensure!(queue.state()?.attrs.len() == 1, "{place}");
    }
    Ok(())
}

#[test]
fn an_unreadable_next_message_does_not_stop_a_settlement() -> Result<()> {
    for garbage in ["", "garbage", "1 ", "x \npayload"] {
        let mut queue = leased()?;
        queue.command(words!["HSET", "dueq:{q}:attrs", "\u{3}a", garbage])?;
        ensure!(queue.items("ack", T0, words![token('a'), 1, "a"])? == ["OK"]);
        ensure!(payload(&mut queue)?.is_none());
        let found = queue.ok("audit", T0, words!["attrs", 0, 100, "1"])?;
        ensure!(found.part(3)?.list()?.len() == 1, "{found:?}");
        ensure!(queue.state()?.attrs.len() == 1, "{garbage:?}");
    }
    Ok(())
}

#[test]
fn a_next_message_may_have_the_largest_payload() -> Result<()> {
    let mut queue = leased()?;
    let size = 16 * 1_048_576;
    queue.ok("configure", T0, words!["max_payload_bytes", size])?;
    for payload in ["x", "y"] {
        let words = words!["", "a", T0, payload.repeat(size as usize), NEXT];
        ensure!(queue.items("upsert", T0, words)? == ["NEXT"]);
    }
    let found = queue.ok("audit", T0, words!["attrs", 0, 1_000, ""])?;
    ensure!(
        found.part(2)?.int()? <= 3,
        "an audit reads few payloads: {found:?}"
    );
    let largest = queue
        .state()?
        .meta
        .get(&"largest_payload_bytes".into())
        .cloned();
    ensure!(largest == Some("16777216".into()));
    ensure!(queue.items("ack", T0, words![token('a'), 1, "a"])? == ["OK"]);
    let payload = run(&mut queue, T0)?;
    ensure!(payload.is_some_and(|text| text.0.len() == size as usize && text.0[0] == b'y'));
    Ok(())
}

/// By its own expiry, the first message would die at this retry or snooze. Its next message takes
/// over instead.
#[test]
fn an_expired_delivery_starts_its_next_message() -> Result<()> {
    for word in ["dead", "drop"] {
        for (verb, more) in [("retry", words![5_000, "why"]), ("snooze", words!["+5000"])] {
            let mut queue = layout_3()?;
            let options = format!("expires=+100 on_expire={word}");
            queue.ok("push", T0, words!["", "a", T0, "first", options])?;
            ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
            ensure!(push(&mut queue, T0, "", "second")? == "NEXT");
            let arguments = [words!["a", token('a')], more].concat();
            let reply = queue.items(verb, T0, arguments)?;
            ensure!(
                reply == [format!("SCHEDULED {}", T0 + 10)],
                "{verb}, {word}: {reply:?}"
            );
            ensure!(run(&mut queue, T0 + 10)? == Some("second".into()));
        }
    }
    Ok(())
}
