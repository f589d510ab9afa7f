//! What nodes tell of their processes with their beats.

use anyhow::{Result, ensure};

use crate::queue::{Queue, SECOND, T0};
use crate::reply::{Reply, words};

/// What each live node told, the last beat first.
fn told(reply: &Reply) -> Result<Vec<String>> {
    let nodes = reply.part(2)?.list()?.iter();
    nodes.map(|node| node.part(4)?.text()).collect()
}

/// The silent nodes, and what they told last.
fn gone(reply: &Reply) -> Result<Vec<(String, String)>> {
    let pair = |item: &Reply| Ok((item.part(0)?.text()?, item.part(1)?.text()?));
    reply.part(7)?.list()?.iter().map(pair).collect()
}

fn queue() -> Result<Queue> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0, "")?;
    Ok(queue)
}

#[test]
fn beat_keeps_what_it_tells_until_the_node_leaves() -> Result<()> {
    let mut queue = queue()?;
    queue.ok("beat", T0, words!["north", "stay", "@1 2 host"])?;
    queue.ok("beat", T0 + 1, words!["north", "stay"])?;
    queue.ok("beat", T0 + 2, words!["south", "stay"])?;
    let nodes = queue.ok("nodes", T0 + 2, words![])?;
    ensure!(
        told(&nodes)? == ["", &format!("{T0} @1 2 host")],
        "{nodes:?}"
    );
    queue.ok("beat", T0 + 3, words!["north", "stay", 1_000, "@2", "|"])?;
    let nodes = queue.ok("nodes", T0 + 3, words![])?;
    ensure!(told(&nodes)? == [format!("{} @2", T0 + 3), String::new()]);
    queue.ok("beat", T0 + 4, words!["north", "leave"])?;
    ensure!(queue.state()?.claims.len() == 1, "only the placeholder");
    ensure!(gone(&queue.ok("nodes", T0 + 4, words![])?)?.is_empty());
    Ok(())
}

#[test]
fn silent_node_is_explained_before_and_after_a_beat_forgets_it() -> Result<()> {
    let mut queue = queue()?;
    queue.ok("beat", T0, words!["north", "stay", "@1"])?;
    let now = T0 + 4 * SECOND;
    let expected = [("north".to_owned(), format!("{T0} @1"))];
    ensure!(gone(&queue.ok("nodes", now, words![])?)? == expected);
    queue.ok("beat", now, words!["south", "stay"])?;
    ensure!(gone(&queue.ok("nodes", now, words![])?)? == expected);
    ensure!(queue.state()?.claims.len() == 1, "only the placeholder");
    Ok(())
}

#[test]
fn a_step_back_of_the_clock_leaves_nothing_of_a_node_behind() -> Result<()> {
    let mut queue = queue()?;
    for node in ["north", "south"] {
        queue.ok("beat", T0, words![node, "stay", "@1"])?;
    }
    let now = T0 - 10 * SECOND;
    queue.ok("beat", now, words!["south", "stay"])?;
    let nodes = queue.ok("nodes", now, words![])?;
    ensure!(told(&nodes)? == [""], "only south, until it tells again");
    ensure!(queue.state()?.claims.len() == 1, "only the placeholder");
    Ok(())
}

#[test]
fn twenty_silent_nodes_are_kept_the_latest_first() -> Result<()> {
    let mut queue = queue()?;
    for number in 0..25 {
        let now = T0 + number * 4 * SECOND;
        queue.ok("beat", now, words![format!("node {number}"), "stay", "@x"])?;
    }
    let now = T0 + 25 * 4 * SECOND;
    queue.ok("beat", now, words!["last", "stay"])?;
    let gone = gone(&queue.ok("nodes", now, words![])?)?;
    ensure!(
        gone.len() == 20 && gone[0].0 == "node 24" && gone[19].0 == "node 5",
        "{gone:?}"
    );
    Ok(())
}

#[test]
fn beat_refuses_what_is_no_text_of_at_most_200_bytes() -> Result<()> {
    let mut queue = queue()?;
    let longest = format!("@{}", "x".repeat(199));
    queue.ok("beat", T0, words!["north", "stay", longest.clone()])?;
    let before = queue.state()?;
    for text in ["@".to_owned(), format!("{longest}x"), "@a\nb".to_owned()] {
        let reply = queue.call("beat", T0, words!["north", "stay", text])?;
        ensure!(reply.code() == Some("BADARGS"), "{reply:?}");
    }
    for word in ["leave", "unwatch"] {
        let reply = queue.call("beat", T0, words!["north", word, "@a"])?;
        ensure!(reply.code() == Some("BADARGS"), "{word}: {reply:?}");
    }
    ensure!(queue.state()? == before);
    Ok(())
}

#[test]
fn audit_removes_what_an_older_beat_left_behind() -> Result<()> {
    let mut queue = queue()?;
    queue.ok("beat", T0, words!["north", "stay", "@1"])?;
    queue.command(words!["ZREM", "dueq:{q}:nodes", "north"])?;
    let found = queue.ok("audit", T0, words!["claims", 0, 1_000, 1])?;
    ensure!(format!("{found:?}").contains("process"), "{found:?}");
    ensure!(queue.state()?.claims.len() == 1, "only the placeholder");
    Ok(())
}
