//! What departs from a partition and arrives at another one.

use anyhow::{Result, ensure};

use crate::queue::{HOUR, Queue, T0};
use crate::reply::{Reply, Text, words};
use crate::vectors::partitions::moves_by_callers::{Before, ID, MAP, prepare};

/// A queue that changes, with partition 17 beside its home.
fn changing() -> Result<Queue> {
    let mut queue = Queue::start()?;
    prepare(&mut queue, Before::Absent)?;
    queue.ok("remap", T0, words!["close", 0, MAP])?;
    queue.enter("17")?;
    queue.ok("remap", T0, words!["forward", MAP])?;
    queue.enter("-")?;
    Ok(queue)
}

fn fenced(now: u64) -> String {
    format!("m7 {now}")
}

/// Pushes a message at the home before the partitions change.
fn push(queue: &mut Queue, id: &str, due: u64, options: &str) -> Result<()> {
    let pushed = queue.items("push", fenced(T0), words!["", id, due, id, options])?;
    ensure!(pushed == ["CREATED"], "{pushed:?}");
    Ok(())
}

/// Number, count and bytes of the batch that `depart` returns.
fn depart(queue: &mut Queue, verdict: &str, after: u64, ids: &[&str]) -> Result<(u64, i64, Text)> {
    queue.enter("-")?;
    let names = ids.iter().map(|id| Text::from(*id)).collect();
    let argv = [words![verdict, after, "17", 5_000], names].concat();
    let reply = queue.ok("depart", fenced(T0), argv)?;
    let number = reply.part(1)?.int()? as u64;
    Ok((
        number,
        reply.part(3)?.int()?,
        reply.part(4)?.bytes()?.clone(),
    ))
}

fn arrive(queue: &mut Queue, number: u64, batch: &Text) -> Result<String> {
    queue.enter("17")?;
    queue
        .ok("arrive", fenced(T0), words!["-", number, batch])?
        .part(1)?
        .text()
}

#[test]
fn a_batch_is_replied_until_it_is_decided() -> Result<()> {
    let mut queue = changing()?;
    for id in ["a", "b"] {
        push(&mut queue, id, T0 + HOUR, "")?;
    }
    let first = depart(&mut queue, "", 0, &["a"])?;
    ensure!((first.0, first.1) == (T0 * 1_000, 1), "{first:?}");
    // Neither a name nor a verdict about another batch makes a second one.
    for verdict in ["", "done=1", "back=1"] {
        ensure!(
            depart(&mut queue, verdict, 0, &["b"])? == first,
            "{verdict}"
        );
    }
    let back = depart(&mut queue, &format!("back={}", first.0), 0, &[])?;
    ensure!((back.0, back.1) == (0, 0), "{back:?}");
    ensure!(
        queue.items("push", fenced(T0), words!["", "a", "+1", "", ""])? == ["EXISTS scheduled"]
    );
    // At one time each number is larger than the last, and than what another partition knows.
    let second = depart(&mut queue, "", 0, &["a"])?;
    ensure!(second.0 == first.0 + 2, "what came back counts: {second:?}");
    ensure!(arrive(&mut queue, second.0, &second.2)? == "APPLIED 1");
    let third = depart(
        &mut queue,
        &format!("done={}", second.0),
        second.0 + 9,
        &["b"],
    )?;
    ensure!(third.0 == second.0 + 10, "{third:?}");
    ensure!(queue.items("push", fenced(T0), words!["", "a", "+1", "", ""])? == ["CREATED"]);
    Ok(())
}

#[test]
fn only_the_next_batch_arrives_and_only_once() -> Result<()> {
    let mut queue = changing()?;
    push(&mut queue, "a", T0 + HOUR, "")?;
    let (number, _, batch) = depart(&mut queue, "", 0, &["a"])?;
    ensure!(arrive(&mut queue, number, &batch)? == "APPLIED 1");
    queue.items("cancel", fenced(T0), words!["", "a"])?;
    ensure!(arrive(&mut queue, number, &batch)? == "APPLIED 0");
    ensure!(arrive(&mut queue, number, &"".into())? == "APPLIED 0");
    ensure!(arrive(&mut queue, number - 1, &batch)? == format!("VOID {number}"));
    ensure!(arrive(&mut queue, number + 2, &"".into())? == format!("VOID {}", number + 2));
    ensure!(
        arrive(&mut queue, number, &batch)? == "APPLIED 0",
        "it is known after later ones"
    );
    ensure!(arrive(&mut queue, number + 2, &batch)? == format!("VOID {}", number + 2));
    ensure!(arrive(&mut queue, number + 1, &batch)? == format!("VOID {}", number + 2));
    for later in 3..11 {
        arrive(&mut queue, number + later, &"".into())?;
    }
    let forgotten = arrive(&mut queue, number, &batch)?;
    ensure!(forgotten == format!("VOID {}", number + 10), "{forgotten}");
    ensure!(queue.items("cancel", fenced(T0), words!["", "a"])? == ["CANCELLED"]);
    ensure!(queue.state()?.messages.len() == 1, "a is gone");
    Ok(())
}

