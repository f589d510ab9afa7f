//! Snooze: a later due time that is no attempt.

use anyhow::{Context, Result, ensure};

use crate::queue::{Queue, SECOND, T0, token};
use crate::reply::{Reply, words};

fn claimed(queue: &mut Queue, now: u64, letter: char) -> Result<[Reply; 5]> {
    let reply = queue.ok("claim", now, words![1, token(letter), SECOND])?;
    reply.deliveries()?.pop().context("nothing granted")
}

fn options(queue: &mut Queue, id: &str) -> Result<String> {
    let reply = queue.ok("get", T0, words![id])?;
    let pairs = reply.part(1)?.list()?;
    pairs.get(9).context("no message")?.text()
}

#[test]
fn snoozes_are_counted_apart_from_failures_and_crashes() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.ok("push", T0, words!["", "a", T0, "", "max_attempts=3"])?;
    claimed(&mut queue, T0, 'a')?;
    queue.ok("retry", T0, words!["a", token('a'), 0, "first"])?;
    for (count, letter) in [(1, 'b'), (2, 'c')] {
        let now = T0 + 10 * count;
        let [.., attempt, _] = claimed(&mut queue, now, letter)?;
        ensure!(attempt == Reply::Int(2), "{attempt:?}");
        let snooze = words!["a", token(letter), T0 + 10 * (count + 1)];
        let reply = queue.items("snooze", now, snooze)?;
        ensure!(reply == [format!("SCHEDULED {}", T0 + 10 * (count + 1))]);
        let stored = format!("max_attempts=3 snoozes={count}");
        ensure!(options(&mut queue, "a")? == stored);
    }
    let [.., due, attempt, words] = claimed(&mut queue, T0 + 30, 'd')?;
    ensure!(due == (T0 + 30).into() && attempt == Reply::Int(2));
    ensure!(words.text()? == "max_attempts=3 snoozes=2");
    let pairs = queue.ok("get", T0, words!["a"])?;
    ensure!(pairs.part(1)?.list()?[11] == "first".into(), "{pairs:?}");
    let meta = queue.state()?.meta;
    ensure!(meta.get(&"snoozed".into()) == Some(&2.into()));
    Ok(())
}

#[test]
fn a_snooze_takes_a_due_time_of_each_form() -> Result<()> {
    let forms = [
        ("+500", format!("SCHEDULED {}", T0 + 500)),
        ("0", "SCHEDULED 0".to_owned()),
        ("soon", "INVALID".to_owned()),
        ("-5", "INVALID".to_owned()),
    ];
    for (due, expected) in forms {
        let mut queue = Queue::start()?;
        queue.push(T0, "a", T0, "")?;
        claimed(&mut queue, T0, 'a')?;
        let reply = queue.items("snooze", T0, words!["a", token('a'), due])?;
        ensure!(reply[0].starts_with(&expected), "{due}: {reply:?}");
    }
    Ok(())
}

#[test]
fn a_snooze_beyond_the_expiry_ends_the_message() -> Result<()> {
    for (word, reply) in [("dead", "DEAD"), ("drop", "DROPPED")] {
        let mut queue = Queue::start()?;
        let options = format!("expires=+100 on_expire={word}");
        queue.ok("push", T0, words!["", "a", T0, "", options])?;
        claimed(&mut queue, T0, 'a')?;
        ensure!(queue.items("snooze", T0, words!["a", token('a'), "+101"])? == [reply]);
        let meta = queue.state()?.meta;
        ensure!(meta.get(&"expired".into()) == Some(&1.into()));
        ensure!(!meta.contains_key(&"snoozed".into()), "it is not snoozed");
        if reply == "DEAD" {
            let found = queue.ok("get", T0, words!["a"])?;
            ensure!(found.part(1)?.list()?[11] == "expires before it is due again".into());
        }
    }
    Ok(())
}

/// A retry adds `expires_by` behind `snoozes`: the next snooze must still find its number.
#[test]
fn the_number_of_snoozes_is_one_word() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.ok("push", T0, words!["", "a", T0, "", "expires=+5000"])?;
    claimed(&mut queue, T0, 'a')?;
    queue.ok("snooze", T0, words!["a", token('a'), T0])?;
    queue.ok("reschedule", T0, words!["a", T0 - 1, ""])?;
    claimed(&mut queue, T0, 'b')?;
    queue.ok("retry", T0, words!["a", token('b'), 0, ""])?;
    claimed(&mut queue, T0, 'c')?;
    queue.ok("snooze", T0, words!["a", token('c'), T0])?;
    let expected = format!("expires=+5000 expires_by={} snoozes=2", T0 + 4_999);
    ensure!(options(&mut queue, "a")? == expected);
    claimed(&mut queue, T0, 'd')?;
    queue.ok("again", T0, words!["a", token('d'), T0])?;
    ensure!(options(&mut queue, "a")? == "expires=+5000");
    Ok(())
}

#[test]
fn a_snooze_keeps_failures_crashes_and_error() -> Result<()> {
    for stored in ["", "max_attempts=9"] {
        let mut queue = Queue::start()?;
        queue.ok("push", T0, words!["", "a", T0, "", stored])?;
        claimed(&mut queue, T0, 'a')?;
        queue.ok("retry", T0, words!["a", token('a'), 0, "line\nline"])?;
        claimed(&mut queue, T0, 'b')?;
        queue.command(words!["HSET", "dueq:{q}:meta", "last_beat", T0 + SECOND])?;
        queue.ok("reap", T0 + SECOND, words![1])?;
        for letter in ['c', 'd'] {
            let [.., attempt, words] = claimed(&mut queue, T0 + SECOND, letter)?;
            ensure!(attempt == Reply::Int(3), "{attempt:?}");
            ensure!(words.text()?.ends_with("crashes=1"), "{words:?}");
            queue.ok("snooze", T0 + SECOND, words!["a", token(letter), T0])?;
        }
        let reply = queue.ok("get", T0, words!["a"])?;
        let pairs = reply.part(1)?.list()?;
        ensure!(pairs[5].int()? == 1 && pairs[7].int()? == 1, "{pairs:?}");
        ensure!(pairs[11] == "line\nline".into(), "{pairs:?}");
    }
    Ok(())
}
