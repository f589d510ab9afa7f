//! Repeated pushes with `on_conflict=next`: whatever becomes of the messages, one more run follows.

use anyhow::{Result, ensure};

use super::debounce::layout_3;
use super::next::{NEXT, leased, let_leases_run_out, push, run};
use crate::model::check_structure;
use crate::queue::{HOUR, Queue, T0, attempt, token};
use crate::reply::{Text, words};

/// The reply to a push is lost, and the same call comes again at every point of the life of the
/// messages.
#[test]
fn a_repeated_next_push_runs_once() -> Result<()> {
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

/// The first try of the push created, or replaced, a message that waited; a node claims it before
/// the repetition.
#[test]
fn a_repeated_push_of_a_claimed_message_is_not_kept() -> Result<()> {
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
fn a_next_push_that_met_a_dead_message_counts_after_a_requeue() -> Result<()> {
    let mut queue = leased()?;
    queue.ok("bury", T0, words!["a", token('a'), "why"])?;
    let key = attempt(T0, 1);
    ensure!(push(&mut queue, T0, &key, "second")? == "EXISTS dead");
    queue.ok("requeue", T0, words!["ids", "a"])?;
    ensure!(push(&mut queue, T0 + 1, &key, "second")? == "MOVED");
    ensure!(run(&mut queue, T0 + 20)? == Some("second".into()));
    Ok(())
}

/// Random pushes, lost replies, settlements and crashes. Of the pushes while the message was leased
/// the last one runs exactly once, and no other.
#[test]
fn the_last_push_during_a_delivery_runs_exactly_once() -> Result<()> {
    for seed in 0..6 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut queue = layout_3()?;
        let (mut now, mut number, mut runs) = (T0, 0, 0);
        // The payload that must run next, if any; the delivery that runs; calls to repeat.
        let (mut wanted, mut held) = (None::<String>, None::<(Text, u64)>);
        let mut calls: Vec<(u64, Vec<Text>)> = Vec::new();
        for step in 0..400 {
            now += random.u64(0..1_000);
            let why = format!("seed {seed}, step {step}");
            match random.u32(0..10) {
                0..=2 => {
                    number += 1;
                    let key = attempt(now, number);
                    let item = words![key, "a", format!("+{}", random.u64(0..3_000)), number, NEXT];
                    let result = queue.items("upsert", now, item.clone())?.remove(0);
                    let allowed = match (&held, &wanted) {
                        (Some(_), _) => "NEXT",
                        (None, Some(_)) => "MOVED",
                        (None, None) => "CREATED",
                    };
                    ensure!(result == allowed, "{why}: {result}, not {allowed}");
                    wanted = Some(number.to_string());
                    calls.push((now, item));
                }
                3..=4 => {
                    calls.retain(|(made, _)| now < made + 9_000);
                    if !calls.is_empty() {
                        let (_, item) = &calls[random.usize(0..calls.len())];
                        let result = queue.items("upsert", now, item.clone())?.remove(0);
                        let known = ["NEXT", "MOVED", "FINISHED"].contains(&&*result);
                        ensure!(known, "{why}: {result}");
                    }
                }
                5..=7 if held.is_none() => {
                    let token = queue.new_token();
                    queue.ok("promote", now, words![10])?;
                    let reply = queue.ok("claim", now, words![1, &token, 5_000])?;
                    if let [[_, payload, ..]] = &reply.deliveries()?[..] {
                        ensure!(Some(payload.text()?) == wanted, "{why}: {payload:?} ran");
                        (wanted, held, runs) = (None, Some((token, now + 5_000)), runs + 1);
                    }
                }
                _ => {
                    let Some((token, deadline)) = held.clone() else {
                        continue;
                    };
                    if random.u32(0..5) == 0 {
                        now = now.max(deadline + 1);
                        let_leases_run_out(&mut queue, now)?;
                        let reaped = queue.ok("reap", now, words![10])?.part(1)?.int()?;
                        ensure!(reaped == 1, "{why}: {reaped} reaped");
                        if wanted.is_none() {
                            // The crashed message itself runs again; end it here.
                            ensure!(queue.items("cancel", now, words!["", "a"])? == ["CANCELLED"]);
                        }
                    } else {
                        let followed = wanted.is_some();
                        let verbs = ["ack", "retry", "release", "bury", "again", "snooze"];
                        let verb = if followed {
                            verbs[random.usize(0..6)]
                        } else {
                            "ack"
                        };
                        let arguments = match verb {
                            "ack" => words![&token, 1, "a"],
                            "release" => words!["a", &token],
                            "retry" => words!["a", &token, 1, "why"],
                            "bury" => words!["a", &token, "why"],
                            _ => words!["a", &token, "+1"],
                        };
                        let result = queue.items(verb, now, arguments)?.remove(0);
                        ensure!(
                            result != "GONE" && result != "LOST",
                            "{why}: {verb} {result}"
                        );
                    }
                    held = None;
                }
            }
            check_structure(&queue.state()?, None)?;
        }
        ensure!(runs > 20, "seed {seed}: {runs} runs");
    }
    Ok(())
}

#[test]
fn a_repeated_next_push_replaces_no_later_push() -> Result<()> {
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
        super::expect(&mut queue, before, |state| {
            state.wake = vec!["1".into(); 2];
        })?;
    }
    Ok(())
}
