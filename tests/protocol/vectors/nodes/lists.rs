//! The verb nodes: it returns the live nodes and the leader.

use anyhow::{Context, Result, ensure};
use redis::Value;

use crate::queue::{Queue, SECOND, T0, connect};
use crate::reply::{Reply, Text, words};
use crate::scripts::SCRIPTS;
use crate::vectors::plausible;

/// A node: its id, the ms since its last beat, the ms until its next one, and whether it leads.
type Node = (String, i64, i64, i64);

/// The number of live nodes, and the nodes that the reply names.
fn live(reply: &Reply) -> Result<(i64, Vec<Node>)> {
    let node = |node: &Reply| {
        let number = |place| node.part(place)?.int();
        Ok((node.part(0)?.text()?, number(1)?, number(2)?, number(3)?))
    };
    let nodes = reply.part(2)?.list()?.iter().map(node);
    Ok((reply.part(1)?.int()?, nodes.collect::<Result<_>>()?))
}

/// The number of nodes in the roster, and the nodes that the reply names with the ms since their
/// watch.
fn roster(reply: &Reply) -> Result<(i64, Vec<(String, i64)>)> {
    let node = |node: &Reply| Ok((node.part(0)?.text()?, node.part(1)?.int()?));
    let nodes = reply.part(4)?.list()?.iter().map(node);
    Ok((reply.part(3)?.int()?, nodes.collect::<Result<_>>()?))
}

fn leader(reply: &Reply) -> Result<(String, i64)> {
    Ok((reply.part(5)?.text()?, reply.part(6)?.int()?))
}

#[test]
fn nodes_names_live_nodes_and_the_leader() -> Result<()> {
    let mut queue = Queue::start()?;
    let reply = queue.ok("nodes", T0, words![])?;
    ensure!(live(&reply)? == (0, vec![]) && leader(&reply)? == (String::new(), 0));
    queue.push(T0, "a", T0, "")?;
    queue.ok("beat", T0, words!["north", "stay"])?;
    queue.ok("beat", T0 + 900, words!["south", "stay"])?;
    let reply = queue.ok("nodes", T0 + 1_000, words![])?;
    let south = ("south".to_owned(), 100, 0, 0);
    let nodes = vec![south.clone(), ("north".into(), 1_000, 0, 1)];
    ensure!(live(&reply)? == (2, nodes), "{reply:?}");
    ensure!(leader(&reply)? == ("north".into(), (T0 + 2_500) as i64));
    ensure!(roster(&reply)? == (0, vec![]));
    // The term of north as the leader has ended. A second later the node is forgotten.
    let reply = queue.ok("nodes", T0 + 2_500, words![])?;
    ensure!(live(&reply)?.0 == 2 && leader(&reply)? == (String::new(), 0));
    ensure!(live(&reply)?.1.iter().all(|node| node.3 == 0));
    let north = live(&queue.ok("nodes", T0 + 3_000, words![])?)?;
    ensure!(north.0 == 2, "{north:?}");
    let reply = queue.ok("nodes", T0 + 3_001, words![])?;
    ensure!(live(&reply)? == (1, vec![("south".into(), 2_101, 0, 0)]));
    Ok(())
}

#[test]
fn nodes_returns_when_a_parked_node_beats_again() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0 + 100 * SECOND, "")?;
    queue.ok("beat", T0, words!["north", "stay", 30_000])?;
    let reply = queue.ok("nodes", T0 + 10_000, words![])?;
    ensure!(live(&reply)? == (1, vec![("north".into(), 0, 20_000, 1)]));
    ensure!(leader(&reply)? == ("north".into(), (T0 + 30_000) as i64));
    Ok(())
}

#[test]
fn nodes_returns_the_roster_of_a_home() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.ok("remap", T0, words!["forward", "7|- 17|- 17"])?;
    queue.ok("beat", T0, words!["old", "watch", 0, ""])?;
    queue.ok("beat", T0 + 2_000, words!["north", "watch", 0, ""])?;
    queue.ok("beat", T0 + 2_100, words!["south", "watch", 0, ""])?;
    queue.ok("beat", T0 + 2_100, words!["north", "first"])?;
    let reply = queue.ok("nodes", T0 + 3_000, words![])?;
    ensure!(live(&reply)? == (1, vec![("north".into(), 900, 0, 1)]));
    let watching = vec![("south".to_owned(), 900), ("north".into(), 1_000)];
    ensure!(roster(&reply)? == (2, watching), "{reply:?}");
    Ok(())
}

#[test]
fn nodes_returns_at_most_a_thousand_and_their_number() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.ok("remap", T0, words!["forward", "7|- 17|- 17"])?;
    for i in 0..999 {
        queue.ok("beat", T0 + i, words![format!("node {i}"), "first"])?;
    }
    for i in 0..3 {
        queue.ok("beat", T0 + i, words![format!("node {i}"), "watch", 0, ""])?;
    }
    let reply = queue.ok("nodes", T0 + SECOND, words![])?;
    let (count, nodes) = live(&reply)?;
    ensure!(count == 999 && nodes.len() == 999 && nodes[0].0 == "node 998");
    let watching = roster(&reply)?;
    ensure!(
        watching == (3, vec![("node 2".into(), 998)]),
        "{watching:?}"
    );
    for i in 999..1_002 {
        queue.ok(
            "beat",
            T0 + i,
            words![Text::from(format!("node {i}")), "first"],
        )?;
    }
    let reply = queue.ok("nodes", T0 + 1_002, words![])?;
    let (count, nodes) = live(&reply)?;
    ensure!(count == 1_002 && nodes.len() == 1_000 && nodes[999].0 == "node 2");
    ensure!(roster(&reply)? == (3, vec![]));
    Ok(())
}

#[test]
fn only_the_call_that_creates_a_queue_announces_it() -> Result<()> {
    let mut queue = Queue::start()?;
    let mut listener = connect(&queue.server.url())?;
    let subscribe = redis::cmd("PSUBSCRIBE").arg("dueq:{*}:notice").to_owned();
    listener.send_packed_command(&subscribe.get_packed_command())?;
    listener.recv_response()?;
    let mut creators = Vec::new();
    for (verb, _) in SCRIPTS {
        queue.empty()?;
        let mut published = Vec::new();
        for _ in 0..2 {
            queue.call(verb, T0, plausible(verb))?;
        }
        let meta = queue.state()?.meta;
        queue.command(words!["PUBLISH", "dueq:{q}:notice", "mark"])?;
        loop {
            let message = match listener.recv_response()? {
                Value::Push { data, .. } => Reply::from_server(Ok(Value::Array(data)))?,
                other => Reply::from_server(Ok(other))?,
            };
            let text = message
                .list()?
                .last()
                .context("an empty message")?
                .bytes()?;
            if *text == "mark".into() {
                break;
            }
            published.push(text.clone());
        }
        let incarnation: Vec<_> = meta
            .get(&"incarnation".into())
            .cloned()
            .into_iter()
            .collect();
        ensure!(published == incarnation, "{verb}: {published:?}");
        if !published.is_empty() {
            creators.push(*verb);
        }
    }
    creators.sort_unstable();
    // A repairing verify announces the queue as well.
    let expected = ["configure", "pause", "push", "remap", "schedule", "upsert"];
    ensure!(creators == expected, "{creators:?}");
    Ok(())
}
