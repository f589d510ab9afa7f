//! Windows: for some time after a push its id creates no other message.

use anyhow::{Result, ensure};

use crate::queue::{DAY, HOUR, Queue, SECOND, T0, token};
use crate::reply::words;

const MINUTE: u64 = 60 * SECOND;
const WINDOW: &str = "window=3600000";

fn push(queue: &mut Queue, now: u64, id: &str, options: &str) -> Result<String> {
    let results = queue.items("push", now, words!["", id, now, "payload", options])?;
    Ok(results[0].clone())
}

/// Pushes `a` at T0 with a window of an hour, claims it with the token `a` and acks it a second
/// later.
fn finished() -> Result<Queue> {
    let mut queue = Queue::start()?;
    ensure!(push(&mut queue, T0, "a", WINDOW)? == "CREATED");
    ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
    ensure!(queue.items("ack", T0 + SECOND, words![token('a'), 1, "a"])? == ["OK"]);
    Ok(queue)
}

#[test]
fn a_window_answers_before_the_expiry_is_checked() -> Result<()> {
    let mut queue = finished()?;
    let options = format!("{WINDOW} expires={}", T0 + SECOND);
    let answer = format!("REMEMBERED {}", T0 + HOUR);
    ensure!(push(&mut queue, T0 + 2 * SECOND, "a", &options)? == answer);
    let found = push(&mut queue, T0 + 2 * SECOND, "b", &options)?;
    ensure!(found.starts_with("INVALID "), "{found}");
    Ok(())
}

#[test]
fn an_extended_delivery_keeps_the_mark_of_its_window() -> Result<()> {
    let mut queue = Queue::start()?;
    push(&mut queue, T0, "a", WINDOW)?;
    ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
    queue.ok("extend", T0, words!["a", token('a'), HOUR])?;
    let held = format!("{}0{T0}+", token('a').text());
    ensure!(queue.state()?.claims.get(&"a".into()) == Some(&held.into()));
    let found = queue.ok("audit", T0, words!["claims", 0, 100, ""])?;
    ensure!(found.part(3)?.list()?.is_empty(), "{found:?}");
    ensure!(queue.items("ack", T0, words![token('a'), 1, "a"])? == ["OK"]);
    ensure!(queue.state()?.recent.iter().any(|(name, _)| name.0[0] == 6));
    Ok(())
}

#[test]
fn windows_that_have_ended_are_forgotten() -> Result<()> {
    let mut queue = Queue::start()?;
    let mut most = 0;
    for number in 0..300 {
        let (now, id) = (T0 + 10 * number, number.to_string());
        ensure!(push(&mut queue, now, &id, "window=5")? == "CREATED");
        ensure!(queue.take(now, 1, &token('a'))? == std::slice::from_ref(&id));
        queue.ok("ack", now, words![token('a'), 1, id])?;
        most = most.max(queue.state()?.recent.len());
    }
    ensure!(most < 10, "{most} names");
    Ok(())
}

#[test]
fn a_window_from_before_the_clock_went_back_is_ignored() -> Result<()> {
    let mut queue = Queue::start()?;
    let window = format!("window={}", 30 * DAY);
    ensure!(push(&mut queue, T0 + DAY, "a", &window)? == "CREATED");
    ensure!(queue.take(T0 + DAY, 1, &token('a'))? == ["a"]);
    queue.ok("ack", T0 + DAY, words![token('a'), 1, "a"])?;
    ensure!(push(&mut queue, T0 + DAY, "a", "")?.starts_with("REMEMBERED"));
    ensure!(push(&mut queue, T0, "a", "")? == "CREATED");
    Ok(())
}

#[test]
fn a_change_of_the_map_is_refused_while_windows_last() -> Result<()> {
    let mut queue = finished()?;
    let change = words!["change", 0, "7|-|- 203"];
    let reply = queue.ok("remap", T0 + MINUTE, change.clone())?;
    ensure!(reply.part(1)?.text()? == format!("REMEMBERS {}", HOUR - MINUTE));
    let reply = queue.ok("remap", T0 + 2 * HOUR, change)?;
    ensure!(reply.part(1)?.text()? == "DONE");
    Ok(())
}

/// Unreadable fields of meta stop no push, and leave no push half done.
#[test]
fn unreadable_fields_in_meta_stop_no_push_with_a_window() -> Result<()> {
    for (field, value) in [
        ("windows_until", "soon"),
        ("windows_until", "99999999999999999999"),
        ("windows_until", "-1"),
        ("max_remembered", "many"),
    ] {
        let mut queue = finished()?;
        queue.command(words!["HSET", "dueq:{q}:meta", field, value])?;
        let found = push(&mut queue, T0 + SECOND, "a", WINDOW)?;
        ensure!(
            found.starts_with("REMEMBERED") || value == "-1",
            "{field} {value}: {found}"
        );
        ensure!(
            push(&mut queue, T0 + SECOND, "b", WINDOW)? == "CREATED",
            "{field} {value}"
        );
        let found = queue.ok("verify", T0, words!["1"])?;
        let named = format!("{:?}", found.part(1)?).contains(field);
        // The push has replaced an unreadable value of `windows_until`.
        ensure!(named || field == "windows_until", "{found:?}");
    }
    Ok(())
}

#[test]
fn trims_keep_windows_and_outcomes_that_still_last() -> Result<()> {
    let mut queue = finished()?;
    let last = T0 + HOUR - 1;
    // For each call, an expired name that it can trim.
    for number in 0..4 {
        push(&mut queue, T0, &format!("short {number}"), "window=1")?;
    }
    queue.ok("beat", T0 + MINUTE, words!["node", "stay"])?;
    push(&mut queue, T0 + MINUTE, "other", WINDOW)?;
    queue.ok("cancel", T0 + MINUTE, words!["", "other"])?;
    queue.ok("beat", last, words!["node", "stay"])?;
    let answer = format!("REMEMBERED {}", T0 + HOUR);
    ensure!(push(&mut queue, last, "a", "")? == answer);
    let known = queue.ok("get", last, words!["a"])?;
    ensure!(known.part(2)?.text()? == "finished", "{known:?}");
    Ok(())
}
