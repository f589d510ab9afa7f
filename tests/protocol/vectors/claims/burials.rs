//! `bury any`: an operator takes a message out of service, whoever has it.

use anyhow::{Result, ensure};
use dueq::admin::AclRole;

use crate::model::check_structure;
use crate::queue::{Queue, SECOND, T0, attempt, token};
use crate::reply::{Text, words};
use crate::state::lease_name;
use crate::vectors::pushes::next;
use crate::vectors::refused::older_roles::{call, denied};

const WHY: &str = "buried when its lease ended";

/// A queue with one message, `a`, leased under token `a` for 30 s, with an error of a former attempt.
fn leased() -> Result<Queue> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0, "payload")?;
    ensure!(queue.take(T0, 1, &token('f'))? == ["a"]);
    ensure!(
        queue.items("retry", T0, words!["a", token('f'), 0, "broken"])?
            == [format!("SCHEDULED {T0}")]
    );
    ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
    Ok(queue)
}

fn mark(queue: &mut Queue, now: u64) -> Result<Vec<String>> {
    queue.items("bury", now, words!["a", "any", "poison"])
}

/// The state of `a`, and its error.
fn of(queue: &mut Queue, now: u64) -> Result<(String, String)> {
    let reply = queue.ok("get", now, words!["a"])?;
    let fields = reply.part(1)?.list()?;
    match fields {
        [_, state, _, _, _, _, _, _, _, _, _, error, ..] => Ok((state.text()?, error.text()?)),
        _ => Ok(("absent".to_owned(), String::new())),
    }
}

fn dead(error: &str) -> (String, String) {
    ("dead".to_owned(), error.to_owned())
}

#[test]
fn marked_message_is_dead_however_its_lease_ends() -> Result<()> {
    let now = T0 + SECOND;
    let former = format!("{WHY}: broken");
    let lease = lease_name(&token('a'));
    for (verb, words, reply, error) in [
        ("release", words!["a", token('a')], "OK", &former),
        (
            "retry",
            words!["a", token('a'), 0, "again"],
            "DEAD",
            &format!("{WHY}: again"),
        ),
        ("snooze", words!["a", token('a'), "+1000"], "DEAD", &former),
        ("throttle", words!["a", token('a'), 1_000], "OK", &former),
        ("reap", words!["ids", "a", lease], "DEAD", &former),
        (
            "bury",
            words!["a", token('a'), "hopeless"],
            "OK",
            &"hopeless".to_owned(),
        ),
    ] {
        for extends in [false, true] {
            let mut queue = leased()?;
            ensure!(mark(&mut queue, T0)? == ["MARKED"]);
            if extends {
                let until = format!("OK {}", now + 60 * SECOND);
                let extended = queue.items("extend", now, words!["a", token('a'), 60 * SECOND])?;
                ensure!(extended == [until]);
            }
            let died = queue.ok("stats", now, words![])?;
            let found = queue.items(verb, now, words.clone())?;
            ensure!(found[0].starts_with(reply), "{verb}: {found:?}");
            ensure!(
                of(&mut queue, now)? == dead(error),
                "{verb}: {:?}",
                of(&mut queue, now)?
            );
            check_structure(&queue.state()?, None)?;
            let stats = queue.ok("stats", now, words![])?;
            let count = |stats: &crate::reply::Reply, name: &str| -> Result<i64> {
                let pairs = stats.part(1)?.list()?;
                let at = pairs
                    .iter()
                    .position(|it| it.text().is_ok_and(|text| text == name));
                pairs[at.unwrap_or_default() + 1].int()
            };
            ensure!(
                count(&stats, "died")? == 1 && count(&died, "died")? == 0,
                "{verb}"
            );
            for counter in ["released", "throttled", "snoozed"] {
                ensure!(count(&stats, counter)? == 0, "{verb} counts as {counter}");
            }
        }
    }
    Ok(())
}

#[test]
fn marked_message_is_dead_when_its_lease_runs_out() -> Result<()> {
    let mut queue = leased()?;
    ensure!(mark(&mut queue, T0)? == ["MARKED"]);
    let now = T0 + 31 * SECOND;
    let beats = words!["HSET", "dueq:{q}:meta", "last_beat", now, "reap_after", 0];
    queue.command(beats)?;
    let reaped = queue.ok("reap", now, words![10])?;
    ensure!(
        (reaped.part(1)?.int()?, reaped.part(2)?.int()?) == (1, 1),
        "{reaped:?}"
    );
    ensure!(of(&mut queue, now)? == dead(&format!("{WHY}: broken")));
    Ok(())
}

