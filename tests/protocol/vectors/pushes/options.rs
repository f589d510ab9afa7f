//! Options of pushes.

use anyhow::{Result, ensure};

use crate::queue::{Queue, SECOND, T0, token};
use crate::reply::words;
use crate::vectors::with_every_state;

#[test]
fn trace_parent_is_stored_and_a_malformed_one_refused() -> Result<()> {
    let mut queue = Queue::start()?;
    let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let parent = format!("traceparent=00-{trace}-{span}-01");
    let words = words![
        "",
        "alone",
        T0,
        "",
        &parent,
        "last counts",
        T0,
        "",
        format!("traceparent=00-{span}{span}-{span}-00 {parent} max_attempts=2"),
    ];
    ensure!(queue.items("push", T0, words)? == ["CREATED", "CREATED"]);
    let state = queue.state()?;
    ensure!(state.attrs.get(&"alone".into()) == Some(&format!("0 0 - {parent}\n").into()));
    ensure!(
        state.attrs.get(&"last counts".into())
            == Some(&format!("0 0 - max_attempts=2 {parent}\n").into())
    );

    let (no_trace, no_span) = ("0".repeat(32), "0".repeat(16));
    for bad in [
        String::new(),
        format!("{trace}-{span}-01"),
        format!("01-{trace}-{span}-01"),
        format!("00-{no_trace}-{span}-01"),
        format!("00-{trace}-{no_span}-01"),
        format!("00-{}-{span}-01", trace.to_uppercase()),
        format!("00-{trace}-{span}-0G"),
        format!("00-{trace}-{span}-1"),
        format!("00-{trace}-{span}-001"),
        format!("00-{trace}-{span}-01-1"),
        format!("00-{trace}-{span}-01\n"),
        format!("00-{trace}0-{span}-01"),
        format!("00-{trace}-{span}0-01"),
    ] {
        let replies = queue.items(
            "push",
            T0,
            words!["", "bad", T0, "", format!("traceparent={bad}")],
        )?;
        ensure!(
            replies[0].starts_with("INVALID option"),
            "{bad:?}: {replies:?}"
        );
    }
    ensure!(
        queue.state()?.difference(&state).is_none(),
        "a refused item left a trace"
    );

    // Promote, claim and retry keep the options.
    queue.ok("promote", T0, words![10])?;
    queue.ok("claim", T0, words![10, token('a'), 30 * SECOND])?;
    queue.items(
        "retry",
        T0,
        words![
            "alone",
            token('a'),
            0,
            "why",
            "last counts",
            token('a'),
            0,
            "why"
        ],
    )?;
    let state = queue.state()?;
    ensure!(state.attrs.get(&"alone".into()) == Some(&format!("1 0 - {parent}\nwhy").into()));
    ensure!(
        state.attrs.get(&"last counts".into())
            == Some(&format!("1 0 - max_attempts=2 {parent}\nwhy").into())
    );
    Ok(())
}

#[test]
fn push_and_upsert_refuse_each_others_values_of_on_conflict() -> Result<()> {
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
