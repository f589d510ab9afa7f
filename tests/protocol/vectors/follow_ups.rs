//! `ack_push`: an ack and the messages that follow it, all or nothing.

use anyhow::{Result, ensure};

use super::debounce::layout_3;
use super::{add, count, ended, expect};
use crate::model::check_structure;
use crate::queue::{HOUR, Queue, SECOND, T0, token};
use crate::reply::{Header, Reply, Text, words};

fn delivery(token: &Text, id: &str) -> Text {
    Text([&token.0[..], id.as_bytes()].concat())
}

/// The result of the delivery and those of the messages.
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

/// A queue in which `a` is leased under the token `a`.
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
fn an_ack_stores_the_messages_that_follow_it() -> Result<()> {
    let mut queue = leased()?;
    let before = queue.state()?;
    let children = words![
        "b",
        T0 + HOUR,
        "one",
        "",
        "c",
        "+5",
        "two",
        "max_attempts=2"
    ];
    let (result, results) = ack_push(&mut queue, T0, &token('a'), children)?;
    ensure!(
        result == "OK" && results == ["CREATED", "CREATED"],
        "{results:?}"
    );
    expect(&mut queue, before, |state| {
        ended(state, &token('a'));
        state.claims.remove(&"a".into());
        state.messages.remove(&"a".into());
        state.messages.insert("b".into(), "one".into());
        state.messages.insert("c".into(), "two".into());
        state
            .attrs
            .insert("c".into(), "0 0 - max_attempts=2\n".into());
        add(&mut state.scheduled, "b", T0 + HOUR);
        add(&mut state.scheduled, "c", T0 + 5);
        count(state, "acked", 1);
        count(state, "pushed", 2);
        count(state, "seq", 1);
    })
}

#[test]
fn a_stale_token_stores_nothing() -> Result<()> {
    let mut queue = leased()?;
    let before = queue.contents()?;
    let (result, results) = ack_push(&mut queue, T0, &token('b'), child("b"))?;
    ensure!(result == "LOST" && results.is_empty(), "{result}");
    ensure!(queue.contents()? == before);
    // Repeated after a lost reply: the messages are there once.
    let (result, _) = ack_push(&mut queue, T0, &token('a'), child("b"))?;
    ensure!(result == "OK");
    let before = queue.contents()?;
    for children in [child("b"), child("c")] {
        let (result, results) = ack_push(&mut queue, T0, &token('a'), children)?;
        ensure!(result == "GONE" && results.is_empty(), "{result}");
    }
    ensure!(queue.contents()? == before, "a refused call left a trace");
    Ok(())
}

