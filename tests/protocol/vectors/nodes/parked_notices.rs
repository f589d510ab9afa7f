//! Notices while a node is parked: of each earlier head, and of the first ready message.

use anyhow::{Result, ensure};

use crate::frozen;
use crate::queue::{HOUR, Queue, SECOND, T0, token};
use crate::reply::{Text, words};
use crate::vectors::nodes::hints::Listener;

/// Later than the 2 s within which every earlier head is published anyway.
const FAR: u64 = T0 + 10 * SECOND;
const PARK_MS: u64 = 60 * SECOND;

/// A queue without due messages: `s` scheduled in an hour, `l` leased for 30 s, `d` dead.
fn seeded() -> Result<Queue> {
    let mut queue = Queue::start()?;
    for id in ["d", "l"] {
        queue.push(T0, id, T0, "payload")?;
        ensure!(queue.take(T0, 1, &token('t'))? == [id]);
        if id == "d" {
            queue.ok("bury", T0, words!["d", token('t'), "why"])?;
        }
    }
    queue.push(T0, "s", T0 + HOUR, "payload")?;
    Ok(queue)
}

fn park(queue: &mut Queue, now: u64) -> Result<()> {
    queue.ok("beat", now, words!["parked", "stay", PARK_MS])?;
    Ok(())
}

/// The notices that a call causes.
fn notices(queue: &mut Queue, now: u64, verb: &str, words: Vec<Text>) -> Result<Vec<String>> {
    let mut listener = Listener::start(queue)?;
    queue.ok(verb, now, words)?;
    listener.heard(queue)
}

fn of(times: &[u64]) -> Vec<String> {
    times.iter().map(u64::to_string).collect()
}

/// Calls that each make the head earlier than in `seeded`, with the new head.
fn earlier() -> Vec<(&'static str, Vec<Text>, u64)> {
    let (soon, t) = (T0 + 2_001, token('t'));
    vec![
        ("push", words!["", "new", FAR, "", ""], FAR),
        ("push", words!["", "new", soon, "", ""], soon),
        ("push", words!["", "new", FAR, "", "max_attempts=3"], FAR),
        ("push", words!["", "new", T0, "", ""], T0),
        ("push", words!["", "new", T0 - 5, "", ""], T0 - 5),
        ("push", words!["", "new", "+0", "", ""], T0),
        (
            "upsert",
            words!["", "s", FAR, "", "on_conflict=reschedule"],
            FAR,
        ),
        ("upsert", words!["", "s", T0, "", "on_conflict=replace"], T0),
        ("reschedule", words!["s", FAR, ""], FAR),
        ("reschedule", words!["s", T0, ""], T0),
        ("run_now", words!["s"], T0),
        ("requeue", words!["ids", "d"], T0),
        ("requeue", words!["oldest", 10, ""], T0),
        ("release", words!["l", &t], T0),
        ("retry", words!["l", &t, 10_000, "error"], FAR),
        ("retry", words!["l", &t, 0, "error"], T0),
        ("again", words!["l", &t, "+10000"], FAR),
    ]
}

#[test]
fn while_a_node_parks_each_earlier_head_is_published() -> Result<()> {
    for (verb, words, head) in earlier() {
        let mut queue = seeded()?;
        park(&mut queue, T0)?;
        let heard = notices(&mut queue, T0, verb, words.clone())?;
        ensure!(heard == of(&[head]), "{verb} {words:?}: {heard:?}");
    }
    Ok(())
}

#[test]
fn while_no_node_parks_far_and_due_heads_are_not_published() -> Result<()> {
    for (verb, words, _) in earlier() {
        let mut queue = seeded()?;
        let heard = notices(&mut queue, T0, verb, words.clone())?;
        ensure!(heard.is_empty(), "{verb} {words:?}: {heard:?}");
    }
    Ok(())
}

#[test]
fn while_a_node_parks_an_unchanged_head_is_not_published() -> Result<()> {
    let mut queue = seeded()?;
    park(&mut queue, T0)?;
    queue.push(T0, "due", T0, "")?;
    for (verb, words) in [
        ("push", words!["", "later", FAR, "", ""]),
        ("push", words!["", "same", T0, "", ""]),
        ("reschedule", words!["s", FAR, ""]),
        ("run_now", words!["s"]),
        ("beat", words!["other", "stay"]),
        ("configure", words!["max_attempts", 3]),
    ] {
        let heard = notices(&mut queue, T0, verb, words)?;
        ensure!(heard.is_empty(), "{verb}: {heard:?}");
    }
    Ok(())
}

