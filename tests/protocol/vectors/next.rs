//! `on_conflict=next`: a push during a delivery is kept, and is the message when the delivery ends.

use anyhow::{Result, ensure};

use super::debounce::layout_3;
use super::{add, count, ended, expect};
use crate::model::check_structure;
use crate::queue::{HOUR, Queue, SECOND, T0, token};
use crate::reply::{Text, words};

pub(super) const NEXT: &str = "on_conflict=next";

/// A queue in which `a` is leased under the token `a`.
pub(super) fn leased() -> Result<Queue> {
    let mut queue = layout_3()?;
    queue.push(T0, "a", T0, "first")?;
    ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
    Ok(queue)
}

pub(super) fn push(queue: &mut Queue, now: u64, key: &str, payload: &str) -> Result<String> {
    let results = queue.items("upsert", now, words![key, "a", "+10", payload, NEXT])?;
    Ok(results[0].clone())
}

fn payload(queue: &mut Queue) -> Result<Option<Text>> {
    Ok(queue.state()?.messages.get(&"a".into()).cloned())
}

/// Claims `a` and acks it. Returns its payload, or None if nothing is due.
pub(super) fn run(queue: &mut Queue, now: u64) -> Result<Option<Text>> {
    let token = queue.new_token();
    if queue.take(now, 1, &token)?.is_empty() {
        return Ok(None);
    }
    let payload = payload(queue)?;
    ensure!(queue.items("ack", now, words![token, 1, "a"])? == ["OK"]);
    Ok(payload)
}

pub(super) fn let_leases_run_out(queue: &mut Queue, now: u64) -> Result<()> {
    let meta = queue.key("meta");
    queue.command(words!["HSET", meta, "last_beat", now, "reap_after", 0])?;
    Ok(())
}

#[test]
fn a_push_during_a_delivery_is_kept_in_attrs() -> Result<()> {
    let mut queue = leased()?;
    let before = queue.state()?;
    let words = words![
        "",
        "a",
        T0 + 10,
        "line\nline",
        format!("{NEXT} max_attempts=3")
    ];
    ensure!(queue.items("upsert", T0, words)? == ["NEXT"]);
    let kept = format!("{} max_attempts=3\nline\nline", T0 + 10);
    expect(&mut queue, before, |state| {
        state.attrs.insert("\u{3}a".into(), kept.into());
        count(state, "seq", 1);
    })?;
    let shown = queue.ok("get", T0, words!["a"])?;
    let pairs = shown.part(1)?.list()?;
    ensure!(pairs[1].text()? == "leased" && pairs[13].bytes()? == &"first".into());
    ensure!(pairs[14].text()? == "next_due" && pairs[15].int()? == T0 as i64 + 10);

    let before = queue.state()?;
    ensure!(queue.items("ack", T0, words![token('a'), 1, "a"])? == ["OK"]);
    expect(&mut queue, before, |state| {
        ended(state, &token('a'));
        state.claims.remove(&"a".into());
        state.attrs.remove(&"\u{3}a".into());
        state
            .attrs
            .insert("a".into(), "0 0 - max_attempts=3\n".into());
        state.messages.insert("a".into(), "line\nline".into());
        add(&mut state.scheduled, "a", T0 + 10);
        count(state, "acked", 1);
        count(state, "seq", 1);
    })
}

#[test]
fn every_end_of_a_delivery_starts_the_next_message() -> Result<()> {
    let parent = Text([&token('a').0[..], b"a"].concat());
    let due = T0 + 10;
    let ends: [(&str, Vec<Text>, String); 11] = [
        ("ack", words![token('a'), 1, "a"], "OK".into()),
        (
            "again",
            words!["a", token('a'), "+5000"],
            format!("OK {due}"),
        ),
        (
            "retry",
            words!["a", token('a'), 5_000, "why"],
            format!("SCHEDULED {due}"),
        ),
        (
            "retry",
            words!["a", token('a'), 0, "last"],
            format!("SCHEDULED {due}"),
        ),
        ("release", words!["a", token('a')], "OK".into()),
        ("bury", words!["a", token('a'), "why"], "OK".into()),
        (
            "snooze",
            words!["a", token('a'), "+5000"],
            format!("SCHEDULED {due}"),
        ),
        (
            "throttle",
            words!["a", token('a'), 1],
            format!("OK {}", T0 + 1),
        ),
        (
            "ack_push",
            words![parent, "b", T0 + HOUR, "", ""],
            "OK".into(),
        ),
        ("reap", words![10], "1".into()),
        ("reap", words![1], "1".into()),
    ];
    for extended in [false, true] {
        for (place, (verb, arguments, answer)) in ends.iter().enumerate() {
            let mut queue = leased()?;
            if extended {
                queue.ok("extend", T0, words!["a", token('a'), 30 * SECOND])?;
            }
            // The last failure and the last crash of the first message.
            if place == 3 || place == 10 {
                queue.ok("configure", T0, words!["max_attempts", 1, "max_crashes", 0])?;
            }
            ensure!(push(&mut queue, T0, "", "second")? == "NEXT");
            let now = if *verb == "reap" {
                T0 + 31 * SECOND
            } else {
                T0
            };
            let_leases_run_out(&mut queue, now)?;
            let reply = queue.ok(verb, now, arguments.clone())?;
            let found = match reply.part(1)? {
                crate::reply::Reply::List(items) => items[0].text()?,
                crate::reply::Reply::Int(count) => count.to_string(),
                one => one.text()?,
            };
            ensure!(found == *answer, "{verb}: {found}");
            let state = queue.state()?;
            check_structure(&state, None)?;
            ensure!(state.claims.len() == 1 && state.leases.len() == 1 && state.dead.len() == 1);
            let attrs: Vec<_> = state
                .attrs
                .keys()
                .filter(|id| id.0.ends_with(b"a"))
                .collect();
            ensure!(attrs.is_empty(), "{verb}: {attrs:?}");
            ensure!(
                run(&mut queue, now + 10)? == Some("second".into()),
                "{verb}"
            );
            ensure!(
                run(&mut queue, now + HOUR - 1 - 31 * SECOND)?.is_none(),
                "{verb}"
            );
            ensure!(
                queue
                    .ok("verify", now, words![""])?
                    .part(1)?
                    .list()?
                    .is_empty()
            );
        }
    }
    Ok(())
}

