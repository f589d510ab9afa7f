//! A client repeats a call whose reply was lost: both have the effect of one.

use anyhow::{Result, ensure};

use crate::queue::{HOUR, Queue, T0, attempt, token};
use crate::reply::{Text, words};

#[test]
fn a_repeated_push_never_makes_a_second_message() -> Result<()> {
    // A fate of the message between the first attempt and the next ones.
    type Fate = fn(&mut Queue) -> Result<()>;
    let ended = format!("FINISHED {}.000", T0 + 1);
    let fates: [(&str, Fate); 6] = [
        ("acked", |queue| {
            queue.take(T0 + 1, 1, &token('a'))?;
            queue
                .ok("ack", T0 + 1, words![token('a'), 1, "a"])
                .map(drop)
        }),
        ("cancelled", |queue| {
            queue.ok("cancel", T0 + 1, words!["", "a"]).map(drop)
        }),
        ("purged", |queue| {
            queue.ok("purge", T0 + 1, words!["scheduled", 10]).map(drop)
        }),
        ("run now and acked", |queue| {
            queue.ok("run_now", T0 + 1, words!["a"])?;
            queue.take(T0 + 1, 1, &token('a'))?;
            queue
                .ok("ack", T0 + 1, words![token('a'), 1, "a"])
                .map(drop)
        }),
        ("moved near and acked", |queue| {
            queue.ok("reschedule", T0 + 1, words!["a", T0, ""])?;
            queue.take(T0 + 1, 1, &token('a'))?;
            queue
                .ok("ack", T0 + 1, words![token('a'), 1, "a"])
                .map(drop)
        }),
        ("left alone", |_| Ok(())),
    ];
    for (fate, make) in fates {
        for due in [T0, T0 + 12_000, T0 + 12_001, T0 + HOUR] {
            let mut queue = Queue::start()?;
            let push = words![attempt(T0, 1), "a", due, "payload", ""];
            ensure!(queue.items("push", T0, push.clone())? == ["CREATED"]);
            make(&mut queue)?;
            let there = queue.state()?.messages.len() > 1;
            let near = due <= T0 + 12_000;
            let answer = if there {
                "EXISTS scheduled"
            } else if near {
                "FINISHED"
            } else {
                &*ended
            };
            for at in [T0 + 2, T0 + 3, T0 + 9_999] {
                ensure!(
                    queue.items("push", at, push.clone())? == [answer],
                    "{fate}, due {due}, at {at}"
                );
            }
            for at in [T0 + 10_000, T0 + 10_001, T0 + HOUR] {
                ensure!(
                    queue.items("push", at, push.clone())? == ["EXPIRED"],
                    "{fate}, due {due}, at {at}"
                );
            }
            // Another call creates a new message, with or without an attempt.
            if !there {
                for other in [attempt(T0 + 2, 2), String::new()] {
                    let push = words![other, "a", due, "another", ""];
                    ensure!(
                        queue.items("push", T0 + 2, push)? == ["CREATED"],
                        "{fate}, due {due}"
                    );
                    ensure!(queue.items("cancel", T0 + 2, words!["", "a"])? == ["CANCELLED"]);
                }
            }
        }
    }
    Ok(())
}

/// Clients count `until` from the earliest time that they know of, so microseconds decide.
#[test]
fn first_attempt_and_end_are_compared_in_microseconds() -> Result<()> {
    for (end, first, answer) in [
        ("0.500", "0.499", "FINISHED 1700000000000.500"),
        ("0.500", "0.500", "CREATED"),
        ("0.500", "0.501", "CREATED"),
        ("0.999", "1.000", "CREATED"),
    ] {
        let ms = |text: &str, ahead: u64| {
            let (whole, fraction) = text.split_once('.').unwrap_or_default();
            format!(
                "{}.{fraction}",
                T0 + ahead + whole.parse::<u64>().unwrap_or_default()
            )
        };
        let mut queue = Queue::start()?;
        queue.push(T0 - 1, "a", T0 + HOUR, "")?;
        queue.ok("cancel", ms(end, 0).as_str(), words!["", "a"])?;
        let push = words![
            format!("{} nonce678", ms(first, 10_000)),
            "a",
            T0 + HOUR,
            "",
            ""
        ];
        let answers = queue.items("push", T0 + 2, push)?;
        ensure!(
            answers == [answer],
            "ended at {end}, first attempted at {first}: {answers:?}"
        );
    }
    Ok(())
}

