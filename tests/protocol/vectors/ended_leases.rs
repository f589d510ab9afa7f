//! Leases that an operator ends.

use anyhow::{Result, ensure};
use dueq::Role;

use crate::queue::{HOUR, Queue, T0, token};
use crate::reply::{Text, words};
use crate::state::{lease_name, lease_of};
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
