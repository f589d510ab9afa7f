//! A server whose memory is full refuses the verbs that add data and serves the verbs of consumers.

use anyhow::{Result, ensure};

use super::{plausible, seed};
use crate::queue::{Queue, SECOND, T0, token};
use crate::reply::words;
use crate::scripts::VERBS;

fn full(queue: &mut Queue) -> Result<()> {
    ensure!(
        queue
            .command(words!["CONFIG", "SET", "maxmemory-policy", "noeviction"])?
            .code()
            .is_none()
    );
    ensure!(
        queue
            .command(words!["CONFIG", "SET", "maxmemory", "1"])?
            .code()
            .is_none()
    );
    Ok(())
}

#[test]
fn a_full_server_refuses_verbs_that_add_and_serves_the_rest() -> Result<()> {
    let mut queue = Queue::start()?;
    for row in VERBS {
        let verb = row.name;
        queue.command(words!["CONFIG", "SET", "maxmemory", "0"])?;
        queue.empty()?;
        seed(&mut queue)?;
        full(&mut queue)?;
        let before = queue.contents()?;
        let reply = queue.call(verb, T0, plausible(verb))?;
        if row.is_refused_when_full() {
            ensure!(reply.code() == Some("OOM"), "{verb}: {reply:?}");
            ensure!(queue.contents()? == before, "{verb} left a trace");
        } else {
            ensure!(reply.code().is_none(), "{verb}: {reply:?}");
        }
    }
    Ok(())
}

#[test]
fn a_first_push_into_a_full_server_creates_no_queue() -> Result<()> {
    let mut queue = Queue::start()?;
    full(&mut queue)?;
    let before = queue.contents()?;
    ensure!(queue.call("push", T0, plausible("push"))?.code() == Some("OOM"));
    ensure!(queue.contents()? == before);
    Ok(())
}

#[test]
fn consumers_drain_a_full_server_and_pushes_come_back() -> Result<()> {
    let mut queue = Queue::start()?;
    for id in 0..50 {
        queue.push(T0, &id.to_string(), T0, &"x".repeat(10_000))?;
    }
    full(&mut queue)?;
    ensure!(
        queue
            .call("push", T0, words!["", "more", "+1", "", ""])?
            .code()
            == Some("OOM")
    );
    for node in ["a", "b"] {
        queue.ok("beat", T0, words![node, "stay"])?;
    }
    ensure!(queue.take(T0, 5, &token('r'))?.len() == 5);
    queue.ok("extend", T0, words!["0", token('r'), 60 * SECOND])?;
    queue.ok("retry", T0, words!["0", token('r'), 0, "error"])?;
    queue.ok("release", T0, words!["1", token('r')])?;
    queue.ok("again", T0, words!["10", token('r'), "+0"])?;
    queue.ok("bury", T0, words!["11", token('r'), "why"])?;
    queue.ok("cancel", T0, words!["1", "11"])?;
    let drained = super::drain(&mut queue, T0)?;
    ensure!(
        drained.len() == 48,
        "{} of 48: one is leased, one was cancelled",
        drained.len()
    );
    ensure!(queue.items("ack", T0, words![token('r'), 1, "12"])? == ["OK"]);
    ensure!(
        queue.state()?.messages.len() == 1,
        "messages has more than the placeholder"
    );
    queue.command(words!["CONFIG", "SET", "maxmemory", "0"])?;
    ensure!(queue.push(T0, "more", "+1", "")? == "CREATED");
    Ok(())
}
