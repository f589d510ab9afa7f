//! Messages that upsert moves or replaces, and options that push and upsert refuse.

use anyhow::{Result, ensure};

use super::{add, count, expect, remove, with_every_state};
use crate::queue::{HOUR, Queue, T0, token};
use crate::reply::{Text, words};

#[test]
fn a_conflict_keeps_moves_or_replaces() -> Result<()> {
    let mut queue = with_every_state()?;
    let before = queue.state()?;
    let all = |option: &str| {
        words![
            "", "s", "+1", "new", option, "r", "+1", "new", option, "l", "+1", "new", option, "d",
            "+1", "new", option
        ]
    };
    let kept = [
        "EXISTS scheduled",
        "EXISTS ready",
        "EXISTS leased",
        "EXISTS dead",
    ];
    ensure!(
        queue.items("push", T0, all(""))? == kept
            && queue.items("push", T0, all("on_conflict=keep"))? == kept
    );
    expect(&mut queue, before.clone(), |_| {})?;

    let moved = ["MOVED", "MOVED", "EXISTS leased", "EXISTS dead"];
    ensure!(queue.items("upsert", T0, all("on_conflict=reschedule max_attempts=9"))? == moved);
    let rescheduled = |state: &mut crate::state::State| {
        remove(&mut state.scheduled, "s");
        for id in ["s", "r"] {
            add(&mut state.scheduled, id, T0 + 1);
            add(&mut state.recent, &format!("\u{4}{id}"), T0 + 12_000);
        }
        state
            .meta
            .insert("ended_until".into(), (T0 + 12_001).into());
        state.ready.truncate(1);
        count(state, "seq", 1);
    };
    expect(&mut queue, before.clone(), rescheduled)?;
    let before = queue.state()?;
    ensure!(queue.items("upsert", T0, all("max_attempts=9 on_conflict=replace"))? == moved);
    expect(&mut queue, before, |state| {
        for id in ["s", "r"] {
            state.messages.insert(id.into(), "new".into());
            state
                .attrs
                .insert(id.into(), "0 0 - max_attempts=9\n".into());
        }
        count(state, "seq", 1);
    })
}

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

#[test]
fn replace_resets_failures_and_reschedule_keeps_them() -> Result<()> {
    for (option, attrs) in [
        (
            "on_conflict=reschedule",
            Some("1 0 - max_attempts=5\nerror"),
        ),
        ("on_conflict=replace", None),
    ] {
        let mut queue = Queue::start()?;
        queue.ok("push", T0, words!["", "a", T0, "old", "max_attempts=5"])?;
        ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
        queue.ok("retry", T0, words!["a", token('a'), 1_000, "error"])?;
        ensure!(queue.items("upsert", T0, words!["", "a", T0 + HOUR, "new", option])? == ["MOVED"]);
        ensure!(
            queue.state()?.attrs.get(&"a".into()).cloned() == attrs.map(Text::from),
            "{option}"
        );
        let payload = if attrs.is_some() { "old" } else { "new" };
        ensure!(
            queue.state()?.messages.get(&"a".into()) == Some(&payload.into()),
            "{option}"
        );
    }
    Ok(())
}

#[test]
fn an_id_twice_in_a_batch_acts_like_two_calls() -> Result<()> {
    let mut queue = Queue::start()?;
    let words = words!["", "a", T0 + 5, "1", "max_attempts=2", "a", T0 + 6, "2", ""];
    ensure!(queue.items("push", T0, words)? == ["CREATED", "EXISTS scheduled"]);
    let words = words![
        "",
        "a",
        T0 + 7,
        "3",
        "on_conflict=reschedule",
        "b",
        T0 + 8,
        "4",
        "on_conflict=reschedule max_attempts=7",
        "b",
        T0 + 9,
        "5",
        "on_conflict=replace max_attempts=4",
        "c",
        T0 + 8,
        "4",
        "on_conflict=replace max_attempts=3",
        "c",
        T0 + 9,
        "5",
        "on_conflict=reschedule max_attempts=9"
    ];
    ensure!(queue.items("upsert", T0, words)? == ["MOVED", "CREATED", "MOVED", "CREATED", "MOVED"]);
    let state = queue.state()?;
    let due = |id: &str| crate::state::State::score(&state.scheduled, &id.into());
    ensure!(due("a") == Some((T0 + 7) as f64) && due("b") == Some((T0 + 9) as f64));
    ensure!(
        state.messages.get(&"a".into()) == Some(&"1".into())
            && state.messages.get(&"b".into()) == Some(&"5".into())
    );
    ensure!(state.attrs.get(&"a".into()) == Some(&"0 0 - max_attempts=2\n".into()));
    ensure!(state.attrs.get(&"b".into()) == Some(&"0 0 - max_attempts=4\n".into()));
    ensure!(state.attrs.get(&"c".into()) == Some(&"0 0 - max_attempts=3\n".into()));
    ensure!(state.messages.get(&"c".into()) == Some(&"4".into()));
    ensure!(state.meta.get(&"pushed".into()) == Some(&"3".into()));
    Ok(())
}
