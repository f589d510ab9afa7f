//! Messages that upsert moves or replaces, and options that push and upsert refuse.

use anyhow::{Result, ensure};

use super::with_every_state;
use crate::queue::T0;
use crate::reply::words;

#[test]
fn push_and_upsert_refuse_each_others_on_conflict() -> Result<()> {
    let mut queue = with_every_state()?;
    let before = queue.contents()?;
    for (verb, options, other) in [
        ("push", "on_conflict=reschedule", "use upsert"),
        ("push", "on_conflict=replace", "use upsert"),
        ("upsert", "", "use push"),
        ("upsert", "on_conflict=keep", "use push"),
        ("upsert", "max_attempts=3", "use push"),
    ] {
        for id in ["s", "new"] {
            let replies = queue.items(verb, T0, words!["", id, "+1", "", options])?;
            ensure!(
                replies[0].starts_with("INVALID ") && replies[0].contains(other),
                "{verb} {options}: {replies:?}"
            );
        }
    }
    ensure!(queue.contents()? == before, "a refused item left a trace");
    Ok(())
}
