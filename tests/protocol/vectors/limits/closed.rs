//! Queues that are closed until some time.

use anyhow::{Result, ensure};

use crate::queue::{Queue, SECOND, T0, token};
use crate::reply::{Header, Text, words};
use crate::vectors::nodes::hints::Listener;
use crate::vectors::{claimed, expect};

const OPENS: u64 = T0 + 500;

/// A queue with the message `r` ready and `s` scheduled in 100 ms, without wake-up tokens.
fn seeded() -> Result<Queue> {
    let mut queue = Queue::start()?;
    queue.push(T0, "r", T0, "")?;
    queue.ok("promote", T0, words![10])?;
    queue.push(T0, "s", T0 + 100, "")?;
    queue.command(words!["DEL", "dueq:{q}:wake"])?;
    Ok(queue)
}

fn close(queue: &mut Queue, now: u64, period_ms: u64) -> Result<String> {
    queue.ok("pause", now, words![period_ms])?.part(1)?.text()
}

#[test]
fn a_closed_queue_publishes_its_opening_time() -> Result<()> {
    let mut queue = seeded()?;
    let mut listener = Listener::start(&queue)?;
    close(&mut queue, T0, 500)?;
    ensure!(listener.heard(&mut queue)? == [OPENS.to_string()]);
    // Messages that are due earlier change nothing: the queue opens at the same time.
    queue.push(T0, "due", T0 - 5, "")?;
    queue.push(T0, "soon", T0 + 50, "")?;
    ensure!(listener.heard(&mut queue)?.is_empty());
    ensure!(queue.state()?.wake.is_empty(), "a closed queue woke a node");
    close(&mut queue, T0, 2_001)?;
    ensure!(
        listener.heard(&mut queue)?.is_empty(),
        "it opens in 2,001 ms"
    );

    queue.ok("resume", T0, words![])?;
    ensure!(queue.state()?.wake.len() == 2, "resume must wake nodes");
    ensure!(queue.take(T0, 9, &token('a'))? == ["r", "due"]);
    Ok(())
}

#[test]
fn a_message_due_after_the_opening_is_announced() -> Result<()> {
    let mut queue = Queue::start()?;
    close(&mut queue, T0, 500)?;
    let mut listener = Listener::start(&queue)?;
    queue.push(T0, "later", OPENS + 100, "")?;
    queue.push(T0, "earlier", OPENS + 50, "")?;
    queue.push(T0, "before", OPENS - 50, "")?;
    queue.push(T0, "no news", OPENS - 100, "")?;
    let expected = [OPENS + 100, OPENS + 50, OPENS].map(|ms| ms.to_string());
    ensure!(listener.heard(&mut queue)? == expected);
    Ok(())
}

/// A closing time in the past, or one that dueq did not write, closes nothing.
#[test]
fn past_and_foreign_closing_times_have_no_effect() -> Result<()> {
    for value in ["x", "", "0", "-1", "nan", &T0.to_string()] {
        let mut queue = seeded()?;
        queue.command(words!["HSET", "dueq:{q}:meta", "closed_until", value])?;
        ensure!(queue.take(T0, 1, &token('a'))? == ["r"], "{value:?}");
    }
    Ok(())
}

/// The clock may go back to before an opening that has passed already.
#[test]
fn a_resume_removes_an_opening_time_that_has_passed() -> Result<()> {
    let mut queue = seeded()?;
    close(&mut queue, T0, 500)?;
    queue.ok("resume", OPENS + 5, words![])?;
    let meta = queue.state()?.meta;
    for field in ["closed_until", "break_until"] {
        ensure!(!meta.contains_key(&field.into()), "{meta:?}");
    }
    ensure!(queue.take(T0 + 1, 1, &token('a'))? == ["r"]);
    Ok(())
}

