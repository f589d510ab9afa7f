//! Pages of peek, and the reads of get, stats and dues. Trims of remembered names.

use anyhow::{Result, ensure};

use crate::queue::{HOUR, Queue, SECOND, T0, attempt, token};
use crate::reply::{Reply, Text, words};
use crate::vectors::{declare, ids, with_every_state};

/// All ids of a state, read in pages of `limit`.
fn pages(queue: &mut Queue, state: &str, limit: u64) -> Result<Vec<String>> {
    let (mut all, mut cursor) = (Vec::new(), Text::default());
    for _ in 0..100 {
        let page = queue.ok("peek", T0, words![state, &cursor, limit])?;
        all.extend(
            page.part(2)?
                .list()?
                .iter()
                .map(|item| item.part(0)?.text())
                .collect::<Result<Vec<_>>>()?,
        );
        cursor = page.part(1)?.bytes()?.clone();
        if cursor.0.is_empty() {
            return Ok(all);
        }
    }
    anyhow::bail!("{state}: the pages do not end")
}

/// A queue with these ids in one state. All have the same time, which makes the cut between pages
/// hardest.
fn all_in(state: &str, ids: &[String]) -> Result<Queue> {
    let mut queue = Queue::start()?;
    for id in ids {
        queue.push(T0, id, T0, "")?;
    }
    if state != "scheduled" {
        queue.ok("promote", T0, words![1_000])?;
    }
    if state == "leased" || state == "dead" {
        queue.ok("claim", T0, words![1_000, token('a'), SECOND])?;
    }
    if state == "dead" {
        queue.ok(
            "bury",
            T0,
            ids.iter()
                .flat_map(|id| words![id, token('a'), ""])
                .collect(),
        )?;
    }
    Ok(queue)
}

#[test]
fn pages_return_each_message_once_and_end() -> Result<()> {
    let mut ids: Vec<String> = (0..23)
        .map(|place| format!("{place}:id with : and ü"))
        .collect();
    ids.sort();
    for state in ["scheduled", "ready", "leased", "dead"] {
        let mut queue = all_in(state, &ids)?;
        for limit in [1, 2, 7, 22, 23, 24, 1_000] {
            ensure!(
                pages(&mut queue, state, limit)? == ids,
                "{state} by {limit}"
            );
        }
        for other in ["scheduled", "ready", "leased", "dead"] {
            ensure!(
                other == state || pages(&mut queue, other, 5)?.is_empty(),
                "{other} must be empty"
            );
        }
    }
    Ok(())
}

#[test]
fn a_page_continues_after_its_last_id_even_if_that_left() -> Result<()> {
    let mut queue = Queue::start()?;
    for place in 0..6 {
        queue.push(T0, &place.to_string(), T0 + HOUR + place, "")?;
    }
    let first = queue.ok("peek", T0, words!["scheduled", "", 3])?;
    let cursor = first.part(1)?.bytes()?.clone();
    ensure!(cursor == format!("{}:2", T0 + HOUR + 2).into());
    for leave in [words!["", "2"], words!["", "0"]] {
        queue.ok("cancel", T0, leave)?;
        let second = queue.ok("peek", T0, words!["scheduled", &cursor, 3])?;
        let ids: Vec<String> = second
            .part(2)?
            .list()?
            .iter()
            .map(|item| item.part(0)?.text())
            .collect::<Result<_>>()?;
        ensure!(ids == ["3", "4", "5"], "{ids:?}");
    }
    Ok(())
}

/// The counts, and the due time of the last scheduled message.
fn dues(queue: &mut Queue, now: u64, times: Vec<Text>) -> Result<(Vec<i64>, i64)> {
    let reply = queue.ok("dues", now, times)?;
    let counts = reply.part(1)?.list()?.iter().map(Reply::int);
    Ok((counts.collect::<Result<_>>()?, reply.part(2)?.int()?))
}

#[test]
fn dues_counts_each_message_between_two_times_once() -> Result<()> {
    let mut queue = Queue::start()?;
    for (place, due) in [0, 10, 10, 19, 20, 30].into_iter().enumerate() {
        queue.push(T0, &place.to_string(), T0 + due, "")?;
    }
    let last = (T0 + 30) as i64;
    ensure!(dues(&mut queue, T0, words![])? == (vec![6], last));
    ensure!(dues(&mut queue, T0, words![T0 + 10])? == (vec![1, 5], last));
    let edges = words![T0, T0 + 10, T0 + 20, T0 + 30, T0 + 31];
    ensure!(dues(&mut queue, T0, edges)? == (vec![0, 1, 3, 1, 1, 0], last));
    ensure!(dues(&mut queue, T0, words![0, 1])? == (vec![0, 0, 6], last));
    Ok(())
}

#[test]
fn dues_accepts_sixty_times_and_counts_scheduled_ones_only() -> Result<()> {
    let mut queue = with_every_state()?;
    let times: Vec<Text> = (0..60).map(|i| (T0 + i * 60 * SECOND).into()).collect();
    let (counts, last) = dues(&mut queue, T0, times)?;
    ensure!(counts.len() == 61 && counts.iter().sum::<i64>() == 1);
    ensure!(counts[60] == 1 && last == (T0 + HOUR) as i64, "{counts:?}");
    queue.empty()?;
    ensure!(dues(&mut queue, T0, words![T0])? == (vec![0, 0], -1));
    Ok(())
}

/// A timer without a next fire has the due time 2200-01-01.
#[test]
fn dues_counts_a_timer_at_its_fire_and_no_idle_timer() -> Result<()> {
    let mut queue = Queue::start()?;
    declare(&mut queue)?;
    let after = 2 * HOUR;
    ensure!(dues(&mut queue, T0, words![T0 + after])?.0 == [2, 0]);
    queue.ok("amend", T0, words!["pause", "hourly"])?;
    queue.ok("amend", T0, words!["pause", "nightly"])?;
    ensure!(dues(&mut queue, T0, words![T0 + after])? == (vec![0, 0], -1));
    queue.push(T0, "a", T0 + 5, "")?;
    ensure!(dues(&mut queue, T0, words![T0 + 5])? == (vec![0, 1], (T0 + 5) as i64));
    Ok(())
}

/// A queue with `number` dead letters that died a millisecond apart: 0 at T0, 1 at T0 + 1 and so
/// on.
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
fn a_beat_forgets_500_expired_names_per_call() -> Result<()> {
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
    // Ten messages are cancelled now. 12 s later follows a call of each verb that remembers names.
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
        // Purge and cancel remember two names, the cancel and the end. The other verbs remember
        // one.
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
fn steps_from_a_time_on_skip_earlier_deaths() -> Result<()> {
    // The messages died at T0 + 0 to T0 + 4.
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