#[test]
fn one_refused_message_leaves_the_delivery_leased() -> Result<()> {
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
fn messages_take_the_room_of_their_delivery() -> Result<()> {
    let mut queue = leased()?;
    queue.ok("configure", T0, words!["max_messages", 1])?;
    let before = queue.contents()?;
    let children = [child("b"), child("c")].concat();
    let (result, results) = ack_push(&mut queue, T0, &token('a'), children)?;
    ensure!(
        result == "REFUSED" && results[0] == "CREATED",
        "{results:?}"
    );
    ensure!(results[1].starts_with("FULL "), "{results:?}");
    ensure!(queue.contents()? == before, "a refused call left a trace");
    let (result, _) = ack_push(&mut queue, T0, &token('a'), child("b"))?;
    ensure!(result == "OK");
    Ok(())
}

#[test]
fn a_next_message_takes_the_room_of_its_delivery() -> Result<()> {
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
fn a_message_that_exists_or_is_remembered_refuses_nothing() -> Result<()> {
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
fn each_state_of_an_existing_message_is_told() -> Result<()> {
    let mut queue = super::with_every_state()?;
    queue.push(T0, "a", T0, "parent")?;
    queue.ok("promote", T0, words![10])?;
    ensure!(
        queue
            .ok("claim", T0, words![2, token('a'), HOUR])?
            .part(3)?
            .list()?
            .len()
            == 2
    );
    queue.push(T0, "r2", T0, "ready")?;
    queue.ok("promote", T0, words![10])?;
    let children = ["s", "r2", "l", "d"].map(child).concat();
    let (result, results) = ack_push(&mut queue, T0, &token('a'), children)?;
    let states = ["scheduled", "ready", "leased", "dead"].map(|state| format!("EXISTS {state}"));
    ensure!(result == "OK" && results == states, "{results:?}");
    Ok(())
}

#[test]
fn a_call_of_one_delivery_leaves_the_others_of_its_claim() -> Result<()> {
    for extended in [false, true] {
        let mut queue = Queue::start()?;
        for id in ["a", "x", "y"] {
            queue.push(T0, id, T0, "payload")?;
        }
        ensure!(queue.take(T0, 3, &token('a'))? == ["a", "x", "y"]);
        if extended {
            queue.ok("extend", T0, words!["a", token('a'), HOUR])?;
        }
        let (result, _) = ack_push(&mut queue, T0, &token('a'), child("b"))?;
        ensure!(result == "OK");
        check_structure(&queue.state()?, None)?;
        ensure!(queue.items("ack", T0, words![token('a'), 2, "x", "y"])? == ["OK", "OK"]);
        check_structure(&queue.state()?, None)?;
    }
    Ok(())
}

#[test]
fn windows_of_the_delivery_and_of_a_message_are_remembered() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.ok("push", T0, words!["", "a", T0, "", "window=60000"])?;
    ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
    let children = words!["b", "+5", "", "window=1000"];
    let (result, _) = ack_push(&mut queue, T0 + 1, &token('a'), children)?;
    ensure!(result == "OK");
    let known = queue.ok("get", T0 + 1, words!["a"])?;
    ensure!(known.part(2)?.text()? == "finished" && known.part(3)?.int()? == T0 as i64 + 1);
    let state = queue.state()?;
    ensure!(
        state
            .recent
            .contains(&("\u{5}b".into(), (T0 + 1_001) as f64))
    );
    ensure!(state.meta.get(&"windows_until".into()) == Some(&(T0 + 60_000).into()));
    Ok(())
}

#[test]
fn a_message_that_is_due_wakes_a_node() -> Result<()> {
    let mut queue = leased()?;
    queue.command(words!["DEL", "dueq:{q}:wake"])?;
    let children = words![delivery(&token('a'), "a"), "b", T0, "", ""];
    let reply = queue.ok("ack_push", T0, children)?;
    ensure!(Header::of(&reply)?.head == T0 as i64 && queue.state()?.wake.len() == 2);
    ensure!(queue.take(T0, 1, &token('b'))? == ["b"]);
    Ok(())
}

#[test]
fn a_call_takes_1_to_100_messages() -> Result<()> {
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
fn a_full_server_refuses_and_leaves_the_delivery_leased() -> Result<()> {
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
fn a_queue_that_does_not_exist_has_no_delivery() -> Result<()> {
    let mut queue = Queue::start()?;
    let before = queue.contents()?;
    let (result, _) = ack_push(&mut queue, T0, &token('a'), child("b"))?;
    ensure!(result == "GONE" && queue.contents()? == before);
    Ok(())
}

/// Random calls with current and stale tokens in a small queue: the messages exist if, and only if,
/// the result is OK.
#[test]
fn messages_exist_only_if_their_delivery_ended() -> Result<()> {
    for seed in 0..4 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut queue = Queue::start()?;
        queue.ok(
            "configure",
            T0,
            words!["max_messages", 6, "max_payload_bytes", 4],
        )?;
        let (mut now, mut tokens, mut seen) = (T0, vec![token('a')], [0; 4]);
        for step in 0..300 {
            now += random.u64(0..12) * SECOND;
            let meta = queue.key("meta");
            queue.command(words!["HSET", meta, "last_beat", now, "reap_after", 0])?;
            queue.ok("reap", now, words![10])?;
            queue.ok("purge", now, words!["scheduled", 100])?;
            for n in 0..random.u64(0..5) {
                queue.push(now, &format!("other {n}"), now + HOUR, "p")?;
            }
            queue.push(now, "a", now, "p")?;
            let token = queue.new_token();
            if !queue.take(now, 1, &token)?.is_empty() {
                tokens.push(token);
            }
            let before = queue.state()?;
            let new: Vec<String> = (0..random.usize(1..4))
                .map(|n| format!("{step}/{n}"))
                .collect();
            let payload = if random.u32(0..6) == 0 { "longer" } else { "p" };
            let children = new
                .iter()
                .flat_map(|id| words![id, "+1", payload, ""])
                .collect();
            let place = tokens.len() - 1 - random.usize(0..tokens.len().min(2));
            let (result, results) = ack_push(&mut queue, now, &tokens[place], children)?;
            let after = queue.state()?;
            check_structure(&after, None)?;
            let there = new
                .iter()
                .filter(|id| after.messages.contains_key(&(*id).into()))
                .count();
            if result == "OK" {
                ensure!(there == new.len() && results.iter().all(|one| one == "CREATED"));
            } else {
                let difference = after.difference(&before);
                ensure!(difference.is_none(), "{result}: {difference:?}");
            }
            let kinds = ["OK", "LOST", "GONE", "REFUSED"];
            seen[kinds.iter().position(|kind| *kind == result).unwrap_or(0)] += 1;
        }
        ensure!(
            seen[0] > 10 && seen[1] > 10 && seen[3] > 10,
            "seed {seed}: {seen:?}"
        );
    }
    Ok(())
}

/// A client with a stale token must not believe that it still has the delivery.
#[test]
fn a_stale_token_is_judged_before_the_messages() -> Result<()> {
    let mut queue = leased()?;
    queue.ok("configure", T0, words!["max_messages", 1])?;
    let full = [child("b"), child("c")].concat();
    for children in [full, words!["b", "soon", "", ""]] {
        let (result, results) = ack_push(&mut queue, T0, &token('b'), children.clone())?;
        ensure!(result == "LOST" && results.is_empty(), "{result}");
        ensure!(ack_push(&mut queue, T0, &token('a'), children)?.0 == "REFUSED");
    }
    // Another message fills the queue after the ack: a repetition is still GONE.
    ensure!(ack_push(&mut queue, T0, &token('a'), child("b"))?.0 == "OK");
    queue.ok("cancel", T0, words!["", "b"])?;
    ensure!(queue.push(T0, "other", T0, "")? == "CREATED");
    ensure!(ack_push(&mut queue, T0, &token('a'), child("b"))?.0 == "GONE");
    Ok(())
}