/// The closing by the rate ends with a new rate, and with a clock that goes back. A break that has
/// ended must not close the queue in its place.
#[test]
fn an_ended_break_does_not_close_the_queue_again() -> Result<()> {
    type Way = fn(&mut Queue) -> Result<crate::reply::Reply>;
    let ways: [Way; 2] = [
        |queue| queue.ok("configure", T0, words!["rate", ""]),
        |queue| queue.ok("beat", T0, words!["node", "stay"]),
    ];
    for way in ways {
        let mut queue = seeded()?;
        queue.ok("beat", T0 + 50, words!["node", "stay"])?;
        let meta = words![
            "break_until",
            T0 - 5,
            "rate_until",
            OPENS,
            "closed_until",
            OPENS
        ];
        let write = [words!["HSET", "dueq:{q}:meta"], meta].concat();
        queue.command(write)?;
        let reply = way(&mut queue)?;
        let head = Header::of(&reply)?.head;
        ensure!(head == (T0 + 100) as i64, "{reply:?}");
        ensure!(queue.take(T0, 1, &token('a'))? == ["r"]);
    }
    Ok(())
}

/// A queue with 64 leased messages (token `a`) and a later one that is due.
fn busy() -> Result<Queue> {
    let mut queue = Queue::start()?;
    for number in 0..64 {
        queue.push(T0, &format!("{number:02}"), T0 - 100 + number, "")?;
    }
    queue.ok("claim", T0, words![64, token('a'), 60 * SECOND])?;
    queue.push(T0, "later", T0, "")?;
    queue.command(words!["DEL", "dueq:{q}:wake"])?;
    Ok(queue)
}

#[test]
fn many_throttles_close_the_queue_until_the_latest_time() -> Result<()> {
    let mut queue = busy()?;
    let mut listener = Listener::start(&queue)?;
    let items = (0..64).flat_map(|number| {
        let wait = if number == 9 { 1_500 } else { 1_000 };
        words![format!("{number:02}"), token('a'), wait]
    });
    let replies = queue.items("throttle", T0, items.collect())?;
    let opens = T0 + 1_500;
    ensure!(replies == vec![format!("OK {opens}"); 64], "{replies:?}");
    ensure!(listener.heard(&mut queue)? == [opens.to_string()]);
    ensure!(claimed(&mut queue, opens - 1, 99)?.is_empty());
    let ids = claimed(&mut queue, opens, 99)?;
    let first: Vec<_> = (0..64).map(|number| format!("{number:02}")).collect();
    ensure!(ids[..64] == first && ids[64] == "later", "{ids:?}");
    let meta = queue.state()?.meta;
    ensure!(meta.get(&"throttled".into()) == Some(&64.into()));
    ensure!(queue.state()?.attrs.len() == 1, "a throttle is no failure");
    Ok(())
}

/// Claims take ready messages first, so a throttle moves the ready ones back to the scheduled set.
#[test]
fn returned_messages_are_claimed_before_ready_ones() -> Result<()> {
    let mut queue = busy()?;
    queue.push(T0, "ready, too", T0 - 1, "")?;
    queue.ok("promote", T0, words![10])?;
    ensure!(queue.state()?.ready.len() == 3);
    queue.ok("throttle", T0, words!["00", token('a'), 500])?;
    ensure!(queue.state()?.ready.len() == 1);
    let ids = claimed(&mut queue, T0 + 500, 9)?;
    ensure!(ids == ["00", "ready, too", "later"], "{ids:?}");
    Ok(())
}

#[test]
fn throttle_without_a_delivery_closes_the_queue() -> Result<()> {
    let mut queue = Queue::start()?;
    let absent = queue.ok("throttle", T0, words!["close", 500])?;
    ensure!(absent.part(1)?.text()? == "OK 0");
    ensure!(queue.state()?.meta.len() == 1, "it created a queue");

    let mut queue = busy()?;
    let before = queue.state()?;
    let reply = queue.ok("throttle", T0, words!["close", 500])?;
    let opens = T0 + 500;
    ensure!(reply.part(1)?.text()? == format!("OK {opens}"));
    ensure!(Header::of(&reply)?.head == opens as i64);
    expect(&mut queue, before, |state| {
        for field in ["closed_until", "break_until"] {
            state.meta.insert(field.into(), Text::from(opens));
        }
        crate::vectors::count(state, "seq", 1);
    })?;
    ensure!(claimed(&mut queue, opens, 9)? == ["later"]);
    Ok(())
}
