//! Repetitions of calls whose reply was lost: both calls together have the effect of one.

use anyhow::{Result, ensure};

use crate::queue::{HOUR, Queue, T0, attempt, token};
use crate::reply::words;

#[test]
fn a_repeated_push_never_makes_a_second_message() -> Result<()> {
    // Something that happens to the message between the first try and the next ones.
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
            // Another call, with or without an idempotency key, creates a new message.
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

/// Clients count `until` from the earliest possible server time, so microseconds decide.
#[test]
fn the_first_try_and_the_end_are_compared_in_microseconds() -> Result<()> {
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

/// Otherwise an entry from before a large step back of the clock would last as long as the step.
#[test]
fn no_memory_outlasts_12_s_after_the_clock_went_back() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0 + HOUR, "a", T0 + 2 * HOUR, "")?;
    queue.ok("cancel", T0 + HOUR, words!["", "a"])?;
    ensure!(
        queue.items("push", T0, words![attempt(T0, 1), "a", T0 + HOUR, "", ""])? == ["CREATED"]
    );
    Ok(())
}
