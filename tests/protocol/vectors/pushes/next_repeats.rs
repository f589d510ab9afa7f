//! Repeated pushes with `on_conflict=next`: whatever happens to the messages, exactly one more run
//! follows.

use anyhow::{Result, ensure};

use crate::queue::{HOUR, Queue, T0, attempt, token};
use crate::reply::words;
use crate::vectors::pushes::debounce::layout_3;
use crate::vectors::pushes::next::{NEXT, leased, push, run};

/// The reply to the push is lost. The call is repeated at every stage of the life of the messages.
#[test]
fn a_repeated_push_of_a_next_message_causes_one_run() -> Result<()> {
    type Life = fn(&mut Queue) -> Result<()>;
    fn settle(queue: &mut Queue) -> Result<()> {
        queue.ok("ack", T0 + 1, words![token('a'), 1, "a"])?;
        Ok(())
    }
    fn claim(queue: &mut Queue) -> Result<()> {
        settle(queue)?;
        ensure!(queue.take(T0 + 20, 1, &token('b'))? == ["a"]);
        Ok(())
    }
    fn cancel(queue: &mut Queue) -> Result<()> {
        ensure!(queue.items("cancel", T0 + 1, words!["", "a"])? == ["CANCELLED next"]);
        Ok(())
    }
    let lives: [(&str, Life, &str, &[&str]); 7] = [
        ("the delivery runs", |_| Ok(()), "NEXT", &["second"]),
        ("the next message waits", settle, "MOVED", &["second"]),
        ("the next message is leased", claim, "NEXT", &[]),
        (
            "the next message was acked",
            |queue| {
                claim(queue)?;
                queue
                    .ok("ack", T0 + 20, words![token('b'), 1, "a"])
                    .map(drop)
            },
            "FINISHED",
            &[],
        ),
        (
            "the next message is dead",
            |queue| {
                claim(queue)?;
                queue
                    .ok("bury", T0 + 20, words!["a", token('b'), "why"])
                    .map(drop)
            },
            "EXISTS dead",
            &[],
        ),
        ("it was cancelled", cancel, "NEXT", &[]),
        (
            "another push replaced it",
            |queue| push(queue, T0 + 1, "", "third").map(drop),
            "NEXT",
            &["third"],
        ),
    ];
    for (life, make, answer, runs) in lives {
        let mut queue = leased()?;
        let key = attempt(T0, 1);
        ensure!(push(&mut queue, T0, &key, "second")? == "NEXT");
        make(&mut queue)?;
        for _ in 0..2 {
            ensure!(
                push(&mut queue, T0 + 30, &key, "second")? == answer,
                "{life}"
            );
        }
        for taken in ['a', 'b'] {
            queue.ok("ack", T0 + 40, words![token(taken), 1, "a"])?;
        }
        let mut found = Vec::new();
        for _ in 0..3 {
            found.extend(run(&mut queue, T0 + HOUR)?.map(|payload| payload.text()));
        }
        ensure!(found == runs, "{life}: {found:?}");
    }
    Ok(())
}

/// The first try created or replaced a waiting message, and a node has claimed that message before
/// the repetition.
#[test]
fn a_repeated_push_of_a_claimed_message_keeps_no_next_one() -> Result<()> {
    for waits in [true, false] {
        for due in ["+10", "+3600000"] {
            let mut queue = layout_3()?;
            if waits {
                queue.push(T0, "a", T0 + 5, "old")?;
            }
            let call = words![attempt(T0, 1), "a", due, "new", NEXT];
            let first = if waits { "MOVED" } else { "CREATED" };
            ensure!(queue.items("upsert", T0 + 1, call.clone())? == [first]);
            queue.ok("run_now", T0 + 2, words!["a"])?;
            ensure!(queue.take(T0 + 2, 1, &token('b'))? == ["a"]);
            ensure!(queue.items("upsert", T0 + 3, call)? == ["NEXT"], "{due}");
            queue.ok("ack", T0 + 3, words![token('b'), 1, "a"])?;
            ensure!(
                run(&mut queue, T0 + 2 * HOUR)?.is_none(),
                "{first} {due}: it ran twice"
            );
        }
    }
    Ok(())
}

#[test]
fn a_next_push_refused_for_a_dead_message_can_be_repeated() -> Result<()> {
    let mut queue = leased()?;
    queue.ok("bury", T0, words!["a", token('a'), "why"])?;
    let key = attempt(T0, 1);
    ensure!(push(&mut queue, T0, &key, "second")? == "EXISTS dead");
    queue.ok("requeue", T0, words!["ids", "a"])?;
    ensure!(push(&mut queue, T0 + 1, &key, "second")? == "MOVED");
    ensure!(run(&mut queue, T0 + 20)? == Some("second".into()));
    Ok(())
}

#[test]
fn a_repeated_push_does_not_replace_a_later_next_message() -> Result<()> {
    for promoted in [false, true] {
        let mut queue = leased()?;
        let key = attempt(T0, 1);
        let call = words![key, "a", "+5", "second", NEXT, "b", "+5", "other", NEXT];
        ensure!(queue.items("upsert", T0, call.clone())? == ["NEXT", "CREATED"]);
        queue.ok("ack", T0 + 1, words![token('a'), 1, "a"])?;
        for id in ["a", "b"] {
            let replace = words!["", id, "+9", "third", "on_conflict=replace"];
            ensure!(queue.items("upsert", T0 + 2, replace)? == ["MOVED"]);
        }
        if promoted {
            queue.ok("promote", T0 + 20, words![10])?;
        }
        let before = queue.state()?;
        ensure!(queue.items("upsert", T0 + 20, call)? == ["MOVED", "MOVED"]);
        crate::vectors::expect(&mut queue, before, |state| {
            state.wake = vec!["1".into(); 2];
        })?;
    }
    Ok(())
}
