//! Leases that an operator ends.

use anyhow::{Result, ensure};
use dueq::Role;

use crate::queue::{HOUR, Queue, SECOND, T0, token};
use crate::reply::{Text, words};
use crate::state::{State, lease_name, lease_of};
use crate::vectors::older_roles::{call, denied};

/// A queue whose messages `a`, `b` and `c` are leased for hours by one claim of the token `a`.
fn leased() -> Result<Queue> {
    let mut queue = Queue::start()?;
    for id in ["a", "b", "c"] {
        queue.push(T0, id, T0, "payload")?;
    }
    ensure!(
        queue
            .ok("claim", T0, words![3, token('a'), 6 * HOUR])?
            .deliveries()?
            .len()
            == 3
    );
    Ok(queue)
}

fn end(queue: &mut Queue, now: u64, id: &str, holder: char) -> Result<String> {
    let ended = queue.items("reap", now, words!["ids", id, lease_name(&token(holder))])?;
    Ok(ended.join(" "))
}

/// The lease of a claim, as a member of leases.
fn lease(holder: char) -> Text {
    Text([b"\x01", &token(holder).0[..]].concat())
}

#[test]
fn an_operator_ends_one_lease_without_a_beat_and_fences_it() -> Result<()> {
    let mut queue = leased()?;
    let now = T0 + SECOND;
    queue.ok("extend", now, words!["b", token('a'), 12 * HOUR])?;
    for id in ["a", "b"] {
        ensure!(
            end(&mut queue, now, id, 'a')? == format!("SCHEDULED {T0}"),
            "{id}"
        );
        ensure!(end(&mut queue, now, id, 'a')? == "LOST", "a repetition");
        ensure!(queue.items("extend", now, words![id, token('a'), HOUR])? == ["LOST"]);
        ensure!(queue.items("ack", now, words![token('a'), 1, id])? == ["LOST"]);
    }
    let state = queue.state()?;
    ensure!(
        ["a", "b"]
            .iter()
            .all(|id| !state.claims.contains_key(&(*id).into()))
    );
    ensure!(State::score(&state.leases, &"b".into()).is_none());
    ensure!(
        State::score(&state.leases, &lease('a')).is_some(),
        "that of c"
    );
    ensure!(
        state.meta.get(&"crashed".into()) == Some(&"2".into()),
        "{:?}",
        state.meta
    );

    // The next worker's lease has another name: a late repetition leaves it alone.
    ensure!(queue.take(now, 2, &token('b'))? == ["a", "b"]);
    ensure!(end(&mut queue, now, "a", 'a')? == "LOST");
    ensure!(end(&mut queue, now, "c", 'a')? == format!("SCHEDULED {T0}"));
    ensure!(State::score(&queue.state()?.leases, &lease('a')).is_none());
    ensure!(queue.items("ack", now, words![token('b'), 2, "a", "b"])? == ["OK", "OK"]);
    ensure!(end(&mut queue, now, "a", 'b')? == "GONE");
    Ok(())
}

#[test]
fn ended_leases_count_as_crashes_up_to_the_limit() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.ok("configure", T0, words!["max_crashes", 1, "max_leased", 1])?;
    queue.push(T0, "a", T0, "payload")?;
    queue.push(T0, "b", T0 + 1, "payload")?;
    ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
    ensure!(queue.take(T0 + 1, 1, &token('x'))?.is_empty(), "full");
    ensure!(end(&mut queue, T0 + 1, "a", 'a')? == format!("SCHEDULED {T0}"));
    // The place is free: the queue is no longer full.
    ensure!(queue.take(T0 + 1, 1, &token('b'))? == ["a"]);
    ensure!(end(&mut queue, T0 + 1, "a", 'b')? == "DEAD");
    let get = queue.ok("get", T0 + 1, words!["a"])?.part(1)?.clone();
    ensure!(
        format!("{get:?}").contains("the lease ran out 2 times"),
        "{get:?}"
    );
    Ok(())
}

#[test]
fn get_and_peek_name_the_lease_and_the_node_but_no_token() -> Result<()> {
    let mut queue = Queue::start()?;
    let tokens = ["@node0A1-random-!", "@node-0A random!", "0123456789abcdef"];
    for (at, text) in tokens.iter().enumerate() {
        let (id, text) = (format!("m{at}"), Text(text.as_bytes()[..16].to_vec()));
        queue.push(T0, &id, T0, "payload")?;
        ensure!(queue.take(T0, 1, &text)?.len() == 1);
        let expected = lease_of(&text);
        ensure!(expected.ends_with(" node0A1") == (at == 0), "{expected}");
        let shown = format!("{:?}", queue.ok("get", T0, words![&id])?);
        let listed = format!("{:?}", queue.ok("peek", T0, words!["leased", "", 10])?);
        for reply in [shown, listed] {
            ensure!(reply.contains(&expected), "{expected}: {reply}");
            ensure!(!reply.contains(&text.text()), "{reply}");
        }
    }
    Ok(())
}

#[test]
fn only_an_operator_ends_leases() -> Result<()> {
    let mut queue = leased()?;
    let words = words!["ids", "a", lease_name(&token('a'))];
    for (role, may) in [
        (Role::Producer, false),
        (Role::Consumer, false),
        (Role::Operator, true),
    ] {
        let mut user = queue.user(role, "q")?;
        let before = queue.contents()?;
        let reply = call(&mut user, "reap", words.clone())?;
        ensure!(denied(&reply) != may, "{role:?}: {reply:?}");
        ensure!((queue.contents()? == before) != may, "{role:?}");
    }
    Ok(())
}
