//! Calls whose messages share their options or windows, and calls that only begin so: each message
//! gets what a call of its own would give it.

use anyhow::{Result, ensure};

use crate::queue::{HOUR, Queue, SECOND, T0, attempt, token};
use crate::reply::{Text, words};
use crate::state::KEYS;
use crate::vectors::seed;

const WINDOW: &str = "window=3600000";

/// A push of these ids, each with its options.
fn items(items: &[(&str, &str)]) -> Vec<Text> {
    let items = items.iter();
    let items = items.flat_map(|(id, options)| words![*id, "+20000", "payload", *options]);
    words![""].into_iter().chain(items).collect()
}

fn push(queue: &mut Queue, now: u64, messages: &[(&str, &str)]) -> Result<Vec<String>> {
    queue.items("push", now, items(messages))
}

/// The keys after one push of `messages`, and after a push of each of them. The counter `seq` is
/// left out: it counts calls.
fn ensure_as_one_by_one(messages: &[(&str, &str)], wanted: &[&str]) -> Result<()> {
    let mut together = Queue::start()?;
    seed(&mut together)?;
    let found = push(&mut together, T0, messages)?;
    ensure!(found == wanted, "{messages:?}: {found:?}");
    let mut alone = Queue::start()?;
    seed(&mut alone)?;
    for message in messages {
        push(&mut alone, T0, std::slice::from_ref(message))?;
    }
    let [mut together, mut alone] = [together.state()?, alone.state()?];
    for state in [&mut together, &mut alone] {
        state
            .meta
            .retain(|field, _| *field != "seq".into() && *field != "incarnation".into());
    }
    ensure!(
        together.difference(&alone).is_none(),
        "{messages:?}: {}",
        together.difference(&alone).unwrap_or_default()
    );
    Ok(())
}

#[test]
fn shared_options_are_stored_as_by_lone_pushes() -> Result<()> {
    for options in [
        WINDOW,
        "max_attempts=3",
        "reuse",
        "on_conflict=keep",
        "expires=+60000 on_expire=drop",
        "expires=+1 window=5000 max_attempts=2 reuse",
        &format!("expires={}", T0 + HOUR),
        "cost=3",
    ] {
        let messages = ["a", "b", "c"].map(|id| (id, options));
        ensure_as_one_by_one(&messages, &["CREATED"; 3])?;
        ensure_as_one_by_one(&messages[..1], &["CREATED"])?;
    }
    Ok(())
}

#[test]
fn options_that_differ_are_stored_with_their_messages() -> Result<()> {
    for messages in [
        [("a", WINDOW), ("b", ""), ("c", "max_attempts=2")],
        [("a", ""), ("b", WINDOW), ("c", WINDOW)],
        [("a", WINDOW), ("b", WINDOW), ("c", "window=3600001")],
        [
            ("a", "max_attempts=2"),
            ("b", "max_attempts=2"),
            ("c", "expires=+5"),
        ],
    ] {
        ensure_as_one_by_one(&messages, &["CREATED"; 3])?;
    }
    Ok(())
}

#[test]
fn an_id_given_twice_with_options_is_stored_once() -> Result<()> {
    let messages = [("a", WINDOW), ("b", WINDOW), ("a", WINDOW)];
    ensure_as_one_by_one(&messages, &["CREATED", "CREATED", "EXISTS scheduled"])
}

#[test]
fn shared_options_that_a_push_refuses_store_nothing() -> Result<()> {
    for (options, wanted) in [
        ("on_conflict=replace", "INVALID push takes no"),
        ("window=0", "INVALID window"),
        ("color=red", "INVALID option"),
        (&*format!("expires={}", T0 + SECOND), "INVALID expires"),
        ("cost=6", "INVALID cost"),
        (&*format!("undo={T0}"), "USED"),
    ] {
        let mut queue = Queue::start()?;
        seed(&mut queue)?;
        queue.ok("configure", T0, words!["rate", "5/1000/5"])?;
        let before = queue.contents()?;
        let found = push(&mut queue, T0, &[("a", options), ("b", options)])?;
        ensure!(found.iter().all(|one| one.starts_with(wanted)), "{found:?}");
        ensure!(queue.contents()? == before, "{options} left a trace");
    }
    Ok(())
}

#[test]
fn a_batch_creates_what_no_window_remembers() -> Result<()> {
    let mut queue = Queue::start()?;
    push(&mut queue, T0, &[("a", WINDOW), ("b", WINDOW)])?;
    let later = T0 + 30 * SECOND;
    ensure!(queue.take(later, 2, &token('a'))? == ["a", "b"]);
    ensure!(queue.items("ack", later, words![token('a'), 2, "a", "b"])? == ["OK", "OK"]);
    let again = [("a", WINDOW), ("c", WINDOW), ("b", WINDOW)];
    let remembered = format!("REMEMBERED {}", T0 + HOUR);
    let found = push(&mut queue, T0 + HOUR - 1, &again)?;
    ensure!(found == [&remembered, "CREATED", &remembered], "{found:?}");
    let found = push(&mut queue, T0 + HOUR, &again)?;
    ensure!(
        found == ["CREATED", "EXISTS scheduled", "CREATED"],
        "{found:?}"
    );
    Ok(())
}

#[test]
fn a_batch_begins_as_many_windows_as_the_queue_may_remember() -> Result<()> {
    for (most, wanted) in [
        (3_u64, "CREATED"),
        (2, "FULL this queue may remember 2 ids"),
    ] {
        let mut queue = Queue::start()?;
        queue.ok("configure", T0, words!["max_remembered", most])?;
        let messages = ["a", "b", "c"].map(|id| (id, WINDOW));
        let found = push(&mut queue, T0, &messages)?;
        ensure!(found == ["CREATED", "CREATED", wanted], "{found:?}");
        ensure!(queue.state()?.messages.len() as u64 == most + 1);
    }
    Ok(())
}

