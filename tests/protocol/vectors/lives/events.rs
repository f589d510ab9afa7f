//! What a queue with `life_keep_ms` tells of a message while it has it.

use anyhow::{Context, Result, ensure};

use crate::queue::{HOUR, Queue, SECOND, T0};
use crate::reply::{Text, words};
use crate::state::lease_name;

/// A token of the node whose id ends with `abcdefg`.
pub(crate) fn token(number: u64) -> Text {
    format!("@abcdefg{number:08}").into()
}

/// A queue that keeps lives for so long after the end.
pub(crate) fn keeping(ms: impl Into<Text>) -> Result<Queue> {
    let mut queue = Queue::start()?;
    queue.ok("configure", T0, words!["life_keep_ms", ms])?;
    Ok(queue)
}

/// The events that `get` tells of the message `a`.
pub(crate) fn life(queue: &mut Queue, now: u64) -> Result<Vec<String>> {
    let reply = queue.ok("get", now, words!["a"])?;
    let fields = reply.part(1)?.list()?;
    let text = match fields {
        [] => reply.list()?.get(5),
        _ => fields.chunks(2).find_map(|pair| match pair {
            [name, value] if name.text().is_ok_and(|name| name == "life") => Some(value),
            _ => None,
        }),
    };
    let text = text.map(crate::reply::Reply::text).transpose()?;
    Ok(text.map_or_else(Vec::new, |text| {
        text.split('\n').map(str::to_owned).collect()
    }))
}

/// Claims `a` at this time under the token with this number.
fn claim(queue: &mut Queue, now: u64, number: u64) -> Result<()> {
    ensure!(queue.take(now, 1, &token(number))? == ["a"]);
    Ok(())
}

#[test]
fn no_life_is_kept_unless_the_queue_is_told_to() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0, "payload")?;
    claim(&mut queue, T0, 1)?;
    queue.items("retry", T0, words!["a", token(1), 0, "broken"])?;
    ensure!(life(&mut queue, T0)?.is_empty());
    ensure!(
        queue.state()?.attrs.len() == 2,
        "placeholder, and the error of a"
    );
    Ok(())
}

#[test]
fn each_call_adds_its_event() -> Result<()> {
    let mut queue = keeping(0)?;
    let (due, began) = (T0 + 10, T0 + 20);
    queue.push(T0, "a", due, "payload")?;
    let mut expected = vec![format!("{T0} push {due}")];
    let settlements = [
        ("retry", words!["a", token(0), 0, "broken"], "broken"),
        ("release", words!["a", token(1)], ""),
        ("snooze", words!["a", token(2), "+0"], ""),
        ("throttle", words!["a", token(3), 1], ""),
        ("again", words!["a", token(4), "+0"], ""),
        ("bury", words!["a", token(5), "hopeless"], "hopeless"),
    ];
    let (mut now, mut claimed_due) = (began, due);
    for (number, (verb, call, text)) in settlements.into_iter().enumerate() {
        claim(&mut queue, now, number as u64)?;
        queue.items(verb, now + 5, call)?;
        let event = format!("{} {verb} {claimed_due} {now} abcdefg {text}", now + 5);
        expected.push(event.trim_end().to_owned());
        ensure!(life(&mut queue, now + 5)? == expected, "{verb}");
        let score = crate::state::State::score(&queue.state()?.scheduled, &"a".into());
        claimed_due = score.map_or(0, |score| score as u64);
        now += 10;
    }
    for (verb, call, event) in [
        ("requeue", words!["ids", "a"], format!("requeue {now}")),
        (
            "reschedule",
            words!["a", now + HOUR, ""],
            format!("reschedule {}", now + HOUR),
        ),
        ("run_now", words!["a"], format!("run_now {now}")),
        (
            "upsert",
            words!["", "a", now + HOUR, "payload", "on_conflict=replace"],
            format!("upsert {}", now + HOUR),
        ),
        (
            "bury",
            words!["a", "any", "poison"],
            "bury - - - poison".to_owned(),
        ),
    ] {
        queue.items(verb, now, call)?;
        expected.push(format!("{now} {event}"));
        ensure!(life(&mut queue, now)? == expected, "{verb}");
    }
    Ok(())
}

