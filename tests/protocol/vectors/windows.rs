//! A window: for so long after a push its id creates no other message.

use anyhow::{Result, ensure};

use super::{add, count, ended, expect};
use crate::queue::{DAY, HOUR, Queue, SECOND, T0, attempt, token};
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
fn a_window_is_a_mark_that_outlives_the_ack() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.ok("configure", T0, words!["max_attempts", 20])?;
    let before = queue.state()?;
    ensure!(push(&mut queue, T0, "a", WINDOW)? == "CREATED");
    expect(&mut queue, before, |state| {
        add(&mut state.scheduled, "a", T0);
        state.messages.insert("a".into(), "payload".into());
        let words = format!("0 0 - {WINDOW}\n");
        state.attrs.insert("a".into(), words.into());
        add(&mut state.recent, "\u{5}a", T0 + HOUR);
        let until = (T0 + HOUR).into();
        state.meta.insert("windows_until".into(), until);
        state.wake = vec!["1".into(), "1".into()];
        count(state, "pushed", 1);
        count(state, "seq", 1);
    })?;
    ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
    let before = queue.state()?;
    let held = format!("{}0{T0}", token('a').text());
    ensure!(before.claims.get(&"a".into()) == Some(&held.into()));
    ensure!(queue.items("ack", T0 + SECOND, words![token('a'), 1, "a"])? == ["OK"]);
    expect(&mut queue, before, |state| {
        ended(state, &token('a'));
        state.claims.remove(&"a".into());
        state.messages.remove(&"a".into());
        state.attrs.remove(&"a".into());
        // 2^22 ms is the next power of two above the rest of the window.
        let ends = T0 + SECOND + (1 << 22);
        add(&mut state.recent, "\u{6}Va", ends);
        count(state, "acked", 1);
        count(state, "seq", 1);
    })
}

#[test]
fn a_push_in_the_window_is_remembered_until_its_end() -> Result<()> {
    let mut queue = finished()?;
    let answer = format!("REMEMBERED {}", T0 + HOUR);
    let before = queue.contents()?;
    for options in ["", WINDOW, "max_attempts=2"] {
        ensure!(push(&mut queue, T0 + HOUR - 1, "a", options)? == answer);
    }
    let item = words!["", "a", "+1", "", "on_conflict=replace"];
    ensure!(queue.items("upsert", T0 + HOUR - 1, item)? == std::slice::from_ref(&answer));
    ensure!(queue.contents()? == before, "a refused push left a trace");
    // The window counts from the push, not from the ack.
    ensure!(push(&mut queue, T0 + HOUR, "a", WINDOW)? == "CREATED");
    Ok(())
}

#[test]
fn a_window_answers_before_a_passed_expiry() -> Result<()> {
    let mut queue = finished()?;
    let options = format!("{WINDOW} expires={}", T0 + SECOND);
    let answer = format!("REMEMBERED {}", T0 + HOUR);
    ensure!(push(&mut queue, T0 + 2 * SECOND, "a", &options)? == answer);
    let found = push(&mut queue, T0 + 2 * SECOND, "b", &options)?;
    ensure!(found.starts_with("INVALID "), "{found}");
    Ok(())
}

#[test]
fn reuse_creates_a_message_within_the_window() -> Result<()> {
    let mut queue = finished()?;
    ensure!(push(&mut queue, T0 + 2 * SECOND, "a", "reuse")? == "CREATED");
    ensure!(push(&mut queue, T0 + 2 * SECOND, "a", "reuse")? == "EXISTS scheduled");
    Ok(())
}

#[test]
fn a_repeated_push_is_created_once_without_a_key() -> Result<()> {
    let mut queue = Queue::start()?;
    ensure!(push(&mut queue, T0, "a", WINDOW)? == "CREATED");
    ensure!(push(&mut queue, T0 + 1, "a", WINDOW)? == "EXISTS scheduled");
    ensure!(queue.take(T0 + 1, 1, &token('a'))? == ["a"]);
    ensure!(push(&mut queue, T0 + 2, "a", WINDOW)? == "EXISTS leased");
    queue.ok("ack", T0 + 2, words![token('a'), 1, "a"])?;
    ensure!(push(&mut queue, T0 + 20 * SECOND, "a", WINDOW)?.starts_with("REMEMBERED"));
    // With a key, the repetition of the first call is told so.
    let keyed = words![attempt(T0, 1), "b", T0, "", WINDOW];
    ensure!(queue.items("push", T0, keyed.clone())? == ["CREATED"]);
    ensure!(queue.take(T0, 1, &token('b'))? == ["b"]);
    queue.ok("ack", T0, words![token('b'), 1, "b"])?;
    ensure!(queue.items("push", T0 + 1, keyed)? == ["FINISHED"]);
    Ok(())
}

#[test]
fn cancel_and_purge_end_a_window() -> Result<()> {
    for verb in ["cancel", "purge", "cancel dead", "purge dead"] {
        // The clock goes back by a minute after the call.
        for later in [T0 + 2, T0 - 60 * SECOND] {
            let mut queue = Queue::start()?;
            ensure!(push(&mut queue, T0, "a", WINDOW)? == "CREATED");
            if verb.ends_with("dead") {
                ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
                queue.ok("bury", T0, words!["a", token('a'), "why"])?;
            }
            match verb {
                "cancel" => queue.ok("cancel", T0 + 1, words!["", "a"])?,
                "cancel dead" => queue.ok("cancel", T0 + 1, words!["1", "a"])?,
                "purge" => queue.ok("purge", T0 + 1, words!["scheduled", 10])?,
                _ => queue.ok("purge", T0 + 1, words!["dead", 10])?,
            };
            ensure!(push(&mut queue, later, "a", "")? == "CREATED", "{verb}");
        }
    }
    Ok(())
}

