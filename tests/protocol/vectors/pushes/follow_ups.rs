//! `ack_push`: an ack together with follow-ups, all or nothing.

use anyhow::{Result, ensure};

use crate::model::check_structure;
use crate::queue::{HOUR, Queue, T0, token};
use crate::reply::{Reply, Text, words};
use crate::vectors::pushes::debounce::layout_3;

fn delivery(token: &Text, id: &str) -> Text {
    Text([&token.0[..], id.as_bytes()].concat())
}

/// The result of the delivery, and the results of the follow-ups.
fn ack_push(
    queue: &mut Queue,
    now: u64,
    token: &Text,
    children: Vec<Text>,
) -> Result<(String, Vec<String>)> {
    let arguments = [words![delivery(token, "a")], children].concat();
    let reply = queue.ok("ack_push", now, arguments)?;
    let results = reply.part(2)?.list()?.iter().map(Reply::text);
    Ok((reply.part(1)?.text()?, results.collect::<Result<_>>()?))
}

/// A queue in which a claim with the token `a` has leased `a`.
fn leased() -> Result<Queue> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0, "parent")?;
    ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
    Ok(queue)
}

fn child(id: &str) -> Vec<Text> {
    words![id, T0 + HOUR, "child", ""]
}

#[test]
fn one_refused_follow_up_leaves_the_delivery_leased() -> Result<()> {
    let long = "x".repeat(1_048_577);
    let id_201 = "x".repeat(201);
    let refused: [(&str, Vec<Text>); 8] = [
        ("INVALID", words!["a", "+5", "", ""]),
        ("INVALID", words!["", "+5", "", ""]),
        ("INVALID", words![id_201, "+5", "", ""]),
        ("INVALID", words!["c\u{1}", "+5", "", ""]),
        ("INVALID", words!["c", "soon", "", ""]),
        ("INVALID", words!["c", "+5", long, ""]),
        ("INVALID", words!["c", "+5", "", "on_conflict=next"]),
        ("INVALID", words!["c", "+5", "", "nonsense"]),
    ];
    for (why, bad) in refused {
        for first in [true, false] {
            let mut queue = leased()?;
            let before = queue.contents()?;
            let window = words!["b", "+5", "good", "window=1000"];
            let children = match first {
                true => [bad.clone(), window].concat(),
                false => [window, bad.clone()].concat(),
            };
            let (result, results) = ack_push(&mut queue, T0, &token('a'), children)?;
            let place = usize::from(!first);
            ensure!(
                result == "REFUSED" && results[place].starts_with(why),
                "{results:?}"
            );
            ensure!(results[1 - place] == "CREATED", "{results:?}");
            ensure!(
                queue.contents()? == before,
                "{why}: a refused call left a trace"
            );
            ensure!(queue.items("ack", T0, words![token('a'), 1, "a"])? == ["OK"]);
        }
    }
    Ok(())
}

#[test]
fn a_next_message_takes_the_place_of_its_delivery() -> Result<()> {
    let mut queue = layout_3()?;
    queue.ok("configure", T0, words!["max_messages", 1])?;
    queue.push(T0, "a", T0, "parent")?;
    ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
    let next = words!["", "a", "+5", "second", "on_conflict=next"];
    ensure!(queue.items("upsert", T0, next)? == ["NEXT"]);
    let (result, results) = ack_push(&mut queue, T0, &token('a'), child("b"))?;
    ensure!(
        result == "REFUSED" && results[0].starts_with("FULL "),
        "{results:?}"
    );
    queue.ok("configure", T0, words!["max_messages", 2])?;
    let (result, _) = ack_push(&mut queue, T0, &token('a'), child("b"))?;
    ensure!(result == "OK" && queue.state()?.messages.len() == 3);
    Ok(())
}

