//! Queues that are closed until some time.

use anyhow::{Result, ensure};

use super::hints::Listener;
use crate::queue::{Queue, T0, token};
use crate::reply::{Header, words};

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
fn closing_and_resume_publish_when_messages_come() -> Result<()> {
    let mut queue = seeded()?;
    let mut listener = Listener::start(&queue)?;
    close(&mut queue, T0, 500)?;
    ensure!(listener.heard(&mut queue)? == [OPENS.to_string()]);
    // Earlier messages change nothing: the queue opens as before.
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
fn a_message_for_after_the_opening_is_announced() -> Result<()> {
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

/// A time that is past, or that dueq did not write, closes nothing.
#[test]
fn past_and_foreign_times_close_nothing() -> Result<()> {
    for value in ["x", "", "0", "-1", "nan", &T0.to_string()] {
        let mut queue = seeded()?;
        queue.command(words!["HSET", "dueq:{q}:meta", "closed_until", value])?;
        ensure!(queue.take(T0, 1, &token('a'))? == ["r"], "{value:?}");
    }
    Ok(())
}

/// The clock may go back to before an opening that has passed.
#[test]
fn resume_forgets_an_opening_that_has_passed() -> Result<()> {
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

/// The opening that the rate chose ends with a new rate, and with a clock that goes back. A break that is over does not
/// close the queue instead.
#[test]
fn a_break_that_is_over_outlives_no_rate() -> Result<()> {
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
