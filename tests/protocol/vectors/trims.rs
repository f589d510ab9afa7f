//! Memories and dead letters are bounded, and calls remove messages in bounded steps.

use anyhow::{Result, ensure};

use super::{count, expect, ids, remove};
use crate::queue::{DAY, HOUR, Queue, T0, attempt, token};
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
fn the_oldest_dead_are_trimmed_beyond_a_number_and_an_age() -> Result<()> {
    let mut queue = dead(6)?;
    queue.ok("configure", T0, words!["dead_keep", 4])?;
    let before = queue.state()?;
    queue.ok("beat", T0, words!["node", "stay"])?;
    let (meta, nodes) = (queue.state()?.meta, queue.state()?.nodes);
    expect(&mut queue, before, |state| {
        for id in ["0", "1"] {
            remove(&mut state.dead, id);
            state.messages.remove(&Text::from(id));
            state.attrs.remove(&Text::from(id));
        }
        (state.meta, state.nodes) = (meta.clone(), nodes);
    })?;
    ensure!(meta.get(&"trimmed".into()) == Some(&"2".into()));

    queue.ok("configure", T0, words!["dead_keep_ms", 30 * DAY])?;
    queue.ok("beat", T0 + 30 * DAY + 2, words!["node", "stay"])?;
    ensure!(
        ids(&queue.state()?.dead) == ["3", "4", "5"],
        "2 must go exactly 30 days after it died"
    );
    Ok(())
}

#[test]
fn requeue_is_bounded_and_starts_with_the_oldest() -> Result<()> {
    let mut queue = dead(5)?;
    let now = T0 + HOUR;
    let oldest = |queue: &mut Queue, limit: u64, before: &str| -> Result<(i64, i64)> {
        let reply = queue.ok("requeue", now, words!["oldest", limit, before])?;
        Ok((reply.part(1)?.int()?, reply.part(2)?.int()?))
    };
    ensure!(oldest(&mut queue, 2, "")? == (2, 3));
    ensure!(
        ids(&queue.state()?.dead) == ["2", "3", "4"]
            && ids(&queue.state()?.scheduled) == ["0", "1"]
    );
    ensure!(
        oldest(&mut queue, 10, &(T0 + 1).to_string())? == (0, 0),
        "requeued a message that died later"
    );
    ensure!(
        oldest(&mut queue, 10, &(T0 + 2).to_string())? == (1, 0),
        "only messages that died up to then may count"
    );
    let before = queue.state()?;
    ensure!(
        queue.items("requeue", now, words!["ids", "4", "4", "0", "?"])?
            == [
                "REQUEUED",
                "NOT_DEAD scheduled",
                "NOT_DEAD scheduled",
                "ABSENT"
            ]
    );
    expect(&mut queue, before, |state| {
        remove(&mut state.dead, "4");
        super::add(&mut state.scheduled, "4", now);
        state.attrs.remove(&Text::from("4"));
        count(state, "requeued", 1);
        count(state, "seq", 1);
    })
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

#[test]
fn purge_is_bounded_and_returns_the_rest() -> Result<()> {
    for state in ["scheduled", "ready", "dead"] {
        let mut queue = if state == "dead" {
            dead(5)?
        } else {
            Queue::start()?
        };
        for place in 0..5 {
            if state != "dead" {
                queue.push(T0, &place.to_string(), T0 + place, "")?;
            }
        }
        if state == "ready" {
            queue.ok("promote", T0 + 5, words![10])?;
        }
        for (purged, left) in [(2, 3), (2, 1), (1, 0), (0, 0)] {
            let reply = queue.ok("purge", T0 + 5, words![state, 2])?;
            ensure!(
                (reply.part(1)?.int()?, reply.part(2)?.int()?) == (purged, left),
                "{state}: {reply:?}"
            );
            let found = queue.state()?;
            ensure!(
                found.messages.len() as i64 == left + 1
                    && found.attrs.len() <= found.messages.len()
            );
        }
        let late = queue.items("push", T0 + 6, words![attempt(T0 + 4, 1), "0", T0, "", ""])?;
        ensure!(
            late == [format!("FINISHED {}.000", T0 + 5)],
            "a late repetition does not restore it: {late:?}"
        );
    }
    Ok(())
}

#[test]
fn counters_count_each_transition_once() -> Result<()> {
    let mut queue = Queue::start()?;
    let item = |id: &str| words![id, T0, "", ""];
    let all: Vec<Text> = words![""]
        .into_iter()
        .chain(
            ["a", "b", "c", "d", "e", "f", "g", "h"]
                .iter()
                .flat_map(|id| item(id)),
        )
        .collect();
    queue.ok("push", T0, all.clone())?;
    queue.ok("push", T0, all)?;
    queue.ok("cancel", T0, words!["", "h", "h"])?;
    ensure!(queue.take(T0, 6, &token('a'))?.len() == 6);
    queue.ok("purge", T0, words!["ready", 10])?;
    for _ in 0..2 {
        queue.ok("ack", T0, words![token('a'), 1, "a"])?;
        queue.ok("again", T0, words!["b", token('a'), "+1000"])?;
        queue.ok("retry", T0, words!["c", token('a'), 1_000, ""])?;
        queue.ok("release", T0, words!["d", token('a')])?;
        queue.ok("bury", T0, words!["e", token('a'), ""])?;
    }
    queue.ok("configure", T0, words!["max_attempts", 1])?;
    queue.ok("retry", T0, words!["f", token('a'), 1_000, ""])?;
    queue.ok("requeue", T0, words!["ids", "e", "e"])?;
    let stats = queue.ok("stats", T0, words![])?;
    let pairs: Vec<(String, String)> = stats
        .part(1)?
        .list()?
        .chunks_exact(2)
        .map(|pair| Ok((pair[0].text()?, format!("{:?}", pair[1]))))
        .collect::<Result<_>>()?;
    let of = |name: &str| {
        pairs
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    };
    for (name, value) in [
        ("pushed", "8"),
        ("claimed", "6"),
        ("acked", "1"),
        ("repeated", "1"),
        ("retried", "1"),
        ("released", "1"),
        ("died", "2"),
        ("cancelled", "1"),
        ("purged", "1"),
        ("requeued", "1"),
        ("crashed", "0"),
        ("trimmed", "0"),
    ] {
        ensure!(of(name) == Some(value), "{name}: {:?}", of(name));
    }
    Ok(())
}

#[test]
fn dead_beyond_number_and_age_are_trimmed_once() -> Result<()> {
    let mut queue = dead(6)?;
    queue.ok(
        "configure",
        T0 + 5,
        words!["dead_keep", 4, "dead_keep_ms", 1_000],
    )?;
    // Two are beyond the number and three too old, with the two among them: three go.
    queue.ok("beat", T0 + 1_002, words!["node", "stay"])?;
    ensure!(ids(&queue.state()?.dead) == ["3", "4", "5"]);
    Ok(())
}