#[test]
fn a_crash_tells_when_its_delivery_began() -> Result<()> {
    for extends in [false, true] {
        let mut queue = keeping(0)?;
        queue.push(T0, "a", T0, "payload")?;
        claim(&mut queue, T0 + 5, 1)?;
        let now = T0 + SECOND;
        if extends {
            queue.items("extend", now, words!["a", token(1), HOUR])?;
        }
        queue.items("reap", now, words!["ids", "a", lease_name(&token(1))])?;
        let events = life(&mut queue, now)?;
        ensure!(
            events[1] == format!("{now} crash {T0} {} abcdefg", T0 + 5),
            "{events:?}"
        );
    }
    Ok(())
}

#[test]
fn a_repeated_call_adds_no_event() -> Result<()> {
    let mut queue = keeping(0)?;
    let attempt = crate::queue::attempt(T0, 1);
    for _ in 0..2 {
        queue.items("push", T0, words![&*attempt, "a", T0, "payload", ""])?;
    }
    claim(&mut queue, T0, 1)?;
    for _ in 0..2 {
        queue.items("retry", T0 + 5, words!["a", token(1), 0, "broken"])?;
    }
    ensure!(life(&mut queue, T0 + 5)?.len() == 2);
    Ok(())
}

#[test]
fn a_life_has_the_last_20_events_with_200_bytes_of_text() -> Result<()> {
    let mut queue = keeping(0)?;
    queue.push(T0, "a", T0, "payload")?;
    for number in 0..25 {
        claim(&mut queue, T0 + number, number)?;
        let error = format!("{number} \n\0{}", "x".repeat(1_000));
        let call = words!["a", token(number), 0, error, ""];
        queue.items("retry", T0 + number, call[..4].to_vec())?;
        if queue.state()?.dead.len() > 1 {
            queue.items("requeue", T0 + number, words!["ids", "a"])?;
        }
    }
    let events = life(&mut queue, T0 + 25)?;
    ensure!(events.len() == 20, "{events:?}");
    let last = events.last().context("no event")?;
    ensure!(
        last.contains(" abcdefg 24   xxx") && last.ends_with(&"x".repeat(195)),
        "{last}"
    );
    ensure!(events.iter().all(|event| event.len() < 300));
    Ok(())
}

#[test]
fn pushes_of_all_paths_begin_a_life() -> Result<()> {
    let mut queue = keeping(0)?;
    let due = T0 + HOUR;
    let fast = words!["", "a", due, "", "", "b", due, "", ""];
    let shared = words![
        "",
        "a",
        due,
        "",
        "max_attempts=2",
        "b",
        due + 1,
        "",
        "max_attempts=2"
    ];
    let each = words!["", "a", due, "", "max_attempts=2", "b", due, "", ""];
    for (verb, call) in [("push", fast), ("push", shared), ("push", each)] {
        ensure!(queue.items(verb, T0, call)? == ["CREATED", "CREATED"]);
        ensure!(life(&mut queue, T0)? == [format!("{T0} push {due}")]);
        queue.items("cancel", T0, words!["", "a", "b"])?;
    }
    queue.items(
        "upsert",
        T0,
        words!["", "a", due, "", "on_conflict=reschedule"],
    )?;
    ensure!(life(&mut queue, T0)? == [format!("{T0} upsert {due}")]);
    Ok(())
}

#[test]
fn a_message_that_follows_a_delivery_tells_so() -> Result<()> {
    let mut queue = keeping(0)?;
    queue.push(T0, "b", T0, "payload")?;
    ensure!(queue.take(T0, 1, &token(1))? == ["b"]);
    let delivery = Text([token(1).0, b"b".to_vec()].concat());
    let reply = queue.ok("ack_push", T0, words![delivery, "a", T0 + 5, "", ""])?;
    ensure!(reply.part(1)?.text()? == "OK");
    ensure!(life(&mut queue, T0)? == [format!("{T0} ack_push {}", T0 + 5)]);
    claim(&mut queue, T0 + 6, 2)?;
    let next = words!["", "a", T0 + HOUR, "", "on_conflict=next"];
    ensure!(queue.items("upsert", T0 + 6, next)? == ["NEXT"]);
    queue.items("retry", T0 + 7, words!["a", token(2), 0, "broken"])?;
    ensure!(
        life(&mut queue, T0 + 7)?[1..]
            == [
                format!("{} retry {} {} abcdefg broken", T0 + 7, T0 + 5, T0 + 6),
                format!("{} next {}", T0 + 7, T0 + HOUR),
            ]
    );
    Ok(())
}
