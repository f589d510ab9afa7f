//! The verb held, which reads the grant of a claim again, and the repetition of a claim with its
//! token.

use anyhow::{Result, ensure};

use crate::queue::{Queue, SECOND, T0, token};
use crate::reply::{Reply, words};
use crate::vectors::plausible;

const LEASE: u64 = 30 * SECOND;

/// The parts of held's reply: deadline, ids, payloads, details, max_attempts, and how many more
/// there are.
fn held(queue: &mut Queue, now: u64) -> Result<[Reply; 6]> {
    let reply = queue.ok("held", now, words![token('t')])?;
    let part = |place| reply.part(place).cloned();
    Ok([part(2)?, part(3)?, part(4)?, part(5)?, part(6)?, part(7)?])
}

fn texts<const N: usize>(words: [&str; N]) -> Reply {
    Reply::List(words.map(Reply::from).to_vec())
}

fn claim(queue: &mut Queue, now: u64) -> Result<Reply> {
    queue.call("claim", now, words![10, token('t'), LEASE])
}

/// A queue with three messages. Message `b` has options, failed once and crashed twice.
fn queue() -> Result<Queue> {
    let mut queue = Queue::start()?;
    for (id, options) in [("a", ""), ("b", "max_attempts=5 window=5000"), ("c", "")] {
        queue.ok("push", T0, words!["", id, T0, format!("of {id}"), options])?;
    }
    let attrs = "1 2 1700000000000 max_attempts=5 window=5000\nwhy";
    queue.command(words!["HSET", "dueq:{q}:attrs", "b", attrs])?;
    Ok(queue)
}

#[test]
fn held_returns_the_grant_of_a_lost_reply() -> Result<()> {
    for promoted in [false, true] {
        let mut queue = queue()?;
        if promoted {
            queue.ok("promote", T0, words![10])?;
        }
        queue.push(T0, "later", T0 + SECOND, "")?;
        let granted = claim(&mut queue, T0)?;
        let before = queue.contents()?;
        let [deadline, ids, payloads, details, max_attempts, more] = held(&mut queue, T0 + 5)?;
        ensure!(deadline == *granted.part(2)? && ids == *granted.part(3)?);
        ensure!(payloads == *granted.part(4)? && details == *granted.part(5)?);
        ensure!(max_attempts == *granted.part(6)? && more == 0u64.into());
        ensure!(ids == texts(["a", "b", "c"]), "{ids:?}");
        let of_b = format!("{T0} 4 max_attempts=5 window=5000 crashes=2");
        ensure!(details.part(1)? == &of_b.into(), "{details:?}");
        ensure!(queue.contents()? == before);
    }
    Ok(())
}

#[test]
fn a_repeated_claim_is_held_even_if_no_more_message_is_due() -> Result<()> {
    let mut queue = queue()?;
    claim(&mut queue, T0)?;
    let before = queue.contents()?;
    for state in ["empty", "more", "paused", "limited"] {
        match state {
            "more" => drop(queue.push(T0, "d", T0, "")?),
            "paused" => drop(queue.ok("pause", T0, words![])?),
            "limited" => {
                queue.ok("resume", T0, words![])?;
                queue.ok("configure", T0, words!["max_leased", 3])?;
            }
            _ => ensure!(queue.contents()? == before),
        }
        let before = queue.contents()?;
        let repeated = claim(&mut queue, T0)?;
        ensure!(repeated.code() == Some("HELD"), "{state}: {repeated:?}");
        ensure!(queue.contents()? == before, "{state} left a trace");
    }
    // A claim of 0 messages only fills the wake-up list, so its token is not held.
    let wakes = queue.ok("claim", T0, words![0, token('t'), LEASE])?;
    ensure!(*wakes.part(3)? == texts([]), "{wakes:?}");
    // After the deadline the lease holds its messages until a reap.
    ensure!(claim(&mut queue, T0 + 2 * LEASE)?.code() == Some("HELD"));
    Ok(())
}

