//! The option `max_wait` of upsert, which limits how far pushes can postpone a message, and
//! `revive`, which replaces a dead message.

use anyhow::{Result, ensure};

use crate::queue::{HOUR, Queue, SECOND, T0, token};
use crate::reply::{Text, words};
use crate::state::State;

const MODES: [&str; 3] = ["reschedule", "replace", "next"];

/// A queue of layout 3, which one value of on_conflict needs.
pub(crate) fn layout_3() -> Result<Queue> {
    let mut queue = Queue::start()?;
    queue.ok("configure", T0, words!["layout", 3])?;
    Ok(queue)
}

fn upsert(queue: &mut Queue, now: u64, due: &str, payload: &str, options: &str) -> Result<String> {
    let results = queue.items("upsert", now, words!["", "a", due, payload, options])?;
    Ok(results[0].clone())
}

/// The due time of the scheduled message `a`, counted from T0.
fn due(queue: &mut Queue) -> Result<u64> {
    let score = State::score(&queue.state()?.scheduled, &"a".into());
    Ok(score.map_or(0, |score| score as u64 - T0))
}

#[test]
fn later_pushes_postpone_up_to_max_wait_after_the_first() -> Result<()> {
    for mode in MODES {
        let mut queue = layout_3()?;
        let options = format!("on_conflict={mode} max_wait=12000");
        ensure!(upsert(&mut queue, T0, "+5000", "0", &options)? == "CREATED");
        for (now, wanted) in [(4, 9), (8, 12), (11, 12)] {
            ensure!(upsert(&mut queue, T0 + now * SECOND, "+5000", "1", &options)? == "MOVED");
            ensure!(due(&mut queue)? == wanted * SECOND, "{mode} at {now} s");
        }
        // Neither a larger max_wait nor a push without one postpones the limit.
        for more in ["max_wait=900000", ""] {
            let options = format!("on_conflict={mode} {more}");
            ensure!(upsert(&mut queue, T0, "+600000", "2", &options)? == "MOVED");
            ensure!(due(&mut queue)? == 12 * SECOND, "{mode} {more}");
        }
        let attrs = queue.state()?.attrs.get(&"a".into()).cloned();
        let words = format!("0 0 - due_by={}\n", T0 + 12 * SECOND);
        ensure!(attrs == Some(words.into()), "{mode}: {attrs:?}");
        // The run ends the debounce, and the next push begins another one.
        ensure!(queue.take(T0 + 12 * SECOND, 1, &token('a'))? == ["a"]);
        queue.ok("ack", T0 + 12 * SECOND, words![token('a'), 1, "a"])?;
        ensure!(upsert(&mut queue, T0 + 13 * SECOND, "+12000", "3", &options)? == "CREATED");
        ensure!(due(&mut queue)? == 25 * SECOND);
    }
    Ok(())
}

#[test]
fn a_delay_beyond_max_wait_is_invalid() -> Result<()> {
    let mut queue = layout_3()?;
    let before = queue.contents()?;
    for options in [
        "on_conflict=replace max_wait=4999",
        "on_conflict=replace max_wait=0",
        "on_conflict=replace max_wait=3155760000001",
        "on_conflict=replace max_wait=-1",
        "on_conflict=keep max_wait=9000",
        "on_conflict=reschedule revive",
    ] {
        let found = upsert(&mut queue, T0, "+5000", "", options)?;
        ensure!(found.starts_with("INVALID "), "{options}: {found}");
    }
    for options in ["max_wait=9000", "revive", "on_conflict=next"] {
        let found = queue.items("push", T0, words!["", "a", "+1", "", options])?;
        ensure!(found[0].starts_with("INVALID "), "{options}: {found:?}");
    }
    ensure!(queue.contents()? == before, "a refused item left a trace");
    Ok(())
}

