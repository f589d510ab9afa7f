//! Drained nodes: a pause of nodes, of which each next beat or watch tells its node.

use anyhow::{Result, ensure};

use crate::queue::{Queue, SECOND, T0};
use crate::reply::words;

fn queue() -> Result<Queue> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0, "")?;
    queue.ok("beat", T0, words!["north", "stay"])?;
    queue.ok("beat", T0, words!["south", "stay"])?;
    Ok(queue)
}

fn drain(queue: &mut Queue, now: u64, nodes: &[&str]) -> Result<Vec<String>> {
    let words = nodes.iter().map(|node| (*node).into());
    queue.items(
        "pause",
        now,
        words!["nodes"].into_iter().chain(words).collect(),
    )
}

/// Whether a beat tells the node that it is drained.
fn told(queue: &mut Queue, now: u64, node: &str) -> Result<bool> {
    let reply = queue.ok("beat", now, words![node, "stay"])?;
    let parts = reply.list()?;
    ensure!(parts.len() == 5 || parts.len() == 8, "{reply:?}");
    Ok(parts.len() == 8 && reply.part(7)?.int()? == 1)
}

/// What META keeps of drains.
fn kept(queue: &mut Queue) -> Result<String> {
    queue
        .command(words!["HGET", "dueq:{q}:meta", "drained"])?
        .text()
}

/// The `drained` of each live node, and their number in stats.
fn shown(queue: &mut Queue, now: u64) -> Result<(Vec<(String, i64)>, i64)> {
    let reply = queue.ok("nodes", now, words![])?;
    let nodes = reply.part(2)?.list()?.iter();
    let nodes = nodes.map(|node| Ok((node.part(0)?.text()?, node.part(5)?.int()?)));
    let mut nodes: Vec<_> = nodes.collect::<Result<_>>()?;
    nodes.sort();
    let stats = queue.ok("stats", now, words![])?;
    let fields = stats.part(1)?.list()?;
    let of = fields
        .iter()
        .position(|field| field.text().is_ok_and(|name| name == "drained"));
    let count = of.map_or(Ok(-1), |at| fields[at + 1].int())?;
    Ok((nodes, count))
}

#[test]
fn beat_tells_a_node_that_it_is_drained_until_a_resume() -> Result<()> {
    let mut queue = queue()?;
    ensure!(drain(&mut queue, T0, &["north", "nobody"])? == ["OK", "GONE"]);
    ensure!(drain(&mut queue, T0, &["north"])? == ["OK"], "again");
    ensure!(told(&mut queue, T0, "north")? && !told(&mut queue, T0, "south")?);
    // Part of a name is no name.
    queue.ok("beat", T0, words!["nort", "stay"])?;
    ensure!(!told(&mut queue, T0, "nort")?);
    let (nodes, count) = shown(&mut queue, T0)?;
    let node = |name: &str, drained| (name.to_owned(), drained);
    ensure!(nodes == [node("nort", 0), node("north", 1), node("south", 0)] && count == 1);
    ensure!(drain(&mut queue, T0, &["south"])? == ["OK"]);
    let resume = words!["nodes", "north", "nobody"];
    ensure!(queue.items("resume", T0, resume.clone())? == ["OK", "GONE"]);
    ensure!(
        queue.items("resume", T0, resume)? == ["OK", "GONE"],
        "again"
    );
    ensure!(!told(&mut queue, T0, "north")? && told(&mut queue, T0, "south")?);
    Ok(())
}

#[test]
fn drain_ends_with_its_node() -> Result<()> {
    let mut queue = queue()?;
    drain(&mut queue, T0, &["north", "south"])?;
    queue.ok("beat", T0 + 1, words!["north", "leave"])?;
    ensure!(kept(&mut queue)? == "\nsouth\n");
    // A beat forgets south, and its drain.
    let now = T0 + 4 * SECOND;
    ensure!(
        drain(&mut queue, now, &["south"])? == ["GONE"],
        "it is silent"
    );
    queue.ok("beat", now, words!["west", "stay"])?;
    ensure!(kept(&mut queue)?.is_empty());
    ensure!(!told(&mut queue, now, "south")?);
    Ok(())
}

#[test]
fn a_hundred_nodes_are_drained_at_most() -> Result<()> {
    let mut queue = queue()?;
    let names: Vec<_> = (0..101).map(|number| format!("node {number}")).collect();
    for name in &names {
        queue.ok("beat", T0, words![name.as_str(), "stay"])?;
    }
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let (hundred, last) = names.split_at(100);
    ensure!(
        drain(&mut queue, T0, hundred)?
            .iter()
            .all(|one| one == "OK")
    );
    ensure!(drain(&mut queue, T0, last)? == ["FULL"]);
    for verb in ["pause", "resume"] {
        let all = names.iter().map(|name| (*name).into());
        for nodes in [
            words!["nodes"],
            words!["nodes"].into_iter().chain(all).collect(),
        ] {
            let reply = queue.call(verb, T0, nodes)?;
            ensure!(reply.code() == Some("BADARGS"), "{reply:?}");
        }
    }
    ensure!(
        drain(&mut queue, T0, &hundred[..1])? == ["OK"],
        "it is drained already"
    );
    queue.ok("beat", T0, words![hundred[0], "leave"])?;
    ensure!(drain(&mut queue, T0, last)? == ["OK"]);
    Ok(())
}

#[test]
fn drain_of_an_absent_queue_creates_none() -> Result<()> {
    let mut queue = Queue::start()?;
    let before = queue.contents()?;
    ensure!(drain(&mut queue, T0, &["north"])? == ["GONE"]);
    ensure!(queue.contents()? == before);
    Ok(())
}

/// At the home of a queue with a map the roster counts, and a watch tells.
#[test]
fn watch_tells_a_node_that_it_is_drained() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.ok("remap", T0, words!["forward", "7|- 17|- 17"])?;
    let watch = |queue: &mut Queue, now, node: &str| -> Result<bool> {
        let reply = queue.ok("beat", now, words![node, "watch", 0, ""])?;
        Ok(reply.list()?.len() == 5 && reply.part(4)?.int()? == 1)
    };
    watch(&mut queue, T0, "north")?;
    queue.ok("beat", T0, words!["north", "first"])?;
    ensure!(drain(&mut queue, T0, &["north"])? == ["OK"]);
    ensure!(watch(&mut queue, T0, "north")? && !watch(&mut queue, T0, "south")?);
    let reply = queue.ok("beat", T0, words!["north", "first"])?;
    ensure!(reply.list()?.len() == 8, "{reply:?}");
    // It gives the home up, but not the queue.
    queue.ok("beat", T0, words!["north", "leave"])?;
    ensure!(watch(&mut queue, T0, "north")?);
    let roster = queue.ok("nodes", T0, words![])?;
    let drained = roster
        .part(4)?
        .list()?
        .iter()
        .map(|node| node.part(2)?.int());
    ensure!(drained.sum::<Result<i64>>()? == 1, "{roster:?}");
    queue.ok("beat", T0, words!["north", "unwatch"])?;
    ensure!(kept(&mut queue)?.is_empty());
    Ok(())
}