#[test]
fn what_is_due_soon_or_leased_stays() -> Result<()> {
    let mut queue = changing()?;
    let dues = [
        ("overdue", T0 - 1_001),
        ("ready", T0 - 1_002),
        ("leased", T0 - 1_003),
        ("dead", T0 - 1_004),
        ("late", T0 - 1_000),
        ("soon", T0 + 5_000),
        ("later", T0 + 5_001),
    ];
    for (id, due) in dues {
        push(&mut queue, id, due, "")?;
    }
    for (id, mark) in [("dead", 'd'), ("leased", 'l')] {
        ensure!(queue.take(T0, 1, &crate::queue::token(mark))? == [id]);
    }
    queue.items("bury", T0, words!["dead", crate::queue::token('d'), "why"])?;
    queue.ok("promote", T0, words![1])?;
    let names = dues.map(|(id, _)| id);
    let (number, count, batch) = depart(&mut queue, "", 0, &names)?;
    ensure!(count == 4);
    ensure!(arrive(&mut queue, number, &batch)? == "APPLIED 4");
    for (id, due) in dues {
        let moved = ["overdue", "ready", "dead", "later"].contains(&id);
        queue.enter(if moved { "17" } else { "-" })?;
        let found = queue.ok("get", fenced(T0), words![id])?;
        let found = found.part(1)?.list()?;
        ensure!(!found.is_empty(), "{id}");
        let (state, time) = match id {
            "dead" => ("dead", T0),
            _ => ("scheduled", due),
        };
        ensure!(!moved || found[1] == state.into(), "{id}: {found:?}");
        ensure!(
            id == "leased" || found[3] == Reply::Int(time as i64),
            "{id}: {found:?}"
        );
    }
    Ok(())
}

/// Attempts, errors, options and windows come along, and work at the new place.
#[test]
fn a_message_arrives_as_it_was() -> Result<()> {
    let mut queue = changing()?;
    let long = "x".repeat(5_000);
    push(
        &mut queue,
        "expires",
        T0 + 6_000,
        "expires=+10 on_expire=drop window=3600000",
    )?;
    push(&mut queue, ID, T0 - 2_000, "max_attempts=7")?;
    queue.items("push", fenced(T0), words!["", "long", T0 + HOUR, &long, ""])?;
    ensure!(queue.take(T0, 1, &crate::queue::token('a'))? == [ID]);
    queue.items(
        "retry",
        T0,
        words![ID, crate::queue::token('a'), 6_000, "no bank"],
    )?;
    let (number, _, batch) = depart(&mut queue, "", 0, &["expires", ID, "long"])?;
    depart(&mut queue, &format!("done={number}"), 0, &[])?;
    ensure!(arrive(&mut queue, number, &batch)? == "APPLIED 3");
    let found = queue.ok("get", fenced(T0), words![ID])?;
    let text = format!("{found:?}");
    ensure!(
        text.contains("max_attempts=7") && text.contains("no bank"),
        "{text}"
    );
    ensure!(
        found.part(1)?.list()?[5] == Reply::Int(1),
        "failures: {text}"
    );
    let meta = queue.state()?.meta;
    ensure!(
        meta.get(&"largest_payload_bytes".into()) == Some(&"8192".into()),
        "{meta:?}"
    );
    // It expires there, and its window is remembered.
    ensure!(crate::vectors::claimed(&mut queue, T0 + 6_011, 9)? == [ID]);
    let pushed = queue.items(
        "push",
        fenced(T0),
        words!["", "expires", "+1", "", "window=1"],
    )?;
    ensure!(pushed[0].starts_with("REMEMBERED"), "{pushed:?}");
    queue.enter("-")?;
    let pushed = queue.items("push", fenced(T0), words!["", "expires", "+1", "", ""])?;
    ensure!(pushed == ["CREATED"], "its window has left: {pushed:?}");
    Ok(())
}

/// A window outlives its message, and its owner may have moved.
#[test]
fn windows_and_outcomes_move_by_their_names() -> Result<()> {
    let mut queue = changing()?;
    push(&mut queue, "a", T0, "window=3600000")?;
    ensure!(queue.take(T0, 1, &crate::queue::token('a'))? == ["a"]);
    queue.items("ack", T0, words![crate::queue::token('a'), 1, "a"])?;
    let names: Vec<String> = queue
        .state()?
        .recent
        .iter()
        .map(|(name, _)| name.text())
        .collect();
    let names: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| name.starts_with(['\u{5}', '\u{6}']))
        .collect();
    ensure!(names.len() == 2, "{names:?}");
    let (number, count, batch) = depart(&mut queue, "", 0, &names)?;
    ensure!(count == 0, "no message");
    let probed = queue.items("push", format!("p7 {T0}"), words!["", "a", "+1", "", ""])?;
    ensure!(probed == ["MOVING"], "{probed:?}");
    ensure!(arrive(&mut queue, number, &batch)? == "APPLIED 0");
    let pushed = queue.items("push", fenced(T0), words!["", "a", "+1", "", ""])?;
    ensure!(
        pushed == [format!("REMEMBERED {}", T0 + HOUR)],
        "{pushed:?}"
    );
    let end = queue.ok("get", fenced(T0), words!["a"])?;
    ensure!(*end.part(2)? == "finished".into(), "{end:?}");
    Ok(())
}

