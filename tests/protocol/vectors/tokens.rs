//! A call without the current token of a message changes nothing about it.

use anyhow::{Result, ensure};

use super::expect;
use crate::queue::{Queue, SECOND, T0, token};
use crate::reply::{Text, words};

/// A call of each verb that settles or extends, about one message.
fn calls(id: &str, token: &Text) -> Vec<(&'static str, Vec<Text>)> {
    vec![
        ("ack", words![token, 1, id]),
        ("release", words![id, token]),
        ("again", words![id, token, "+5"]),
        ("retry", words![id, token, 5, "error"]),
        ("bury", words![id, token, "reason"]),
        ("extend", words![id, token, 60 * SECOND]),
    ]
}

#[test]
fn every_byte_of_a_token_counts() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0, "payload")?;
    let holder = token('h');
    ensure!(queue.take(T0, 1, &holder)? == ["a"]);
    let before = queue.state()?;
    for place in 0..16 {
        let mut other = holder.clone();
        other.0[place] ^= 1;
        for (verb, argv) in calls("a", &other) {
            ensure!(
                queue.items(verb, T0, argv)? == ["LOST"],
                "{verb}, byte {place}"
            );
        }
    }
    let short = Text(holder.0[..15].to_vec());
    for (verb, argv) in calls("a", &short)
        .into_iter()
        .chain(calls("a", &Text::default()))
    {
        ensure!(
            queue.items(verb, T0, argv)? == ["LOST"],
            "{verb}, a shorter token"
        );
    }
    expect(&mut queue, before, |_| ())
}

#[test]
fn an_ack_leaves_lost_messages_to_their_new_claim() -> Result<()> {
    let mut queue = Queue::start()?;
    for id in ["a", "b", "c"] {
        queue.ok("push", T0, words!["", id, T0, "payload", "max_attempts=3"])?;
    }
    ensure!(queue.take(T0, 3, &token('x'))?.len() == 3);
    queue.ok("release", T0, words!["b", token('x')])?;
    ensure!(queue.take(T0, 1, &token('y'))? == ["b"]);
    queue.ok("release", T0, words!["c", token('x')])?;
    ensure!(
        queue.items("ack", T0, words![token('x'), 3, "a", "b", "c"])? == ["OK", "LOST", "LOST"]
    );
    let state = queue.state()?;
    for id in ["b", "c"] {
        ensure!(
            state.messages.get(&id.into()) == Some(&"payload".into()),
            "{id} has no payload"
        );
        ensure!(state.attrs.contains_key(&id.into()), "{id} has no options");
    }
    ensure!(queue.items("ack", T0, words![token('y'), 1, "b"])? == ["OK"]);
    ensure!(queue.take(T0, 1, &token('z'))? == ["c"]);
    Ok(())
}