#[test]
fn the_last_of_several_next_messages_wins() -> Result<()> {
    let mut queue = leased()?;
    for payload in ["second", "third", "fourth"] {
        ensure!(push(&mut queue, T0, "", payload)? == "NEXT");
    }
    let call = words!["", "a", "+10", "fifth", NEXT, "a", "+10", "sixth", NEXT];
    ensure!(queue.items("upsert", T0, call)? == ["NEXT", "NEXT"]);
    queue.ok("ack", T0, words![token('a'), 1, "a"])?;
    ensure!(run(&mut queue, T0 + 10)? == Some("sixth".into()));
    ensure!(run(&mut queue, T0 + HOUR)?.is_none());
    Ok(())
}

#[test]
fn a_next_message_keeps_to_its_max_wait() -> Result<()> {
    let mut queue = leased()?;
    let call = |due: &str| words!["", "a", due, "", "on_conflict=next max_wait=12000"];
    ensure!(queue.items("upsert", T0, call("+5000"))? == ["NEXT"]);
    ensure!(queue.items("upsert", T0 + 10 * SECOND, call("+5000"))? == ["NEXT"]);
    let kept = format!("{} due_by={}\n", T0 + 12 * SECOND, T0 + 12 * SECOND);
    ensure!(queue.state()?.attrs.get(&"\u{3}a".into()) == Some(&kept.into()));
    Ok(())
}

/// No other message of the queue has an expiry: the next message alone makes claims look for it.
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
fn a_refused_next_push_is_refused_again() -> Result<()> {
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
fn of_two_acks_of_a_delivery_only_one_starts_the_next() -> Result<()> {
    let mut queue = leased()?;
    push(&mut queue, T0, "", "second")?;
    let acks = words![token('a'), 2, "a", "a"];
    ensure!(queue.items("ack", T0, acks)? == ["OK", "GONE"]);
    ensure!(queue.items("ack", T0, words![token('a'), 1, "a"])? == ["LOST"]);
    ensure!(run(&mut queue, T0 + 10)? == Some("second".into()));
    ensure!(run(&mut queue, T0 + 10)?.is_none());
    Ok(())
}

#[test]
fn cancel_removes_the_next_message_of_a_delivery() -> Result<()> {
    let mut queue = leased()?;
    let before = queue.state()?;
    push(&mut queue, T0, "", "second")?;
    ensure!(queue.items("cancel", T0, words!["", "a"])? == ["CANCELLED next"]);
    expect(&mut queue, before.clone(), |state| count(state, "seq", 2))?;
    ensure!(queue.items("cancel", T0, words!["", "a"])? == ["LEASED"]);
    Ok(())
}

#[test]
fn a_next_message_needs_layout_3() -> Result<()> {
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
fn a_next_message_that_is_due_wakes_a_node() -> Result<()> {
    for verb in ["ack", "release", "bury"] {
        let mut queue = leased()?;
        let call = words!["", "a", T0, "second", NEXT];
        ensure!(queue.items("upsert", T0, call)? == ["NEXT"]);
        queue.command(words!["DEL", "dueq:{q}:wake"])?;
        let arguments = match verb {
            "ack" => words![token('a'), 1, "a"],
            "release" => words!["a", token('a')],
            _ => words!["a", token('a'), "why"],
        };
        let reply = queue.ok(verb, T0, arguments)?;
        ensure!(
            crate::reply::Header::of(&reply)?.head == T0 as i64,
            "{verb}"
        );
        ensure!(queue.state()?.wake.len() == 2, "{verb}");
    }
    Ok(())
}

#[test]
fn audit_starts_a_next_message_without_a_delivery() -> Result<()> {
    // The delivery was taken away by hand; the message is nowhere, or in another state.
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
fn an_unreadable_next_message_stops_no_settlement() -> Result<()> {
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

/// A retry or snooze beyond the expiry of the first message would end that one.
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