/// Another node that is not parked may promote meanwhile.
#[test]
fn while_a_node_parks_the_first_ready_message_is_published() -> Result<()> {
    let mut queue = seeded()?;
    queue.push(T0, "due", T0, "")?;
    park(&mut queue, T0)?;
    // Promote first publishes the head that it left. The common part of the scripts then publishes
    // the present time for the ready message.
    let heard = notices(&mut queue, T0 + 1, "promote", words![1])?;
    ensure!(heard == of(&[T0 + HOUR, T0 + 1]), "{heard:?}");

    queue.push(T0 + 1, "second", T0 + 1, "")?;
    let heard = notices(&mut queue, T0 + 1, "promote", words![1])?;
    ensure!(heard == of(&[T0 + HOUR]), "not the first: {heard:?}");

    let heard = notices(&mut queue, T0 + 1, "push", words!["", "new", FAR, "", ""])?;
    ensure!(heard == of(&[FAR]), "beside ready messages: {heard:?}");
    let heard = notices(
        &mut queue,
        T0 + 1,
        "push",
        words!["", "due", T0 - 1, "", ""],
    )?;
    ensure!(heard.is_empty(), "it exists: {heard:?}");
    Ok(())
}

#[test]
fn of_two_due_messages_the_earlier_head_is_published() -> Result<()> {
    let mut queue = seeded()?;
    for (id, due) in [("a", T0 - 2), ("b", T0 - 1)] {
        queue.push(T0, id, due, "")?;
    }
    park(&mut queue, T0)?;
    // One message becomes ready, and the other is the new head. The head has been due for longer
    // than the present time that stands for the ready message.
    let heard = notices(&mut queue, T0, "promote", words![1])?;
    ensure!(heard == of(&[T0 - 1]), "{heard:?}");
    Ok(())
}

#[test]
fn while_a_node_parks_a_reaped_message_is_published() -> Result<()> {
    let now = T0 + 30 * SECOND;
    for parks in [true, false] {
        let mut queue = seeded()?;
        if parks {
            park(&mut queue, T0)?;
        }
        queue.ok("beat", now, words!["other", "stay"])?;
        let heard = notices(&mut queue, now, "reap", words![10])?;
        let expected = if parks { of(&[T0]) } else { of(&[]) };
        ensure!(heard == expected, "parked: {parks}: {heard:?}");
    }
    Ok(())
}

/// A resume publishes the head as if it had become earlier.
#[test]
fn while_a_node_parks_resume_publishes_any_head() -> Result<()> {
    for (due, parks, published) in [
        (T0 + HOUR, true, Some(T0 + HOUR)),
        (T0, true, Some(T0)),
        (T0 + HOUR, false, None),
        (T0, false, None),
    ] {
        let mut queue = seeded()?;
        if parks {
            park(&mut queue, T0)?;
        }
        queue.ok("pause", T0, words![])?;
        let push = words!["", "new", due, "", ""];
        let heard = notices(&mut queue, T0, "push", push)?;
        ensure!(heard.is_empty(), "a paused queue published {heard:?}");
        let heard = notices(&mut queue, T0, "resume", words![])?;
        let published: Vec<u64> = published.into_iter().collect();
        ensure!(heard == of(&published), "{due}: {heard:?}");
    }
    Ok(())
}

/// Only a ready message waits, so the notice has the present time.
#[test]
fn while_a_node_parks_resume_publishes_ready_messages() -> Result<()> {
    let mut queue = seeded()?;
    queue.push(T0, "r", T0, "")?;
    queue.ok("promote", T0, words![1])?;
    park(&mut queue, T0)?;
    queue.ok("pause", T0, words![])?;
    let heard = notices(&mut queue, T0 + 7, "resume", words![])?;
    ensure!(heard == of(&[T0 + 7]), "{heard:?}");
    Ok(())
}

/// The clock went back, so a claim moves a ready message back to scheduled.
#[test]
fn while_a_node_parks_a_message_put_back_is_published() -> Result<()> {
    let mut queue = seeded()?;
    queue.push(T0, "r", FAR, "")?;
    queue.ok("promote", FAR, words![1])?;
    park(&mut queue, T0)?;
    let token = queue.new_token();
    let heard = notices(&mut queue, T0, "claim", words![1, token, SECOND])?;
    ensure!(heard == of(&[FAR]), "{heard:?}");
    Ok(())
}

/// Without its placeholder the ready list looks empty to the scripts.
#[test]
fn while_a_node_parks_a_repaired_ready_list_is_published() -> Result<()> {
    let mut queue = seeded()?;
    queue.push(T0, "r", T0, "")?;
    queue.ok("promote", T0, words![1])?;
    queue.command(words!["LPOP", "dueq:{q}:ready"])?;
    park(&mut queue, T0)?;
    let heard = notices(&mut queue, T0, "verify", words![""])?;
    ensure!(heard.is_empty(), "a check published {heard:?}");
    let heard = notices(&mut queue, T0, "verify", words!["1"])?;
    ensure!(heard == of(&[T0]), "{heard:?}");
    Ok(())
}