/// Near their due, a call is remembered as a whole.
#[test]
fn a_repeated_batch_with_options_creates_nothing() -> Result<()> {
    let mut queue = Queue::start()?;
    let near = |id: &str| words![id, "+5", "payload", "max_attempts=3"];
    let call = [words![attempt(T0, 1)], near("a"), near("b")].concat();
    ensure!(queue.items("push", T0, call.clone())? == ["CREATED", "CREATED"]);
    ensure!(queue.take(T0 + 5, 1, &token('a'))? == ["a"]);
    queue.ok("ack", T0 + 5, words![token('a'), 1, "a"])?;
    ensure!(queue.items("push", T0 + 6, call)? == ["FINISHED", "EXISTS ready"]);
    Ok(())
}

#[test]
fn a_wrong_type_stops_a_push_with_options_in_time() -> Result<()> {
    for messages in [&[("a", WINDOW)][..], &[("a", WINDOW), ("b", WINDOW)]] {
        for key in KEYS.iter().filter(|key| **key != "nodes") {
            let mut queue = Queue::start()?;
            seed(&mut queue)?;
            let key = queue.key(key);
            queue.command(words!["SET", &key, "somebody else's"])?;
            let before = queue.contents()?;
            let reply = queue.call("push", T0, items(messages))?;
            ensure!(reply.code() == Some("WRONGTYPE"), "{key}: {reply:?}");
            ensure!(
                queue.contents()? == before,
                "{key}: it failed after a write"
            );
        }
    }
    Ok(())
}

/// Pushes `a`, `b` and `c` with these options, and claims them with the token `a`.
fn claimed(options: [&str; 3]) -> Result<Queue> {
    let mut queue = Queue::start()?;
    let [a, b, c] = options;
    push(&mut queue, T0, &[("a", a), ("b", b), ("c", c)])?;
    ensure!(queue.take(T0 + 20 * SECOND, 3, &token('a'))? == ["a", "b", "c"]);
    Ok(queue)
}

/// Until when the window of an id lasts whose message was acked; 0 if nothing is remembered.
fn window_of_finished(queue: &mut Queue, now: u64, id: &str) -> Result<i64> {
    let reply = queue.ok("get", now, words![id])?;
    if reply.list()?.len() == 2 {
        return Ok(0);
    }
    ensure!(reply.part(2)?.text()? == "finished", "{reply:?}");
    reply.part(4)?.int()
}

#[test]
fn an_ack_remembers_the_end_of_each_delivery_with_a_window() -> Result<()> {
    let short = "window=60000";
    for options in [
        [WINDOW; 3],
        [short, WINDOW, WINDOW],
        ["", WINDOW, WINDOW],
        [WINDOW, WINDOW, ""],
        ["max_attempts=3"; 3],
    ] {
        for ids in [&["a", "b", "c"][..], &["a", "b", "c", "b"]] {
            let mut queue = claimed(options)?;
            let acks = ids.iter().map(|id| Text::from(*id));
            let acks = [words![token('a'), ids.len() as u64], acks.collect()].concat();
            let now = T0 + 21 * SECOND;
            let found = queue.items("ack", now, acks)?;
            ensure!(
                found == ["OK", "OK", "OK", "GONE"][..ids.len()],
                "{found:?}"
            );
            for (id, options) in ["a", "b", "c"].iter().zip(options) {
                let wanted = match options {
                    WINDOW => T0 + HOUR,
                    "window=60000" => T0 + 60 * SECOND,
                    _ => 0,
                };
                let until = window_of_finished(&mut queue, now, id)?;
                ensure!(until == wanted as i64, "{options:?}, {id}: {until}");
                if wanted > 0 {
                    let last = window_of_finished(&mut queue, wanted - 1, id)?;
                    ensure!(last == until, "{options:?}, {id}: it is forgotten");
                }
            }
            ensure!(queue.state()?.claims.len() == 1, "{options:?}");
        }
    }
    Ok(())
}

/// A 0 before the due in a claim says that a window remembers the id. The due time 0 is none.
#[test]
fn a_delivery_due_at_0_has_no_window() -> Result<()> {
    let mut queue = Queue::start()?;
    push(&mut queue, T0, &[("a", WINDOW)])?;
    let late = T0 + 20 * SECOND;
    ensure!(queue.take(late, 1, &token('a'))? == ["a"]);
    queue.ok("ack", late, words![token('a'), 1, "a"])?;
    let before = queue.state()?.recent;
    ensure!(queue.items("push", late, words!["", "a", 0, "", "reuse"])? == ["CREATED"]);
    ensure!(queue.take(late, 1, &token('b'))? == ["a"]);
    ensure!(queue.items("ack", late + 5, words![token('b'), 1, "a"])? == ["OK"]);
    ensure!(queue.state()?.recent == before);
    Ok(())
}

#[test]
fn a_wrong_type_stops_an_ack_with_windows_in_time() -> Result<()> {
    for key in [
        "claims",
        "messages",
        "attrs",
        "recent",
        "leases",
        "scheduled",
    ] {
        let mut queue = claimed([WINDOW; 3])?;
        let key = queue.key(key);
        queue.command(words!["SET", &key, "somebody else's"])?;
        let before = queue.contents()?;
        let reply = queue.call("ack", T0 + 21 * SECOND, words![token('a'), 2, "a", "b"])?;
        ensure!(reply.code() == Some("WRONGTYPE"), "{key}: {reply:?}");
        ensure!(
            queue.contents()? == before,
            "{key}: it failed after a write"
        );
    }
    Ok(())
}
