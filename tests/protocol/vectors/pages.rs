//! Reads: the pages of peek, get and stats.

use anyhow::{Result, ensure};

use super::{seed, with_every_state};
use crate::queue::{HOUR, Queue, SECOND, T0, token};
use crate::reply::{Reply, Text, words};
use crate::state::lease_name;

/// All ids of a state, in pages of `limit`.
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

/// A queue with these ids in a state. All have the same time: then pages are hardest to cut.
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
fn pages_show_each_message_once_and_end() -> Result<()> {
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
fn a_page_continues_after_the_last_id_even_if_it_left() -> Result<()> {
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

#[test]
fn get_and_peek_show_a_message_of_each_state() -> Result<()> {
    let mut queue = with_every_state()?;
    let expected = [
        ("s", "scheduled", T0 + 3_600 * SECOND, "", "scheduled"),
        ("r", "ready", T0, "", "ready"),
        ("l", "leased", T0 + 30 * SECOND, "", "leased"),
        ("d", "dead", T0, "why", "dead"),
    ];
    for (id, state, time, error, payload) in expected {
        let got = queue.ok("get", T0, words![id])?;
        let lease = (id == "l").then(|| Reply::from(lease_name(&token('l'))));
        let mut pairs: Vec<Reply> = vec![
            "state".into(),
            state.into(),
            "time_ms".into(),
            time.into(),
            "failures".into(),
            0u64.into(),
            "crashes".into(),
            0u64.into(),
            "options".into(),
            "".into(),
            "error".into(),
            error.into(),
            "payload".into(),
            payload.into(),
        ];
        let mut item: Vec<Reply> = vec![
            id.into(),
            time.into(),
            0u64.into(),
            0u64.into(),
            error.into(),
        ];
        item.extend(lease.clone());
        pairs.extend(lease.into_iter().flat_map(|lease| ["lease".into(), lease]));
        ensure!(*got.part(1)? == Reply::List(pairs), "{got:?}");
        let peeked = queue.ok("peek", T0, words![state, "", 10])?;
        ensure!(
            *peeked.part(2)? == Reply::List(vec![Reply::List(item)]),
            "{peeked:?}"
        );
    }
    ensure!(*queue.ok("get", T0, words!["?"])?.part(1)? == Reply::List(Vec::new()));
    Ok(())
}

#[test]
fn stats_show_states_limits_and_the_oldest_lateness() -> Result<()> {
    let mut queue = Queue::start()?;
    ensure!(
        *queue.ok("stats", T0, words![])?.part(1)? == Reply::List(Vec::new()),
        "an absent queue must have no stats"
    );
    seed(&mut queue)?;
    queue.push(T0, "late", T0 + 50, "")?;
    queue.ok("beat", T0 + 100, words!["north", "stay"])?;
    let stats = queue.ok("stats", T0 + 150, words![])?;
    let names = [
        "scheduled",
        "due",
        "ready",
        "leased",
        "dead",
        "recent",
        "nodes",
        "overdue_ms",
    ];
    let values = [2u64, 1, 1, 1, 1, 0, 1, 150];
    let expected = names
        .into_iter()
        .zip(values)
        .flat_map(|(name, value)| [Reply::from(name), value.into()]);
    ensure!(
        stats.part(1)?.list()?[..16] == expected.collect::<Vec<_>>(),
        "{stats:?}"
    );
    let tail = [
        "max_attempts",
        "max_crashes",
        "max_messages",
        "max_payload_bytes",
        "dead_keep_ms",
        "dead_keep",
        "max_leased",
        "max_throttle_ms",
        "max_remembered",
        "leader_until",
        "reap_after",
    ];
    let limits = [
        20,
        5,
        0,
        1_048_576,
        2_592_000_000,
        100_000,
        0,
        900_000,
        1_000_000,
    ];
    let values = [&limits[..], &[T0 + 2_600, 0]].concat();
    let expected = tail
        .into_iter()
        .zip(values)
        .flat_map(|(name, value)| [Reply::from(name), value.into()]);
    let expected: Vec<Reply> = expected
        .chain(["leader".into(), "north".into()])
        .chain(
            ["parked_until", "closed_until", "full"]
                .into_iter()
                .flat_map(|name| [name.into(), 0i64.into()]),
        )
        .chain(["rate".into(), "".into()])
        .collect();
    ensure!(stats.part(1)?.list()?.ends_with(&expected), "{stats:?}");
    Ok(())
}

#[test]
fn reads_write_nothing_and_add_no_wake_up_tokens() -> Result<()> {
    let mut queue = with_every_state()?;
    queue.command(words!["DEL", "dueq:{q}:wake"])?;
    let before = queue.contents()?;
    for (verb, words) in [
        ("get", words!["r"]),
        ("peek", words!["ready", "", 10]),
        ("stats", words![]),
        ("history", words!["hours"]),
    ] {
        queue.ok(verb, T0 + HOUR * 2, words)?;
        ensure!(queue.contents()? == before, "{verb}");
    }
    Ok(())
}