#[test]
fn an_existing_or_remembered_follow_up_refuses_nothing() -> Result<()> {
    let mut queue = leased()?;
    queue.push(T0, "s", T0 + HOUR, "other")?;
    queue.ok("push", T0, words!["", "w", T0, "", "window=60000"])?;
    ensure!(queue.take(T0, 1, &token('w'))? == ["w"]);
    queue.ok("ack", T0, words![token('w'), 1, "w"])?;
    let twice = [child("s"), child("w"), child("b"), child("b")].concat();
    let (result, results) = ack_push(&mut queue, T0, &token('a'), twice)?;
    let remembered = format!("REMEMBERED {}", T0 + 60_000);
    let wanted = [
        "EXISTS scheduled",
        &remembered,
        "CREATED",
        "EXISTS scheduled",
    ];
    ensure!(result == "OK" && results == wanted, "{results:?}");
    let state = queue.state()?;
    ensure!(state.messages.get(&"s".into()) == Some(&"other".into()));
    check_structure(&state, None)?;
    Ok(())
}

#[test]
fn a_call_accepts_1_to_100_follow_ups() -> Result<()> {
    for (number, fits) in [(0, false), (1, true), (100, true), (101, false)] {
        let mut queue = leased()?;
        let before = queue.contents()?;
        let children = (0..number).flat_map(|n| words![format!("a/{n}"), "+5", "x", ""]);
        let arguments = words![delivery(&token('a'), "a")]
            .into_iter()
            .chain(children);
        let reply = queue.call("ack_push", T0, arguments.collect())?;
        if fits {
            ensure!(reply.part(1)?.text()? == "OK");
            ensure!(queue.state()?.messages.len() == number + 1);
        } else {
            ensure!(reply.code() == Some("BADARGS") && queue.contents()? == before);
        }
    }
    let mut queue = leased()?;
    for arguments in [
        words![],
        words![token('a'), "b", "+5", "", ""],
        words!["short", "b", "+5", "", ""],
        words![delivery(&token('a'), "a"), "b", "+5", ""],
        words![delivery(&token('a'), "a"), "b", "+5", "", "", ""],
    ] {
        let reply = queue.call("ack_push", T0, arguments)?;
        ensure!(reply.code() == Some("BADARGS"), "{reply:?}");
    }
    Ok(())
}

#[test]
fn a_full_server_refuses_and_the_delivery_stays_leased() -> Result<()> {
    let mut queue = leased()?;
    let before = queue.contents()?;
    queue.command(words!["CONFIG", "SET", "maxmemory", 1])?;
    let arguments = [words![delivery(&token('a'), "a")], child("b")].concat();
    let reply = queue.call("ack_push", T0, arguments)?;
    ensure!(reply.code() == Some("OOM"), "{reply:?}");
    ensure!(queue.contents()? == before);
    ensure!(queue.items("ack", T0, words![token('a'), 1, "a"])? == ["OK"]);
    Ok(())
}

#[test]
fn an_ack_push_in_an_absent_queue_returns_gone() -> Result<()> {
    let mut queue = Queue::start()?;
    let before = queue.contents()?;
    let (result, _) = ack_push(&mut queue, T0, &token('a'), child("b"))?;
    ensure!(result == "GONE" && queue.contents()? == before);
    Ok(())
}

/// Otherwise a client with a stale token could believe that it still has the delivery.
#[test]
fn a_stale_token_is_reported_before_invalid_follow_ups() -> Result<()> {
    let mut queue = leased()?;
    queue.ok("configure", T0, words!["max_messages", 1])?;
    let full = [child("b"), child("c")].concat();
    for children in [full, words!["b", "soon", "", ""]] {
        let (result, results) = ack_push(&mut queue, T0, &token('b'), children.clone())?;
        ensure!(result == "LOST" && results.is_empty(), "{result}");
        ensure!(ack_push(&mut queue, T0, &token('a'), children)?.0 == "REFUSED");
    }
    // Another message fills the queue after the ack. A repetition still returns GONE.
    ensure!(ack_push(&mut queue, T0, &token('a'), child("b"))?.0 == "OK");
    queue.ok("cancel", T0, words!["", "b"])?;
    ensure!(queue.push(T0, "other", T0, "")? == "CREATED");
    ensure!(ack_push(&mut queue, T0, &token('a'), child("b"))?.0 == "GONE");
    Ok(())
}
