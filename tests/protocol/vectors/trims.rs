//! Memories and dead letters are bounded, and calls remove messages in bounded steps.

use anyhow::{Result, ensure};

use super::ids;
use crate::queue::{HOUR, Queue, T0, attempt, token};
use crate::reply::{Text, words};

/// A queue with `number` dead letters, a millisecond apart: 0 died at T0, 1 at T0 + 1 and so on.
fn dead(number: u64) -> Result<Queue> {
    let mut queue = Queue::start()?;
    for place in 0..number {
        let id = place.to_string();
        queue.push(T0 + place, &id, T0 + place, "payload")?;
        ensure!(queue.take(T0 + place, 1, &token('a'))? == std::slice::from_ref(&id));
        queue.ok("bury", T0 + place, words![&id, token('a'), "why"])?;
    }
    Ok(queue)
}

#[test]
fn a_beat_forgets_500_expired_names_at_a_time() -> Result<()> {
    let mut queue = Queue::start()?;
    // Each push adds one name to the memory. None of them has expired yet.
    for call in 0..1_200 {
        let until = attempt(T0 + call / 400, call);
        queue.ok("push", T0, words![until, call.to_string(), "+1", "", ""])?;
    }
    ensure!(queue.state()?.recent.len() == 1_201);
    for (now, left) in [
        (9_999, 1_200),
        (10_000, 800),
        (10_000, 800),
        (20_000, 300),
        (20_000, 0),
    ] {
        queue.ok("beat", T0 + now, words!["node", "stay"])?;
        ensure!(
            queue.state()?.recent.len() == left + 1,
            "at {now}: {} of {left}",
            queue.state()?.recent.len()
        );
    }
    Ok(())
}

#[test]
fn each_added_memory_entry_trims_two_expired_ones() -> Result<()> {
    let mut queue = Queue::start()?;
    for place in 0..40 {
        queue.push(T0, &place.to_string(), T0 + HOUR, "")?;
    }
    // Ten cancels now, and 12 s later a call of each verb that remembers names.
    let ids = |from: u64, to: u64| {
        (from..to)
            .flat_map(|place| words![place.to_string()])
            .collect::<Vec<_>>()
    };
    queue.ok("cancel", T0, [words![""], ids(0, 10)].concat())?;
    let (now, mut left) = (T0 + 12_001, 20);
    for (verb, words) in [
        ("purge", words!["scheduled", 1]),
        ("cancel", words!["", "20"]),
        ("run_now", words!["21"]),
        ("reschedule", words!["22", "+1", ""]),
        ("push", words![attempt(now - 9_990, 1), "new", "+1", "", ""]),
    ] {
        // Purge and cancel remember the cancel and the end. The others remember one name.
        let more = if matches!(verb, "purge" | "cancel") {
            2
        } else {
            1
        };
        queue.ok(verb, now, words)?;
        left -= more;
        ensure!(
            queue.state()?.recent.len() == left + 1,
            "{verb}: must add {more} and trim twice as many"
        );
    }
    Ok(())
}

#[test]
fn steps_from_a_time_leave_what_died_before() -> Result<()> {
    // They died at T0 + 0 to 4.
    for (verb, form, passed) in [("requeue", "oldest", None), ("purge", "dead", Some("0"))] {
        let mut queue = dead(5)?;
        let mut step = |limit: u64, before: &str, after: u64| -> Result<(i64, i64)> {
            let mut args = words![form, limit, before];
            args.extend(passed.map(Text::from));
            args.push(Text::from(after));
            let reply = queue.ok(verb, T0 + HOUR, args)?;
            Ok((reply.part(1)?.int()?, reply.part(2)?.int()?))
        };
        ensure!(step(10, &(T0 + 1).to_string(), T0 + 2)? == (0, 0), "{verb}");
        ensure!(step(1, &(T0 + 3).to_string(), T0 + 1)? == (1, 2), "{verb}");
        ensure!(step(10, &(T0 + 3).to_string(), T0 + 1)? == (2, 0), "{verb}");
        ensure!(step(10, "", T0 + 4)? == (1, 0), "{verb}");
        ensure!(ids(&queue.state()?.dead) == ["0"], "{verb}");
    }
    Ok(())
}
