//! `max_leased`: how many messages may be leased at once.

use anyhow::{Context, Result, ensure};

use crate::queue::{Queue, SECOND, T0, token};
use crate::reply::{Header, Text, words};
use crate::vectors::claimed;
use crate::vectors::nodes::hints::Listener;

/// A queue with max_leased 1, `a` leased for 1 s and `b` due. It has no wake-up tokens.
fn full() -> Result<Queue> {
    let mut queue = Queue::start()?;
    queue.ok("configure", T0, words!["max_leased", 1])?;
    queue.ok("beat", T0, words!["node", "stay"])?;
    queue.ok(
        "push",
        T0,
        words!["", "a", T0 - 2, "", "", "b", T0 - 1, "", ""],
    )?;
    let reply = queue.ok("claim", T0, words![9, token('a'), SECOND])?;
    ensure!(reply.deliveries()?.len() == 1 && reply.part(1)?.int()? == 0);
    ensure!(Header::of(&reply)?.head == -1, "{reply:?}");
    queue.command(words!["DEL", "dueq:{q}:wake"])?;
    Ok(queue)
}

fn stat(queue: &mut Queue, now: u64, name: &str) -> Result<i64> {
    let reply = queue.ok("stats", now, words![])?;
    let pairs = reply.part(1)?.list()?;
    let at = pairs
        .iter()
        .position(|item| *item == name.into())
        .context("no such name")?;
    pairs[at + 1].int()
}

#[test]
fn parked_nodes_learn_that_a_full_queue_has_room() -> Result<()> {
    let mut queue = full()?;
    queue.ok("beat", T0, words!["node", "stay", 10_000])?;
    let mut listener = Listener::start(&queue)?;
    queue.push(T0, "c", T0, "")?;
    ensure!(
        listener.heard(&mut queue)?.is_empty(),
        "a full queue published"
    );
    queue.ok("ack", T0, words![token('a'), 1, "a"])?;
    ensure!(listener.heard(&mut queue)? == [(T0 - 1).to_string()]);
    Ok(())
}

/// A message that is in no state counts as leased. Repairing it makes room.
#[test]
fn repair_of_a_lost_message_makes_room_in_a_full_queue() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.ok("configure", T0, words!["max_leased", 1])?;
    queue.push(T0, "lost", T0 - 1, "")?;
    queue.push(T0, "b", T0, "")?;
    queue.command(words!["ZREM", "dueq:{q}:scheduled", "lost"])?;
    ensure!(claimed(&mut queue, T0, 9)?.is_empty());
    queue.command(words!["DEL", "dueq:{q}:wake"])?;
    queue.ok("audit", T0, words!["messages", 0, 100, "1"])?;
    ensure!(queue.state()?.wake.len() == 2, "the repair must wake nodes");
    ensure!(claimed(&mut queue, T0, 9)? == ["b"]);
    Ok(())
}

/// The number of leases decides, not the word `full`: a client of release 0.1 ends leases but
/// leaves the word.
#[test]
fn an_outdated_word_full_does_not_close_the_queue() -> Result<()> {
    let mut queue = full()?;
    queue.ok("ack", T0, words![token('a'), 1, "a"])?;
    queue.command(words!["HSET", "dueq:{q}:meta", "closed_until", "full 0"])?;
    ensure!(claimed(&mut queue, T0, 9)? == ["b"]);
    for value in ["x", "nan", "1.5", "-1", ""] {
        let mut queue = full()?;
        queue.command(words!["HSET", "dueq:{q}:meta", "max_leased", value])?;
        ensure!(claimed(&mut queue, T0, 9)? == ["b"], "{value:?}");
    }
    Ok(())
}

/// A reap ends leases in three ways: a claim's lease, an extended delivery's own lease, and the
/// last crash of a message.
#[test]
fn every_reap_opens_a_full_queue_and_wakes_nodes() -> Result<()> {
    for max_crashes in [0, 5] {
        for extended in [false, true] {
            let mut queue = full()?;
            queue.ok("configure", T0, words!["max_crashes", max_crashes])?;
            if extended {
                queue.ok("extend", T0, words!["a", token('a'), SECOND])?;
            }
            let reply = queue.ok("reap", T0 + SECOND, words![1])?;
            let died = i64::from(max_crashes == 0);
            ensure!(reply.part(1)?.int()? == 1 && reply.part(2)?.int()? == died);
            let case = format!("max_crashes {max_crashes}, extended {extended}");
            ensure!(queue.state()?.wake.len() == 2, "{case}: no wake-up tokens");
            ensure!(stat(&mut queue, T0 + SECOND, "full")? == 0, "{case}");
            let next = if died == 1 { "b" } else { "a" };
            ensure!(claimed(&mut queue, T0 + SECOND, 9)? == [next], "{case}");
        }
    }
    Ok(())
}

/// A queue that is full and also closed by a break opens only when both have ended.
#[test]
fn the_end_of_a_lease_does_not_end_a_break_of_the_queue() -> Result<()> {
    let parent = Text([&token('a').0[..], b"a"].concat());
    let ends: [(&str, Vec<Text>); 7] = [
        ("ack", words![token('a'), 1, "a"]),
        ("ack_push", words![parent, "c", T0, "", ""]),
        ("again", words!["a", token('a'), "+0"]),
        ("retry", words!["a", token('a'), 0, "error"]),
        ("snooze", words!["a", token('a'), "+0"]),
        ("bury", words!["a", token('a'), "why"]),
        ("release", words!["a", token('a')]),
    ];
    for (verb, arguments) in ends {
        let mut queue = full()?;
        queue.ok("throttle", T0, words!["close", 500])?;
        ensure!(stat(&mut queue, T0, "full")? == 1);
        ensure!(stat(&mut queue, T0, "closed_until")? == T0 as i64 + 500);
        let header = Header::of(&queue.ok(verb, T0, arguments)?)?;
        ensure!(header.head == T0 as i64 + 500, "{verb}: {header:?}");
        ensure!(claimed(&mut queue, T0 + 499, 9)?.is_empty(), "{verb}");
        ensure!(claimed(&mut queue, T0 + 500, 9)?.len() == 1, "{verb}");
    }
    Ok(())
}

/// An expired message that a claim ends does not start: it takes no place among the leased ones,
/// and uses no starts of the rate.
#[test]
fn expired_messages_count_neither_as_leased_nor_as_starts() -> Result<()> {
    let head = T0 + 60 * SECOND;
    for limit in [words!["max_leased", 3], words!["rate", "3/1000/3"]] {
        let mut queue = Queue::start()?;
        queue.ok("configure", T0, limit.clone())?;
        let old = words!["old", T0 - 9, "", "expires=+1"];
        let live = words!["a", T0 - 2, "", "", "b", T0 - 1, "", "", "c", head, "", ""];
        // The push came before the expiry, and the claim comes after it.
        queue.ok("push", T0 - 9, [words![""], old, live].concat())?;
        let reply = queue.ok("claim", T0, words![9, token('a'), SECOND])?;
        ensure!(reply.deliveries()?.len() == 2, "{limit:?}: {reply:?}");
        ensure!(
            Header::of(&reply)?.head == head as i64,
            "{limit:?}: {reply:?}"
        );
        let tat = queue.state()?.meta.get(&"tat".into()).cloned();
        let charged = Text::from((T0 + 2 * SECOND) * 1_000); // two starts, a second apart
        ensure!(tat.is_none() || tat == Some(charged), "{tat:?}");
    }
    Ok(())
}