#[test]
fn the_death_and_the_trim_of_a_message_leave_its_window() -> Result<()> {
    let mut queue = Queue::start()?;
    ensure!(push(&mut queue, T0, "a", WINDOW)? == "CREATED");
    ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
    queue.ok("bury", T0, words!["a", token('a'), "why"])?;
    ensure!(push(&mut queue, T0, "a", "")? == "EXISTS dead");
    queue.ok("configure", T0, words!["dead_keep_ms", 1])?;
    queue.ok("beat", T0 + 10, words!["node", "stay"])?;
    ensure!(queue.state()?.dead.len() == 1, "it was not trimmed");
    ensure!(push(&mut queue, T0 + 10, "a", "")?.starts_with("REMEMBERED"));
    Ok(())
}

#[test]
fn an_extended_delivery_keeps_the_flag_of_its_window() -> Result<()> {
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
fn max_remembered_bounds_the_names_that_are_remembered() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.ok("configure", T0, words!["max_remembered", 2])?;
    let items = ["a", "b", "c"].map(|id| words![id, T0 + HOUR, "", "window=1000"]);
    let call = |key: &str| [words![key], items.concat()].concat();
    let results = queue.items("push", T0, call(""))?;
    ensure!(
        results[..2] == ["CREATED", "CREATED"] && results[2].starts_with("FULL "),
        "{results:?}"
    );
    ensure!(
        push(&mut queue, T0, "d", "")? == "CREATED",
        "it has no window"
    );
    ensure!(push(&mut queue, T0 + 999, "c", "window=1")?.starts_with("FULL "));
    // Names whose time is over do not count, even if no call has removed them yet.
    ensure!(push(&mut queue, T0 + 1_000, "c", "window=1")? == "CREATED");
    Ok(())
}

#[test]
fn windows_that_are_over_are_forgotten() -> Result<()> {
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
fn a_window_of_a_clock_that_went_back_is_no_memory() -> Result<()> {
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
fn a_change_of_the_map_waits_for_windows() -> Result<()> {
    let mut queue = finished()?;
    let change = words!["change", 0, "7|-|- 203"];
    let reply = queue.ok("remap", T0 + MINUTE, change.clone())?;
    ensure!(reply.part(1)?.text()? == format!("REMEMBERS {}", HOUR - MINUTE));
    let reply = queue.ok("remap", T0 + 2 * HOUR, change)?;
    ensure!(reply.part(1)?.text()? == "DONE");
    Ok(())
}

/// Unreadable fields of meta stop no push, and no write is half done.
#[test]
fn garbage_in_meta_stops_no_push_with_a_window() -> Result<()> {
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
        // The push has replaced an unreadable end of all windows.
        ensure!(named || field == "windows_until", "{found:?}");
    }
    Ok(())
}

/// Random pushes, claims, acks, retries, deaths and cancels: between two messages of an id lies
/// the window of the first, or a cancel.
#[test]
fn at_most_one_message_an_id_and_window() -> Result<()> {
    const LONG: u64 = 20 * SECOND;
    for seed in 0..4 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut queue = Queue::start()?;
        let (mut now, mut ends, mut created) = (T0, [0_u64; 3], 0);
        for step in 0..400 {
            now += random.u64(0..3_000);
            let place = random.usize(0..3);
            let id = ["a", "b", "c"][place];
            match random.u32(0..10) {
                0..=5 => {
                    let key = if random.bool() {
                        attempt(now, step)
                    } else {
                        String::new()
                    };
                    let due = now + random.u64(0..2_000);
                    let item = words![key, id, due, "", format!("window={LONG}")];
                    let result = queue.items("push", now, item)?.remove(0);
                    let here = queue.state()?.messages.contains_key(&id.into());
                    if result == "CREATED" {
                        ensure!(now >= ends[place], "seed {seed}, step {step}: {id} again");
                        (ends[place], created) = (now + LONG, created + 1);
                    } else {
                        let waits = result == format!("REMEMBERED {}", ends[place]);
                        ensure!(here && result.starts_with("EXISTS") || waits, "{result}");
                    }
                }
                6 => {
                    if queue.items("cancel", now, words!["1", id])? == ["CANCELLED"]
                        && ends[place] > 0
                    {
                        ends[place] = 0;
                    }
                }
                _ => {
                    let token = queue.new_token();
                    for id in queue.take(now, 2, &token)? {
                        match random.u32(0..4) {
                            0 => drop(queue.ok("retry", now, words![id, &token, 500, "why"])?),
                            1 => drop(queue.ok("bury", now, words![id, &token, "why"])?),
                            _ => drop(queue.ok("ack", now, words![&token, 1, id])?),
                        }
                    }
                }
            }
        }
        ensure!(created > 30, "seed {seed}: {created} created");
    }
    Ok(())
}

#[test]
fn trims_leave_windows_and_outcomes_that_last() -> Result<()> {
    let mut queue = finished()?;
    let last = T0 + HOUR - 1;
    // A member whose time is over, for each call to trim.
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

#[test]
fn a_repetition_with_reuse_is_recognised() -> Result<()> {
    for ends in ["ack", "cancel"] {
        let mut queue = Queue::start()?;
        let call = words![attempt(T0, 1), "a", T0, "", format!("{WINDOW} reuse")];
        ensure!(queue.items("push", T0, call.clone())? == ["CREATED"]);
        if ends == "ack" {
            ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
            queue.ok("ack", T0 + 1, words![token('a'), 1, "a"])?;
        } else {
            queue.ok("cancel", T0 + 1, words!["", "a"])?;
        }
        ensure!(queue.items("push", T0 + 2, call)? == ["FINISHED"], "{ends}");
    }
    Ok(())
}
