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