#[test]
fn a_failed_run_of_the_handler_ends_the_debounce() -> Result<()> {
    for mode in MODES {
        let mut queue = layout_3()?;
        let options = format!("on_conflict={mode} max_wait=1000");
        ensure!(upsert(&mut queue, T0, "+0", "0", &options)? == "CREATED");
        ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
        let later = T0 + 20 * SECOND;
        queue.ok("retry", T0, words!["a", token('a'), 60 * SECOND, "why"])?;
        // The limit of the first debounce has passed. It must not make the message due at once.
        ensure!(upsert(&mut queue, later, "+1000", "1", &options)? == "MOVED");
        ensure!(
            due(&mut queue)? == 21 * SECOND,
            "{mode}: {}",
            due(&mut queue)?
        );
        if mode == "reschedule" {
            continue;
        }
        // A replaced message has not run, so this push begins another debounce.
        ensure!(upsert(&mut queue, later + 500, "+1000", "1", &options)? == "MOVED");
        ensure!(
            due(&mut queue)? == 21 * SECOND,
            "{mode}: {}",
            due(&mut queue)?
        );
    }
    Ok(())
}

#[test]
fn two_items_of_one_call_debounce_like_two_calls() -> Result<()> {
    let both = |mode: &str, waits: [&str; 2], dues: [u64; 2]| -> Vec<Vec<Text>> {
        let item = |i: usize| {
            let options = format!("on_conflict={mode} {}", waits[i]);
            words!["a", T0 + dues[i], i.to_string(), options]
        };
        vec![item(0), item(1)]
    };
    for mode in MODES {
        for start in ["absent", "waiting", "failed"] {
            for waits in [
                ["max_wait=2000", ""],
                ["max_wait=2000", "max_wait=9000"],
                ["", "max_wait=9000"],
            ] {
                let mut states = Vec::new();
                for together in [true, false] {
                    let mut queue = layout_3()?;
                    if start != "absent" {
                        queue.push(T0, "a", T0, "old")?;
                    }
                    if start == "failed" {
                        ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
                        queue.ok("retry", T0, words!["a", token('a'), HOUR, "why"])?;
                    }
                    let items = both(mode, waits, [1_000, 8_000]);
                    if together {
                        queue.ok("upsert", T0, [words![""], items.concat()].concat())?;
                    } else {
                        for item in items {
                            queue.ok("upsert", T0, [words![""], item].concat())?;
                        }
                    }
                    let mut state = queue.state()?;
                    state.meta.clear();
                    state.wake.clear();
                    states.push(state);
                }
                let difference = states[0].difference(&states[1]);
                ensure!(
                    difference.is_none(),
                    "{mode}, {start}, {waits:?}: {difference:?}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn a_revive_with_a_passed_expiry_is_invalid() -> Result<()> {
    for mode in ["replace", "next"] {
        let mut queue = layout_3()?;
        queue.push(T0, "a", T0, "old")?;
        ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
        queue.ok("bury", T0, words!["a", token('a'), "why"])?;
        let options = format!("on_conflict={mode} revive expires={}", T0 - 1);
        let found = upsert(&mut queue, T0, "+0", "new", &options)?;
        ensure!(found.starts_with("INVALID "), "{mode}: {found}");
    }
    Ok(())
}

#[test]
fn a_repeated_revive_does_not_run_its_message_twice() -> Result<()> {
    for mode in ["replace", "next"] {
        let mut queue = layout_3()?;
        queue.push(T0, "a", T0, "old")?;
        ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
        queue.ok("bury", T0, words!["a", token('a'), "why"])?;
        let options = format!("on_conflict={mode} revive");
        let key = crate::queue::attempt(T0 + 1, 1);
        let push = words![key, "a", "+0", "new", options];
        ensure!(queue.items("upsert", T0 + 2, push.clone())? == ["MOVED"]);
        ensure!(queue.take(T0 + 3, 1, &token('b'))? == ["a"]);
        queue.ok("bury", T0 + 3, words!["a", token('b'), "why"])?;
        ensure!(
            queue.items("upsert", T0 + 4, push)? == ["EXISTS dead"],
            "{mode}"
        );
    }
    Ok(())
}