/// One name remembers a call if all its messages were created or found. Else each of them has a
/// name, too.
#[test]
fn a_repeated_call_makes_none_of_its_messages_again() -> Result<()> {
    let calls: [(&str, u64, &str, usize); 5] = [
        // due time, option of the third item, number of remembered names
        ("soon", T0, "", 1),
        ("within 12 s", T0 + 12_000, "", 1),
        ("later", T0 + HOUR, "", 0),
        ("judged one by one", T0, "max_attempts=3", 1),
        ("one of them is refused", T0, "max_attempts=0", 6),
    ];
    for (name, due, option, remembered) in calls {
        let mut queue = Queue::start()?;
        let item = |place: usize| {
            words![
                format!("{place}"),
                due,
                "payload",
                if place == 2 { option } else { "" }
            ]
        };
        let push: Vec<Text> = words![attempt(T0, 1)]
            .into_iter()
            .chain((0..6).flat_map(item))
            .collect();
        let first = queue.items("push", T0, push.clone())?;
        let refused = option == "max_attempts=0";
        ensure!(
            first.iter().filter(|answer| *answer == "CREATED").count()
                == if refused { 5 } else { first.len() }
        );
        ensure!(
            queue.state()?.recent.len() == remembered + 1,
            "{name}: {:?}",
            queue.state()?.recent
        );
        // Two are cancelled, and two delivered and acked.
        queue.ok("cancel", T0 + 1, words!["", "0", "1"])?;
        queue.ok("run_now", T0 + 1, words!["4", "5"])?;
        let taken = queue.take(T0 + 1, 4, &token('a'))?;
        let both = taken
            .iter()
            .filter(|id| ["4", "5"].contains(&id.as_str()))
            .map(|id| words![id])
            .collect::<Vec<_>>();
        ensure!(both.len() == 2, "{name}: {taken:?}");
        queue.ok(
            "ack",
            T0 + 1,
            [words![token('a'), 2], both.concat()].concat(),
        )?;
        // A repetition may omit messages that its client gave up.
        let part: Vec<Text> = [&push[..1], &push[5..9], &push[17..]].concat();
        for at in [T0 + 2, T0 + 9_999] {
            let answers = queue.items("push", at, push.clone())?;
            ensure!(
                [0, 1, 4, 5]
                    .iter()
                    .all(|place| answers[*place].starts_with("FINISHED")),
                "{name}, at {at}: {answers:?}"
            );
            ensure!(
                answers[3].starts_with("EXISTS"),
                "{name}, at {at}: {answers:?}"
            );
            ensure!(if refused {
                answers[2].starts_with("INVALID")
            } else {
                answers[2].starts_with("EXISTS")
            });
            let answers = queue.items("push", at, part.clone())?;
            ensure!(
                answers.iter().all(|answer| answer.starts_with("FINISHED")),
                "{name}, a part at {at}: {answers:?}"
            );
        }
        let expired = queue.items("push", T0 + 10_000, push)?;
        ensure!(
            expired
                .iter()
                .all(|answer| answer == "EXPIRED" || refused && answer.starts_with("INVALID"))
        );
    }
    Ok(())
}

/// Two producers push one id. Neither repetition creates a second message, although one call only
/// found the id.
#[test]
fn a_push_that_found_its_id_is_recognised_too() -> Result<()> {
    let mut queue = Queue::start()?;
    let push = |number: u64, at: u64| words![attempt(at, number), "a", T0, "", ""];
    ensure!(queue.items("push", T0, push(1, T0))? == ["CREATED"]);
    ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
    ensure!(queue.items("push", T0 + 1, push(2, T0 + 1))? == ["EXISTS leased"]);
    queue.ok("ack", T0 + 2, words![token('a'), 1, "a"])?;
    for (number, first) in [(1, T0), (2, T0 + 1)] {
        ensure!(
            queue.items("push", T0 + 3, push(number, first))? == ["FINISHED"],
            "call {number}"
        );
    }
    ensure!(queue.items("push", T0 + 3, push(3, T0 + 3))? == ["CREATED"]);
    Ok(())
}

#[test]
fn a_new_call_of_the_same_ids_is_not_a_repetition() -> Result<()> {
    let mut queue = Queue::start()?;
    let push = |number: u64, ids: &[&str]| -> Vec<Text> {
        words![attempt(T0, number)]
            .into_iter()
            .chain(ids.iter().flat_map(|id| words![*id, T0, "", ""]))
            .collect()
    };
    let all = ["a", "b", "c", "d", "e", "f"];
    for number in 1..4 {
        ensure!(
            queue
                .items("push", T0, push(number, &all))?
                .iter()
                .all(|answer| answer == "CREATED"),
            "call {number}"
        );
        ensure!(queue.take(T0, 6, &token('a'))?.len() == 6);
        queue.ok(
            "ack",
            T0,
            [
                words![token('a'), 6],
                all.iter().flat_map(|id| words![*id]).collect(),
            ]
            .concat(),
        )?;
        ensure!(
            queue
                .items("push", T0, push(number, &all))?
                .iter()
                .all(|answer| answer == "FINISHED"),
            "call {number}"
        );
    }
    Ok(())
}

#[test]
fn until_may_be_at_most_12_s_ahead() -> Result<()> {
    let mut queue = Queue::start()?;
    let mut push = |until: u64| {
        queue.items(
            "push",
            T0,
            words![attempt(until - 10_000, 1), "a", T0, "", ""],
        )
    };
    ensure!(
        push(T0 - 1)? == ["EXPIRED"]
            && push(T0)? == ["EXPIRED"]
            && push(T0 + 12_001)? == ["EXPIRED"]
    );
    ensure!(push(T0 + 12_000)? == ["CREATED"]);
    Ok(())
}

/// Otherwise a memory from before a large step of the clock would last as long as the step.
#[test]
fn no_memory_lasts_longer_than_12_s_after_the_clock_went_back() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0 + HOUR, "a", T0 + 2 * HOUR, "")?;
    queue.ok("cancel", T0 + HOUR, words!["", "a"])?;
    ensure!(
        queue.items("push", T0, words![attempt(T0, 1), "a", T0 + HOUR, "", ""])? == ["CREATED"]
    );
    Ok(())
}