#[test]
fn success_ends_a_marked_message_as_usual() -> Result<()> {
    for (verb, words, state) in [
        ("ack", words![token('a'), 1, "a"], "absent"),
        ("again", words!["a", token('a'), "+1000"], "scheduled"),
    ] {
        let mut queue = leased()?;
        ensure!(mark(&mut queue, T0)? == ["MARKED"]);
        ensure!(queue.items(verb, T0, words)?[0].starts_with("OK"));
        ensure!(of(&mut queue, T0)?.0 == state, "{verb}");
        check_structure(&queue.state()?, None)?;
    }
    Ok(())
}

#[test]
fn mark_ends_with_its_lease() -> Result<()> {
    let mut queue = next::leased()?;
    ensure!(next::push(&mut queue, T0, &attempt(T0, 1), "next")? == "NEXT");
    ensure!(mark(&mut queue, T0)? == ["MARKED"]);
    ensure!(queue.items("release", T0, words!["a", token('a')])? == ["OK"]);
    ensure!(
        of(&mut queue, T0)?.0 == "scheduled",
        "the next message takes over"
    );
    ensure!(queue.take(T0 + 10, 1, &token('b'))? == ["a"]);
    ensure!(queue.items("release", T0 + 10, words!["a", token('b')])? == ["OK"]);
    ensure!(of(&mut queue, T0 + 10)?.0 == "scheduled");
    Ok(())
}

#[test]
fn mark_keeps_the_window_and_a_repetition_changes_nothing() -> Result<()> {
    for window in ["", "window=60000"] {
        let mut queue = Queue::start()?;
        queue.items("push", T0, words!["", "a", T0, "", window])?;
        ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
        ensure!(mark(&mut queue, T0)? == ["MARKED"]);
        let before = queue.state()?;
        ensure!(mark(&mut queue, T0 + 1)? == ["MARKED"]);
        ensure!(queue.state()? == before);
        ensure!(queue.items("ack", T0, words![token('a'), 1, "a"])? == ["OK"]);
        let known = queue.ok("get", T0, words!["a"])?;
        let is_remembered = known.list()?.len() > 2;
        ensure!(is_remembered != window.is_empty(), "{window:?}: {known:?}");
    }
    Ok(())
}

#[test]
fn waiting_messages_die_at_once_with_the_reason() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0, "payload")?;
    queue.push(T0, "b", T0, "payload")?;
    queue.push(T0, "c", T0 + 60 * SECOND, "payload")?;
    ensure!(queue.ok("promote", T0, words![1])?.part(1)?.int()? == 1);
    let all = words![
        "a",
        "any",
        "poison",
        "b",
        "any",
        "poison",
        "c",
        "any",
        "x".repeat(2_000)
    ];
    ensure!(queue.items("bury", T0, all)? == ["OK", "OK", "OK"]);
    ensure!(of(&mut queue, T0)? == dead("poison"));
    let state = queue.state()?;
    ensure!(state.dead.len() == 4 && state.ready.len() == 1 && state.scheduled.len() == 1);
    ensure!(state.attrs[&Text::from("c")].0.len() == 1_024 + "0 0 - \n".len());
    ensure!(mark(&mut queue, T0)? == ["DEAD"]);
    Ok(())
}

#[test]
fn a_call_names_tokens_for_all_or_for_none() -> Result<()> {
    let mut queue = leased()?;
    let before = queue.state()?;
    for mixed in [
        words!["a", "any", "", "a", token('a'), ""],
        words!["a", token('a'), "", "a", "any", ""],
        words!["a", "any"],
    ] {
        let reply = queue.call("bury", T0, mixed)?;
        ensure!(reply.code() == Some("BADARGS"), "{reply:?}");
    }
    ensure!(queue.state()? == before);
    Ok(())
}

#[test]
fn only_an_operator_may_bury_without_a_token() -> Result<()> {
    for (role, may) in [
        (AclRole::Producer, false),
        (AclRole::Consumer, false),
        (AclRole::Operator, true),
    ] {
        let mut queue = leased()?;
        let mut user = queue.user(role, "q")?;
        let before = queue.contents()?;
        let reply = call(&mut user, "bury", words!["a", "any", "poison"])?;
        ensure!(denied(&reply) != may, "{role:?}: {reply:?}");
        ensure!((queue.contents()? == before) != may, "{role:?}");
    }
    Ok(())
}
