//! Checks every cell of the tables "Verb × state" in docs/protocol/states.md on a server: the reply
//! and the resulting state.
//!
//! The expected results come from the page. The test fails if a cell differs from the scripts, or
//! if a verb has no row.

use anyhow::{Context, Result, bail, ensure};

use crate::queue::{Calls, Queue, SECOND, T0, attempt, token};
use crate::reply::{Text, words};
use crate::scripts::VERBS;

const STATES: &str = include_str!("../../docs/protocol/states.md");

/// The id of the message in every case.
const ID: &str = "order:42";
const DUE: u64 = T0 + 60 * SECOND;
const ELSEWHEN: u64 = T0 + 90 * SECOND;
const LEASE: u64 = 30 * SECOND;

/// The rows of the table whose first line begins with `heading`.
pub(crate) fn rows(heading: &str) -> Result<Vec<Vec<&'static str>>> {
    let table = STATES.lines().skip_while(|line| !line.starts_with(heading));
    let rows: Vec<Vec<&str>> = table
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    ensure!(rows.len() > 2, "no table {heading}");
    Ok(rows)
}

/// A cell is one case, or several with conditions: ``due: `1` → ready; paused: `0` → scheduled``.
fn cases(cell: &str) -> Result<Vec<(&str, String, &str)>> {
    cell.split("; ")
        .map(|case| {
            let (reply, state) = case
                .split_once(" → ")
                .with_context(|| format!("no state in {case:?}"))?;
            let (condition, reply) = reply.split_once(": ").unwrap_or(("", reply));
            Ok((condition, reply.replace('`', ""), state))
        })
        .collect()
}

/// Brings the message into a state of the table, under a condition. Returns the time for the verb's
/// call.
fn set_up(queue: &mut Queue, row: &str, state: &str, condition: &str) -> Result<u64> {
    let verb = row.split([' ', ',']).next().unwrap_or(row);
    queue.empty()?;
    queue.ok("configure", T0, words!["max_attempts", "20"])?;
    let due = if state == "scheduled" { DUE } else { T0 };
    if condition == "full" {
        queue.push(T0, "other", T0, "payload")?;
        queue.ok("claim", T0, words![1, token('f'), LEASE])?;
    }
    if state != "absent" && !state.starts_with("remembered") {
        let options = match condition {
            "expired" => "expires=+10",
            "expired, drop" => "expires=+10 on_expire=drop",
            _ => "",
        };
        queue.ok("push", T0, words!["", ID, due, "payload", options])?;
    }
    if !["absent", "scheduled"].contains(&state) && !state.starts_with("remembered") {
        queue.ok("promote", T0, words![1])?;
    }
    if state.starts_with("leased") || state == "dead" {
        queue.ok("claim", T0, words![1, token('a'), LEASE])?;
    }
    match state {
        "dead" => ensure!(queue.items("bury", T0, words![ID, token('a'), "why"])? == ["OK"]),
        "remembered, after an ack" => {
            ensure!(
                queue.items("push", T0, words![attempt(T0, 1), ID, T0, "payload", ""])?
                    == ["CREATED"]
            );
            ensure!(queue.take(T0, 1, &token('a'))? == [ID]);
            ensure!(queue.items("ack", T0, words![token('a'), 1, ID])? == ["OK"]);
        }
        "remembered, by a window" => {
            let options = format!("window={LEASE}");
            let push = words![attempt(T0, 1), ID, T0, "payload", options];
            ensure!(queue.items("push", T0, push)? == ["CREATED"]);
            ensure!(queue.take(T0, 1, &token('a'))? == [ID]);
            ensure!(queue.items("ack", T0, words![token('a'), 1, ID])? == ["OK"]);
        }
        "remembered, after a cancel or purge" => {
            queue.ok(
                "push",
                T0 - 1,
                words![attempt(T0 - 1, 1), ID, DUE, "payload", ""],
            )?;
            ensure!(queue.items("cancel", T0, words!["", ID])? == ["CANCELLED"]);
        }
        _ => {}
    }
    if row == "upsert, next" || row == "cancel, with a next message" {
        queue.ok("configure", T0, words!["layout", "3"])?;
    }
    if row == "cancel, with a next message" && state.starts_with("leased") {
        let next = words!["", ID, DUE, "other", "on_conflict=next"];
        ensure!(queue.items("upsert", T0, next)? == ["NEXT"]);
    }
    let mut beats = |seconds: &[u64]| -> Result<u64> {
        for second in seconds {
            queue.ok("beat", T0 + second * SECOND, words!["node", "stay"])?;
        }
        Ok(T0 + seconds.last().unwrap_or(&0) * SECOND)
    };
    Ok(match (condition, verb) {
        ("due", _) => DUE,
        ("paused", "promote" | "claim") => {
            queue.ok("pause", T0, words![])?;
            DUE
        }
        ("paused", _) => {
            queue.ok("pause", T0, words![])?;
            T0
        }
        ("closed", "promote" | "claim") => {
            queue.ok("pause", T0, words![100 * SECOND])?;
            DUE
        }
        ("closed", _) => {
            queue.ok("pause", T0, words![SECOND])?;
            T0
        }
        ("full", "ack_push") => {
            queue.push(T0, "another", ELSEWHEN, "")?;
            queue.ok("configure", T0, words!["max_messages", "1"])?;
            T0
        }
        ("full", _) => {
            queue.ok("configure", T0, words!["max_leased", "1"])?;
            queue.command(words!["HSET", "dueq:{q}:meta", "closed_until", "full 0"])?;
            due
        }
        ("expired" | "expired, drop", "claim") => due + 11,
        ("expired" | "expired, drop", _) => T0,
        ("limit", _) => {
            let limits = words!["max_attempts", 1, "max_crashes", 0];
            queue.ok("configure", T0, limits).map(|_| T0)?
        }
        ("before reap_after", _) => beats(&[27, 31])?,
        ("lease runs", _) => beats(&[20, 22, 24, 26])?,
        ("ran out" | "", "reap") => beats(&[25, 27, 29, 30])?,
        ("ran out, limit", "reap") => {
            let now = beats(&[25, 27, 29, 30])?;
            queue.ok("configure", now, words!["max_crashes", "0"])?;
            now
        }
        ("" | "not due" | "same due" | "other expected", _) => T0,
        _ => bail!("{verb}: an unknown condition {condition:?}"),
    })
}