#[test]
fn a_partition_is_not_removed_while_a_batch_is_on_its_way() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.enter("17")?;
    queue.ok("remap", T0, words!["forward", "7|- 17|-"])?;
    push(&mut queue, "a", T0 + HOUR, "")?;
    let reply = queue.ok("depart", fenced(T0), words!["", 0, "-", 5_000, "a"])?;
    let number = reply.part(1)?.int()?;
    let removed = queue.ok("remap", T0, words!["remove", 7])?;
    ensure!(*removed.part(1)? == "HAS 1".into(), "{removed:?}");
    queue.ok(
        "depart",
        fenced(T0),
        words![format!("done={number}"), 0, "-", 5_000],
    )?;
    let removed = queue.ok("remap", T0, words!["remove", 7])?;
    ensure!(*removed.part(1)? == "DONE".into(), "{removed:?}");
    Ok(())
}

/// After a failover a partition may have what it sent; what arrived since is newer.
#[test]
fn an_arriving_message_replaces_none() -> Result<()> {
    let mut queue = changing()?;
    push(&mut queue, "a", T0 + HOUR, "")?;
    let (number, _, batch) = depart(&mut queue, "", 0, &["a"])?;
    queue.enter("17")?;
    let own = words!["", "a", T0 + HOUR, "own", ""];
    ensure!(queue.items("push", fenced(T0), own)? == ["CREATED"]);
    let before = queue.state()?.messages;
    ensure!(arrive(&mut queue, number, &batch)? == "APPLIED 0");
    ensure!(queue.state()?.messages == before);
    Ok(())
}

/// What a probe does at the old partition is the last that it hears of the id.
#[test]
fn a_probe_ends_the_memory_of_a_cancel_but_prolongs_none() -> Result<()> {
    let mut queue = Queue::start()?;
    prepare(&mut queue, Before::Cancelled)?;
    queue.ok("remap", T0, words!["close", 0, MAP])?;
    let memory = queue.state()?.recent;
    let probe = |now: u64| format!("p7 {now}");
    let cancelled = queue.items("cancel", probe(T0 + 5_000), words!["", ID])?;
    ensure!(cancelled == ["AWAY CANCELLED"], "{cancelled:?}");
    ensure!(queue.state()?.recent == memory, "nothing was prolonged");
    let pushed = queue.items("push", probe(T0 + 5_001), words!["", ID, "+1", "", ""])?;
    ensure!(pushed == ["AWAY"], "{pushed:?}");
    let cancelled = queue.items("cancel", probe(T0 + 5_002), words!["", ID])?;
    ensure!(
        cancelled == ["AWAY"],
        "the push came after the cancel: {cancelled:?}"
    );
    Ok(())
}

/// Members of the deduplication memory stay after their time until they are trimmed.
#[test]
fn an_arriving_window_replaces_one_that_has_ended_by_time_only() -> Result<()> {
    for (stored, expected) in [(T0 - 1, T0 + HOUR), (T0 + 5, T0 + 5), (0, 0)] {
        let mut queue = changing()?;
        push(&mut queue, "a", T0 + HOUR, "window=3600000")?;
        let (number, _, batch) = depart(&mut queue, "", 0, &["a"])?;
        queue.command(words!["ZADD", "dueq:{q/17}:recent", stored, "\u{5}a"])?;
        arrive(&mut queue, number, &batch)?;
        let found = queue.command(words!["ZSCORE", "dueq:{q/17}:recent", "\u{5}a"])?;
        ensure!(found.text()? == expected.to_string(), "{stored}: {found:?}");
    }
    Ok(())
}

#[test]
fn a_batch_has_about_256_kib_and_each_message_once() -> Result<()> {
    let mut queue = changing()?;
    let ids: Vec<String> = (0..10).map(|number| format!("m{number}")).collect();
    for id in &ids {
        let payload = "x".repeat(60_000);
        let pushed = queue.items("push", fenced(T0), words!["", id, T0 + HOUR, payload, ""])?;
        ensure!(pushed == ["CREATED"], "{pushed:?}");
    }
    let names: Vec<&str> = ids.iter().flat_map(|id| [id.as_str(), id]).collect();
    let (mut left, mut verdict) = (10, String::new());
    while left > 0 {
        let (number, messages, batch) = depart(&mut queue, &verdict, 0, &names)?;
        ensure!((1..=8).contains(&messages), "{messages}");
        ensure!(arrive(&mut queue, number, &batch)? == format!("APPLIED {messages}"));
        (left, verdict) = (left - messages, format!("done={number}"));
    }
    ensure!(left == 0, "{left}");
    Ok(())
}