#[test]
fn a_token_can_claim_again_after_all_settlements() -> Result<()> {
    let mut queue = queue()?;
    claim(&mut queue, T0)?;
    queue.ok("ack", T0, words![token('t'), 2, "a", "b"])?;
    ensure!(claim(&mut queue, T0)?.code() == Some("HELD"));
    ensure!(held(&mut queue, T0)?[1] == texts(["c"]));
    queue.ok("ack", T0, words![token('t'), 1, "c"])?;
    queue.push(T0, "d", T0, "of d")?;
    let granted = claim(&mut queue, T0)?;
    ensure!(*granted.part(3)? == texts(["d"]), "{granted:?}");
    ensure!(held(&mut queue, T0)?[1] == texts(["d"]));
    Ok(())
}

#[test]
fn held_omits_messages_that_left_the_lease() -> Result<()> {
    let mut queue = queue()?;
    let [deadline, ids, payloads, details, max_attempts, more] = held(&mut queue, T0)?;
    ensure!(deadline == (-1i64).into() && more == 0u64.into());
    ensure!(
        [ids, payloads, details]
            .iter()
            .all(|list| *list == texts([]))
    );
    ensure!(max_attempts == 20u64.into());
    claim(&mut queue, T0)?;
    // The extended message has a lease of its own. The released one was claimed with another token.
    queue.ok("extend", T0, words!["a", token('t'), 60 * SECOND])?;
    queue.ok("release", T0, words!["b", token('t')])?;
    ensure!(held(&mut queue, T0)?[1] == texts(["c"]));
    queue.ok("claim", T0, words![10, token('u'), LEASE])?;
    let [deadline, ids, payloads, details, ..] = held(&mut queue, T0)?;
    ensure!(deadline == (T0 + LEASE).into() && ids == texts(["c"]));
    ensure!(payloads == texts(["of c"]) && details == texts([&format!("{T0} 1 ")]));
    ensure!(queue.items("release", T0, words!["c", token('t')])? == ["OK"]);
    ensure!(held(&mut queue, T0)?[0] == (-1i64).into());
    Ok(())
}

#[test]
fn held_returns_up_to_4_mib_or_else_one_message() -> Result<()> {
    let mut queue = queue()?;
    claim(&mut queue, T0)?;
    let mut sizes = |a: usize, b: usize| -> Result<(Reply, Reply)> {
        for (id, bytes) in [("a", a), ("b", b)] {
            queue.command(words!["HSET", "dueq:{q}:messages", id, "x".repeat(bytes)])?;
        }
        let [_, ids, _, _, _, more] = held(&mut queue, T0)?;
        Ok((ids, more))
    };
    let limit = 4_194_304;
    ensure!(sizes(limit - 14, 10)? == (texts(["a", "b", "c"]), 0u64.into()));
    ensure!(sizes(limit - 13, 10)? == (texts(["a", "b"]), 1u64.into()));
    ensure!(sizes(10, limit)? == (texts(["a"]), 2u64.into()));
    ensure!(sizes(limit + 1, 0)? == (texts(["a"]), 2u64.into()));
    Ok(())
}

#[test]
fn held_needs_a_right_that_producers_lack() -> Result<()> {
    let mut queue = crate::vectors::with_every_state()?;
    let mut user = queue.user(dueq::admin::AclRole::Producer, "q")?;
    let source = crate::scripts::read("held", crate::scripts::verb("held").source)?;
    let keys = crate::queue::keys_of("dueq:{q}");
    let call = [
        words!["EVAL", source, 10],
        keys,
        words![T0],
        plausible("held"),
    ]
    .concat();
    let reply = crate::queue::command(&mut user, &call)?;
    ensure!(
        reply.code().is_some(),
        "a producer reads payloads of a token: {reply:?}"
    );
    Ok(())
}