/// Calls the verb once and returns the result. Times in it are replaced by the letters D, T and M
/// that the page uses.
fn act(queue: &mut Queue, row: &str, state: &str, condition: &str, now: u64) -> Result<String> {
    let claimed = token(if state == "leased, another token" {
        'b'
    } else {
        'a'
    });
    let current = if state == "scheduled" { DUE } else { T0 };
    let mut item = |verb: &str, arguments| -> Result<String> {
        Ok(queue
            .items(verb, now, arguments)?
            .first()
            .context("no result")?
            .clone())
    };
    let timed = |reply: String, letter: &str, time: u64| reply.replace(&time.to_string(), letter);
    match row {
        "push, keep" => item("push", words!["", ID, ELSEWHEN, "other", ""]),
        "upsert, reschedule" => item(
            "upsert",
            words!["", ID, ELSEWHEN, "other", "on_conflict=reschedule"],
        ),
        "upsert, replace" => item(
            "upsert",
            words!["", ID, ELSEWHEN, "other", "on_conflict=replace"],
        ),
        "upsert, next" => item(
            "upsert",
            words!["", ID, ELSEWHEN, "other", "on_conflict=next"],
        ),
        "upsert, revive" => item(
            "upsert",
            words!["", ID, ELSEWHEN, "other", "on_conflict=replace revive"],
        ),
        "push, reuse" => item("push", words!["", ID, ELSEWHEN, "other", "reuse"]),
        "ack_push" => {
            let parent = Text([&claimed.0[..], ID.as_bytes()].concat());
            let arguments = words![parent, "child", ELSEWHEN, "", ""];
            queue.ok(row, now, arguments)?.part(1)?.text()
        }
        "push, the same call" => {
            let first = if state.ends_with("purge") { T0 - 1 } else { T0 };
            let reply = item("push", words![attempt(first, 1), ID, ELSEWHEN, "other", ""])?;
            Ok(timed(reply, "M", T0).replace(".000", ""))
        }
        "push, another call" => Ok(timed(
            item("push", words![attempt(now, 2), ID, ELSEWHEN, "other", ""])?,
            "W",
            T0 + LEASE,
        )),
        "upsert, another call" => {
            let key = attempt(now, 2);
            let item = item(
                "upsert",
                words![key, ID, ELSEWHEN, "other", "on_conflict=replace"],
            );
            Ok(timed(item?, "W", T0 + LEASE))
        }
        "push without a key" => Ok(timed(
            item("push", words!["", ID, ELSEWHEN, "other", ""])?,
            "W",
            T0 + LEASE,
        )),
        "ack" => item(row, words![claimed, 1, ID]),
        "release" => item(row, words![ID, claimed]),
        "again" => Ok(timed(
            item(row, words![ID, claimed, ELSEWHEN])?,
            "D",
            ELSEWHEN,
        )),
        "retry" => Ok(timed(
            item(row, words![ID, claimed, 1_000, "error"])?,
            "D",
            now + 1_000,
        )),
        "bury" => item(row, words![ID, claimed, "reason"]),
        "bury any" => item("bury", words![ID, "any", "reason"]),
        "snooze" => Ok(timed(
            item(row, words![ID, claimed, ELSEWHEN])?,
            "D",
            ELSEWHEN,
        )),
        "throttle" => Ok(timed(
            item(row, words![ID, claimed, SECOND])?,
            "T",
            now + SECOND,
        )),
        "extend" => Ok(timed(
            item(row, words![ID, claimed, LEASE + 1])?,
            "T",
            now + LEASE + 1,
        )),
        "cancel" | "cancel, with a next message" => item("cancel", words!["", ID]),
        "cancel dead" => item("cancel", words!["1", ID]),
        "reschedule" => match condition {
            "same due" => Ok(timed(
                item(row, words![ID, current, current + 1])?,
                "D",
                current,
            )),
            "other expected" => Ok(timed(
                item(row, words![ID, ELSEWHEN, current + 1])?,
                "D",
                current,
            )),
            _ => Ok(timed(
                item(row, words![ID, ELSEWHEN, current])?,
                "D",
                ELSEWHEN,
            )),
        },
        "run_now" => Ok(timed(item(row, words![ID])?, "D", now)),
        "requeue ids" => item("requeue", words!["ids", ID]),
        "promote" => Ok(queue.ok(row, now, words![10])?.part(1)?.int()?.to_string()),
        "claim" => {
            let reply = queue.ok("claim", now, words![10, token('c'), LEASE])?;
            Ok(if reply.part(3)?.list()?.is_empty() {
                "none"
            } else {
                "granted"
            }
            .to_owned())
        }
        "reap" => two(queue, row, now, words![10]),
        "reap ids" => {
            let words = words!["ids", ID, crate::state::lease_name(&claimed)];
            Ok(timed(item("reap", words)?, "D", T0))
        }
        "requeue oldest" => two(queue, "requeue", now, words!["oldest", 10, ""]),
        "purge scheduled" | "purge ready" | "purge dead" => {
            two(queue, "purge", now, words![&row[6..], 10])
        }
        "get" => got(queue, now, current),
        _ => bail!("a row of an unknown verb: {row}"),
    }
}

