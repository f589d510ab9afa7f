//! Reads: the pages of peek, get and stats.

use anyhow::{Result, ensure};

use crate::queue::{HOUR, Queue, SECOND, T0, token};
use crate::reply::{Text, words};

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
