//! The reply of `get` about an id whose message has ended.

use anyhow::{Result, ensure};

use crate::queue::{DAY, HOUR, Queue, SECOND, T0, token};
use crate::reply::words;

/// How the message `a` ended, when, and until when its window lasts; `None` if nothing is
/// remembered.
fn outcome(queue: &mut Queue, now: u64) -> Result<Option<(String, i64, i64)>> {
    let reply = queue.ok("get", now, words!["a"])?;
    ensure!(reply.part(1)?.list()?.is_empty(), "it is there: {reply:?}");
    if reply.list()?.len() == 2 {
        return Ok(None);
    }
    let (how, at, until) = (reply.part(2)?, reply.part(3)?, reply.part(4)?);
    Ok(Some((how.text()?, at.int()?, until.int()?)))
}

fn is(queue: &mut Queue, now: u64, how: &str, at: u64, until: u64) -> Result<()> {
    let found = outcome(queue, now)?;
    let wanted = (how.to_owned(), at as i64, until as i64);
    ensure!(found == Some(wanted), "at T0 + {}: {found:?}", now - T0);
    Ok(())
}

fn push(queue: &mut Queue, now: u64, options: &str) -> Result<()> {
    let results = queue.items("push", now, words!["", "a", now, "", options])?;
    ensure!(results == ["CREATED"], "{results:?}");
    Ok(())
}

fn run(queue: &mut Queue, now: u64) -> Result<()> {
    let token = queue.new_token();
    ensure!(queue.take(now, 1, &token)? == ["a"]);
    ensure!(queue.items("ack", now, words![token, 1, "a"])? == ["OK"]);
    Ok(())
}

#[test]
fn get_returns_finished_for_an_acked_message_with_a_window() -> Result<()> {
    // Windows from 1 ms to the longest, including both sides of a power of two.
    for window in [
        1,
        2,
        1_023,
        1_024,
        1_025,
        HOUR,
        DAY,
        (1 << 31) + 5,
        30 * DAY,
    ] {
        let mut queue = Queue::start()?;
        push(&mut queue, T0, &format!("window={window}"))?;
        run(&mut queue, T0)?;
        is(&mut queue, T0, "finished", T0, T0 + window)?;
        is(&mut queue, T0 + window - 1, "finished", T0, T0 + window)?;
        let after = outcome(&mut queue, T0 + 2 * window + 1)?;
        ensure!(after.is_none(), "window {window}: {after:?}");
    }
    Ok(())
}

#[test]
fn get_returns_nothing_for_an_acked_message_without_window() -> Result<()> {
    let mut queue = Queue::start()?;
    push(&mut queue, T0, "max_attempts=3")?;
    run(&mut queue, T0)?;
    ensure!(outcome(&mut queue, T0)?.is_none());
    Ok(())
}

#[test]
fn get_returns_cancelled_for_12_s_after_a_cancel() -> Result<()> {
    for options in ["", "window=3600000"] {
        let mut queue = Queue::start()?;
        push(&mut queue, T0, options)?;
        ensure!(queue.items("cancel", T0 + 5, words!["", "a"])? == ["CANCELLED"]);
        is(&mut queue, T0 + 5, "cancelled", T0 + 5, 0)?;
        is(&mut queue, T0 + 12_004, "cancelled", T0 + 5, 0)?;
        ensure!(outcome(&mut queue, T0 + 12_006)?.is_none());
    }
    Ok(())
}

#[test]
fn get_returns_expired_for_a_dropped_message_with_a_window() -> Result<()> {
    let mut queue = Queue::start()?;
    push(
        &mut queue,
        T0,
        "window=3600000 expires=+1000 on_expire=drop",
    )?;
    let late = T0 + 5 * SECOND;
    ensure!(queue.take(late, 1, &token('a'))?.is_empty());
    is(&mut queue, late, "expired", late, T0 + HOUR)
}

#[test]
fn get_returns_expired_if_a_retry_would_be_too_late() -> Result<()> {
    for (verb, more) in [
        ("retry", words![20_000, "why"]),
        ("snooze", words!["+20000"]),
    ] {
        let mut queue = Queue::start()?;
        push(
            &mut queue,
            T0,
            "window=3600000 expires=+1000 on_expire=drop",
        )?;
        ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
        let arguments = [words!["a", token('a')], more].concat();
        ensure!(queue.items(verb, T0 + 5, arguments)? == ["DROPPED"]);
        is(&mut queue, T0 + 5, "expired", T0 + 5, T0 + HOUR)?;
    }
    Ok(())
}

#[test]
fn get_returns_the_latest_end_of_a_reused_id() -> Result<()> {
    let mut queue = Queue::start()?;
    push(&mut queue, T0, "window=3600000")?;
    run(&mut queue, T0 + 1)?;
    push(&mut queue, T0 + 2, "reuse window=1000")?;
    run(&mut queue, T0 + 3)?;
    is(&mut queue, T0 + 4, "finished", T0 + 3, T0 + 1_002)?;
    // Within 12 s the id is cancelled, pushed again and finished.
    push(&mut queue, T0 + 5, "reuse window=1000")?;
    ensure!(queue.items("cancel", T0 + 6, words!["", "a"])? == ["CANCELLED"]);
    is(&mut queue, T0 + 7, "cancelled", T0 + 6, 0)?;
    push(&mut queue, T0 + 8, "window=1000")?;
    run(&mut queue, T0 + 9)?;
    is(&mut queue, T0 + 10, "finished", T0 + 9, T0 + 1_008)?;
    // A longer window follows a short one that still lasts.
    push(&mut queue, T0 + 11, "reuse window=3600000")?;
    run(&mut queue, T0 + 12)?;
    is(&mut queue, T0 + 13, "finished", T0 + 12, T0 + 11 + HOUR)
}

/// The payload of `large` fills the reply, so the claim does not reach `small` and the expired
/// message.
#[test]
fn an_expired_message_has_no_outcome_until_a_claim_takes_it() -> Result<()> {
    let mut queue = Queue::start()?;
    let size = 4 * 1_048_576;
    queue.ok("configure", T0, words!["max_payload_bytes", size])?;
    queue.push(T0, "large", T0 - 2, &"x".repeat(size as usize))?;
    queue.push(T0, "small", T0 - 1, "x")?;
    push(&mut queue, T0, "window=3600000 expires=+1 on_expire=drop")?;
    let late = T0 + SECOND;
    let before = queue.state()?.recent;
    let reply = queue.ok("claim", late, words![9, token('b'), SECOND])?;
    ensure!(reply.deliveries()?.len() == 1);
    ensure!(queue.state()?.recent == before, "it has not ended yet");
    let reply = queue.ok("claim", late + 1, words![9, token('c'), SECOND])?;
    ensure!(reply.deliveries()?.len() == 1);
    is(&mut queue, late + 1, "expired", late + 1, T0 + HOUR)
}
