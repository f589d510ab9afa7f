//! Checks every cell of the table of verbs on a message that moves, in docs/protocol/states.md.

use anyhow::{Context, Result, bail, ensure};

use crate::queue::{HOUR, Queue, SECOND, T0, token};
use crate::reply::{Text, words};
use crate::table::rows;
use crate::vectors::partitions::moves_by_callers::{Before, ID, MAP, prepare};

/// A queue whose message has left its home: it is on its way to partition 17, or has arrived there.
fn moved(has_arrived: bool) -> Result<Queue> {
    let mut queue = Queue::start()?;
    prepare(&mut queue, Before::Absent)?;
    queue.ok("remap", T0, words!["close", 0, MAP])?;
    let fence = format!("m7 {T0}");
    let pushed = queue.items("push", &*fence, words!["", ID, T0 + HOUR, "", ""])?;
    ensure!(pushed == ["CREATED"], "{pushed:?}");
    let reply = queue.ok("depart", &*fence, words!["", 0, "17", 5_000, ID])?;
    let number = reply.part(1)?.int()?;
    if has_arrived {
        let done = format!("done={number}");
        queue.ok("depart", &*fence, words![done, 0, "17", 5_000])?;
    }
    Ok(queue)
}

/// The verb and the arguments of a row, and whether the call has an epoch.
fn call(row: &str) -> Result<(&str, Vec<Text>, bool)> {
    let (mine, other) = (token('a'), T0 + 90 * SECOND);
    let verb = row.split(' ').next().unwrap_or(row);
    let (argv, is_probe) = match row {
        "push" => (words!["", ID, other, "", ""], true),
        "upsert" => (words!["", ID, other, "", "on_conflict=replace"], true),
        "cancel" => (words!["", ID], true),
        "reschedule" => (words![ID, other, ""], true),
        "run_now" | "get" => (words![ID], true),
        "requeue ids" => (words!["ids", ID], true),
        "reap ids" => (words!["ids", ID, crate::state::lease_name(&mine)], true),
        "bury any" => (words![ID, "any", "reason"], true),
        "ack_push" => {
            let parent = Text([&mine.0[..], ID.as_bytes()].concat());
            (words![parent, "child", other, "", ""], true)
        }
        "ack" => (words![mine, 1, ID], false),
        "again" | "snooze" => (words![ID, mine, other], false),
        "retry" => (words![ID, mine, 1_000, "error"], false),
        "release" => (words![ID, mine], false),
        "bury" => (words![ID, mine, "reason"], false),
        "throttle" | "extend" => (words![ID, mine, SECOND], false),
        "promote" | "reap" => (words![10], false),
        "claim" => (words![10, mine, SECOND], false),
        "requeue oldest" => (words!["oldest", 10, ""], false),
        "purge scheduled" => (words!["scheduled", 10], false),
        _ => bail!("a row of an unknown verb: {row}"),
    };
    Ok((verb, argv, is_probe))
}

/// The result of a call, as the page writes it.
fn act(queue: &mut Queue, row: &str) -> Result<String> {
    let (verb, argv, is_probe) = call(row)?;
    let fence = if is_probe { "p7 " } else { "" };
    let reply = queue.call(verb, format!("{fence}{T0}"), argv)?;
    if let Some(code) = reply.code() {
        return Ok(format!("error {code}"));
    }
    Ok(match verb {
        "promote" => reply.part(1)?.int()?.to_string(),
        "claim" => {
            "none".to_owned()
                + if reply.part(3)?.list()?.is_empty() {
                    ""
                } else {
                    " but one"
                }
        }
        "reap" | "requeue" | "purge" if !is_probe => {
            format!("{}, {}", reply.part(1)?.int()?, reply.part(2)?.int()?)
        }
        "get" => {
            ensure!(reply.part(1)?.list()?.is_empty());
            "{}".to_owned()
        }
        "ack_push" => reply.part(1)?.text()?,
        _ => reply.items()?.pop().context("no result")?,
    })
}

#[test]
fn every_verb_replies_what_the_table_says_of_a_moving_message() -> Result<()> {
    let rows = rows("| Verb | on its way |")?;
    for row in &rows[2..] {
        for (column, has_arrived) in [(1, false), (2, true)] {
            for name in row[0].split(", ") {
                let mut queue = moved(has_arrived)?;
                let before = queue.state()?;
                let found = act(&mut queue, name)?;
                let expected = row[column].replace('`', "");
                ensure!(found == expected, "{name}: {found}, not {expected}");
                let mut after = queue.state()?;
                after.wake.clone_from(&before.wake);
                let difference = after.difference(&before);
                ensure!(
                    difference.is_none(),
                    "{name}: {}",
                    difference.unwrap_or_default()
                );
            }
        }
    }
    Ok(())
}
