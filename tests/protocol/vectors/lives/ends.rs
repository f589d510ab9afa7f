//! What becomes of a life when its message ends.

use anyhow::{Result, ensure};

use super::events::{keeping, life, token};
use crate::queue::{DAY, HOUR, Queue, SECOND, T0};
use crate::reply::words;
use crate::vectors::verified;

const KEEP_MS: u64 = 60 * SECOND;

/// How many lives the queue keeps.
fn lives(queue: &mut Queue) -> Result<usize> {
    Ok(queue
        .state()?
        .attrs
        .keys()
        .filter(|name| name.0[0] == 7)
        .count())
}

/// Pushes `a`, and ends it by this verb.
fn end(queue: &mut Queue, now: u64, verb: &str) -> Result<()> {
    queue.push(now, "a", now, "payload")?;
    if verb == "ack" {
        ensure!(queue.take(now, 1, &token(1))? == ["a"]);
        queue.items("ack", now + 5, words![token(1), 1, "a"])?;
    } else if verb == "purge" {
        queue.ok("purge", now + 5, words!["scheduled", 100])?;
    } else {
        queue.items("cancel", now + 5, words!["", "a"])?;
    }
    Ok(())
}

#[test]
fn a_life_ends_with_its_message() -> Result<()> {
    for verb in ["ack", "purge"] {
        let mut queue = keeping(0)?;
        end(&mut queue, T0, verb)?;
        ensure!(lives(&mut queue)? == 0, "{verb}");
    }
    Ok(())
}

#[test]
fn a_life_is_kept_for_as_long_as_the_queue_is_told() -> Result<()> {
    for (verb, how, event) in [
        (
            "ack",
            "finished",
            format!("{} ack {T0} {T0} abcdefg", T0 + 5),
        ),
        ("cancel", "cancelled", format!("{} cancel -", T0 + 5)),
        ("purge", "cancelled", format!("{} purge -", T0 + 5)),
    ] {
        let mut queue = keeping(KEEP_MS)?;
        end(&mut queue, T0, verb)?;
        let now = T0 + KEEP_MS;
        let reply = queue.ok("get", now, words!["a"])?;
        ensure!(reply.part(2)?.text()? == how, "{verb}: {reply:?}");
        ensure!(reply.part(3)?.int()? as u64 == T0 + 5);
        ensure!(life(&mut queue, now)? == [format!("{T0} push {T0}"), event]);
        queue.ok("beat", T0 + 6 + KEEP_MS, words!["node", "stay"])?;
        ensure!(lives(&mut queue)? == 0, "{verb}");
    }
    Ok(())
}

#[test]
fn an_expiry_is_the_last_event_of_a_life() -> Result<()> {
    for (on_expire, kept) in [("drop", 1), ("dead", 0)] {
        let mut queue = keeping(KEEP_MS)?;
        let options = format!("expires=+50 on_expire={on_expire}");
        queue.items("push", T0, words!["", "a", T0, "payload", options])?;
        let now = T0 + SECOND;
        ensure!(queue.take(now, 1, &token(1))?.is_empty());
        let expected = [format!("{T0} push {T0}"), format!("{now} expired -")];
        let told = life(&mut queue, now)?;
        ensure!(told == expected, "{on_expire}: {told:?}");
        // A dead message has not ended.
        let mut ending = queue.state()?.recent;
        ending.retain(|(name, _)| name.0[0] == 7);
        ensure!(ending.len() == kept, "{on_expire}: {ending:?}");
    }
    Ok(())
}

#[test]
fn the_life_goes_on_after_an_undo() -> Result<()> {
    let mut queue = keeping(0)?;
    let due = T0 + HOUR;
    queue.push(T0, "a", due, "payload")?;
    queue.items("cancel", T0 + 5, words!["", "a"])?;
    let undo = words!["", "a", due, "payload", format!("undo={}", T0 + 5)];
    ensure!(queue.items("push", T0 + 10, undo)? == ["CREATED"]);
    let expected = [
        format!("{T0} push {due}"),
        format!("{} cancel -", T0 + 5),
        format!("{} undo {due}", T0 + 10),
    ];
    for now in [T0 + 10, T0 + 30 * SECOND] {
        queue.ok("beat", now, words!["node", "stay"])?;
        ensure!(life(&mut queue, now)? == expected);
    }
    Ok(())
}

#[test]
fn another_message_of_the_id_begins_a_life_of_its_own() -> Result<()> {
    let mut queue = keeping(KEEP_MS)?;
    end(&mut queue, T0, "ack")?;
    let now = T0 + SECOND;
    queue.push(now, "a", now + DAY, "payload")?;
    // The time of the former life is over: the message keeps its own.
    queue.ok("beat", now + 2 * KEEP_MS, words!["node", "stay"])?;
    ensure!(life(&mut queue, now)? == [format!("{now} push {}", now + DAY)]);
    Ok(())
}

#[test]
fn lives_go_when_the_queue_keeps_none_any_more() -> Result<()> {
    let mut queue = keeping(KEEP_MS)?;
    queue.push(T0, "a", T0, "payload")?;
    queue.ok("configure", T0, words!["life_keep_ms", ""])?;
    ensure!(queue.take(T0, 1, &token(1))? == ["a"]);
    queue.items("retry", T0, words!["a", token(1), 0, "broken"])?;
    ensure!(life(&mut queue, T0)?.len() == 1, "no event was added");
    ensure!(queue.take(T0, 1, &token(2))? == ["a"]);
    queue.items("ack", T0, words![token(2), 1, "a"])?;
    ensure!(lives(&mut queue)? == 0);
    Ok(())
}

#[test]
fn ended_lives_take_at_most_half_of_what_a_queue_remembers() -> Result<()> {
    let mut queue = keeping(KEEP_MS)?;
    queue.ok("configure", T0, words!["max_remembered", 10])?;
    for number in 0..10 {
        let id = format!("m{number}");
        queue.push(T0, &id, T0, "payload")?;
        ensure!(queue.take(T0, 1, &token(number))? == [&*id]);
        queue.items("ack", T0, words![token(number), 1, id])?;
    }
    ensure!(lives(&mut queue)? == 4, "and the placeholder");
    Ok(())
}

#[test]
fn a_full_memory_stops_no_ack() -> Result<()> {
    let mut queue = keeping(KEEP_MS)?;
    queue.push(T0, "a", T0, "payload")?;
    ensure!(queue.take(T0, 1, &token(1))? == ["a"]);
    queue.command(words!["CONFIG", "SET", "maxmemory", "1"])?;
    ensure!(queue.items("ack", T0, words![token(1), 1, "a"])? == ["OK"]);
    ensure!(life(&mut queue, T0)?.len() == 2);
    Ok(())
}

#[test]
fn an_audit_removes_a_life_that_nothing_would_end() -> Result<()> {
    let mut queue = keeping(KEEP_MS)?;
    end(&mut queue, T0, "ack")?;
    queue.push(T0, "b", T0 + HOUR, "payload")?;
    let attrs = queue.key("attrs");
    queue.command(words!["HSET", attrs, "\u{7}gone", "1 push 2"])?;
    ensure!(verified(&mut queue)?);
    for (repairs, found) in [("", 1), ("1", 1), ("", 0)] {
        let reply = queue.ok("audit", T0, words!["attrs", 0, 100, repairs])?;
        ensure!(reply.part(3)?.list()?.len() == found, "{reply:?}");
    }
    Ok(())
}