#[test]
fn while_a_node_parks_reads_publish_nothing() -> Result<()> {
    let mut queue = seeded()?;
    queue.push(T0, "due", T0, "")?;
    park(&mut queue, T0)?;
    for (verb, words) in [
        ("get", words!["due"]),
        ("peek", words!["scheduled", "", 10]),
        ("stats", words![]),
        ("audit", words!["messages", 0, 10, ""]),
    ] {
        let heard = notices(&mut queue, T0, verb, words)?;
        ensure!(heard.is_empty(), "{verb}: {heard:?}");
    }
    Ok(())
}

#[test]
fn notices_for_parked_nodes_end_at_parked_until() -> Result<()> {
    for (after, is_published) in [(PARK_MS - 1, true), (PARK_MS, false), (PARK_MS + 1, false)] {
        let mut queue = seeded()?;
        park(&mut queue, T0)?;
        let due = T0 + after + 10 * SECOND;
        let push = words!["", "new", due, "", ""];
        let heard = notices(&mut queue, T0 + after, "push", push)?;
        ensure!(
            heard.len() == usize::from(is_published),
            "{after}: {heard:?}"
        );
    }
    Ok(())
}

/// Another node may still be parked, so scripts continue to publish.
#[test]
fn notices_continue_when_one_parked_node_beats_or_leaves() -> Result<()> {
    for word in ["stay", "leave"] {
        let mut queue = seeded()?;
        park(&mut queue, T0)?;
        queue.ok("beat", T0 + 1, words!["parked", word])?;
        let push = words!["", "new", FAR, "", ""];
        let heard = notices(&mut queue, T0 + 1, "push", push)?;
        ensure!(heard == of(&[FAR]), "{word}: {heard:?}");
    }
    Ok(())
}

/// After a step back of the clock, scripts publish notices that nobody needs, until a beat. After a
/// jump forward they publish none, and the node is late by at most its parking time.
#[test]
fn a_clock_that_moves_ends_notices_or_prolongs_them() -> Result<()> {
    let mut queue = seeded()?;
    park(&mut queue, T0 + HOUR / 2)?;
    let push = |id: &str, due: u64| words!["", id, due, "", ""];
    let heard = notices(&mut queue, T0, "push", push("back", FAR + 2))?;
    ensure!(heard == of(&[FAR + 2]), "before the beat: {heard:?}");
    queue.ok("beat", T0, words!["other", "stay"])?;
    let heard = notices(&mut queue, T0, "push", push("beat", FAR + 1))?;
    ensure!(heard.is_empty(), "after the beat: {heard:?}");

    park(&mut queue, T0)?;
    let heard = notices(&mut queue, T0, "push", push("parked", FAR))?;
    ensure!(heard == of(&[FAR]), "parked anew: {heard:?}");
    let forward = T0 + PARK_MS;
    let heard = notices(&mut queue, forward, "push", push("forward", T0 + 1))?;
    ensure!(heard.is_empty(), "after a jump forward: {heard:?}");
    Ok(())
}

/// Release 0.1 publishes by its own rule: a parked node learns of these messages only at its next
/// beat.
#[test]
fn frozen_producers_publish_only_heads_within_2_s() -> Result<()> {
    let frozen = frozen::scripts()?;
    for (due, heard_of) in [
        (FAR, false),
        (T0 + 2_002, false),
        (T0 + 2_000, true),
        (T0, false),
    ] {
        let mut queue = seeded()?;
        queue.load("push", &frozen["push"])?;
        queue.load("reschedule", &frozen["reschedule"])?;
        park(&mut queue, T0)?;
        let expected = if heard_of { of(&[due]) } else { of(&[]) };
        let push = words!["", "new", due, "", ""];
        let heard = notices(&mut queue, T0, "push", push)?;
        ensure!(heard == expected, "push for {due}: {heard:?}");
        let earlier = words!["s", due - 1, ""];
        let heard = notices(&mut queue, T0, "reschedule", earlier)?;
        let expected = if heard_of { of(&[due - 1]) } else { of(&[]) };
        ensure!(heard == expected, "reschedule to {}: {heard:?}", due - 1);
        // The next beat of the parked node returns the head, and wakes nodes if the head is due.
        queue.command(words!["DEL", "dueq:{q}:wake"])?;
        let beat = queue.ok("beat", T0 + 9 * SECOND, words!["parked", "stay"])?;
        let head = crate::reply::Header::of(&beat)?.head;
        ensure!(head == (due - 1) as i64, "{head}");
    }
    Ok(())
}