fn two(queue: &mut Queue, verb: &str, now: u64, arguments: Vec<Text>) -> Result<String> {
    let reply = queue.ok(verb, now, arguments)?;
    Ok(format!(
        "{}, {}",
        reply.part(1)?.int()?,
        reply.part(2)?.int()?
    ))
}

fn got(queue: &mut Queue, now: u64, due: u64) -> Result<String> {
    let reply = queue.ok("get", now, words![ID])?;
    let [_, state, _, time, ..] = reply.part(1)?.list()? else {
        return Ok("{}".to_owned());
    };
    let (state, time) = (state.text()?, time.int()? as u64);
    let name = match state.as_str() {
        "leased" if time == T0 + LEASE => "deadline",
        "dead" if time == T0 => "died",
        "scheduled" | "ready" if time == due => "due",
        _ => "another time",
    };
    Ok(format!("{state}, {name}"))
}

fn state_of(queue: &mut Queue, now: u64) -> Result<String> {
    let reply = queue.ok("get", now, words![ID])?;
    let pairs = reply.part(1)?.list()?;
    pairs
        .get(1)
        .map_or(Ok("absent".to_owned()), |state| state.text())
}

fn check(queue: &mut Queue, row: &str, state: &str, cell: &str) -> Result<usize> {
    let cases = cases(cell)?;
    for (condition, reply, then) in &cases {
        let now = set_up(queue, row, state, condition)?;
        let (first, mut before) = (state_of(queue, now)?, queue.state()?);
        let found = act(queue, row, state, condition, now)?;
        ensure!(
            found == *reply,
            "{condition:?}: the reply is {found:?}, not {reply:?}"
        );
        let (last, after) = (state_of(queue, now)?, queue.state()?);
        ensure!(
            last == *then,
            "{condition:?}: the state is {last}, not {then}"
        );
        let changed = condition != &"same due"
            && ["OK", "MOVED", "NEXT", "CANCELLED", "MARKED"]
                .iter()
                .any(|word| found.starts_with(word));
        if first == last && !changed {
            before.wake.clone_from(&after.wake);
            let difference = after.difference(&before);
            ensure!(
                difference.is_none(),
                "{condition:?}: a refused call changed the state: {}",
                difference.unwrap_or_default()
            );
        }
    }
    Ok(cases.len())
}

#[test]
fn every_cell_of_the_table_matches_the_scripts() -> Result<()> {
    every_cell(Calls::Evalsha)
}

#[test]
fn every_cell_of_the_table_matches_the_functions() -> Result<()> {
    every_cell(Calls::Fcall)
}

fn every_cell(calls: Calls) -> Result<()> {
    let mut queue = Queue::start()?;
    queue.through(calls)?;
    let (mut verbs, mut checked) = (Vec::new(), 0);
    for heading in [
        "| Verb | absent | scheduled |",
        "| Verb | remembered, after an ack |",
    ] {
        let rows = rows(heading)?;
        for row in &rows[2..] {
            let name = row[0].replace('`', "");
            verbs.push(name.split([' ', ',']).next().unwrap_or_default().to_owned());
            for (state, cell) in rows[0].iter().zip(row).skip(1) {
                checked += check(&mut queue, &name, state, cell)
                    .with_context(|| format!("{name}, {state}"))?;
            }
        }
    }
    for verb in VERBS {
        ensure!(
            verbs.iter().any(|name| name == verb.name) == verb.has_row,
            "{}: states.md and VERBS differ on its row",
            verb.name
        );
    }
    println!("{checked} cases");
    Ok(())
}
