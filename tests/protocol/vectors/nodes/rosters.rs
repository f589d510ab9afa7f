//! Nodes of a queue with a map: ranks of the leader, the roster at the home, and calls for help.

use anyhow::{Result, ensure};

use crate::queue::{Queue, SECOND, T0};
use crate::reply::{Header, Reply, Text, words};
use crate::state::State;
use crate::vectors::{expect, ids};

/// A partition, created at `T0`, of a queue with a map.
fn queue() -> Result<Queue> {
    let mut queue = Queue::start()?;
    queue.ok("remap", T0, words!["forward", "7|- 17|- 17"])?;
    Ok(queue)
}

/// Beats. Returns whether the node leads, and the number of live nodes.
fn beat(queue: &mut Queue, now: u64, node: &str, word: &str) -> Result<(bool, i64)> {
    let reply = queue.ok("beat", now, words![node, word])?;
    ensure!(Header::of(&reply)?.epoch == Some(7), "{reply:?}");
    Ok((reply.part(1)?.int()? == 1, reply.part(2)?.int()?))
}

/// The reply to a watch: the roster's number, its nodes, and the tags that asked for help.
type Watched = (i64, Vec<String>, Vec<String>);

fn watch(queue: &mut Queue, now: u64, node: &str, known: i64, help: &str) -> Result<Watched> {
    let known = known.to_string();
    watched(&queue.ok("beat", now, words![node, "watch", known, help])?)
}

fn unwatch(queue: &mut Queue, now: u64, node: &str) -> Result<Watched> {
    watched(&queue.ok("beat", now, words![node, "unwatch"])?)
}

fn watched(reply: &Reply) -> Result<Watched> {
    let texts = |part: usize| -> Result<Vec<String>> {
        let mut texts: Vec<_> = reply
            .part(part)?
            .list()?
            .iter()
            .map(Reply::text)
            .collect::<Result<_>>()?;
        texts.sort();
        Ok(texts)
    };
    Ok((reply.part(1)?.int()?, texts(2)?, texts(3)?))
}

#[test]
fn rank_first_takes_the_lead_from_rank_second_at_once() -> Result<()> {
    let mut queue = queue()?;
    ensure!(beat(&mut queue, T0, "b", "second")? == (true, 1));
    ensure!(beat(&mut queue, T0 + 1, "c", "second")? == (false, 2));
    ensure!(beat(&mut queue, T0 + 2, "a", "first")? == (true, 3));
    ensure!(beat(&mut queue, T0 + 3, "b", "second")? == (false, 3));
    // Two nodes that both claim rank first must not take the lead from each other in turn.
    ensure!(beat(&mut queue, T0 + 4, "d", "first")? == (false, 4));
    ensure!(beat(&mut queue, T0 + 5, "a", "first")? == (true, 4));
    Ok(())
}

#[test]
fn a_leader_whose_rank_becomes_second_gives_way() -> Result<()> {
    let mut queue = queue()?;
    ensure!(beat(&mut queue, T0, "a", "first")? == (true, 1));
    ensure!(beat(&mut queue, T0 + 1, "b", "first")? == (false, 2));
    ensure!(beat(&mut queue, T0 + 2, "a", "second")? == (true, 2));
    ensure!(beat(&mut queue, T0 + 3, "b", "first")? == (true, 2));
    // The rank of the present leader decides, not that of an earlier one.
    ensure!(beat(&mut queue, T0 + 4, "c", "first")? == (false, 3));
    Ok(())
}

#[test]
fn rank_second_takes_a_lead_that_was_free_for_1_s() -> Result<()> {
    let mut queue = queue()?;
    ensure!(beat(&mut queue, T0, "a", "first")? == (true, 1));
    for (ms, leads) in [
        (2_499, false),
        (2_500, false),
        (3_499, false),
        (3_500, true),
    ] {
        ensure!(
            beat(&mut queue, T0 + ms, "b", "second")?.0 == leads,
            "{ms} ms"
        );
    }
    Ok(())
}

#[test]
fn rank_second_takes_the_lead_1_s_after_the_leader_left() -> Result<()> {
    let mut queue = queue()?;
    ensure!(beat(&mut queue, T0, "a", "first")? == (true, 1));
    ensure!(beat(&mut queue, T0 + 10, "a", "leave")? == (false, 0));
    ensure!(beat(&mut queue, T0 + 1_009, "b", "second")? == (false, 1));
    ensure!(beat(&mut queue, T0 + 1_010, "b", "second")? == (true, 1));
    ensure!(beat(&mut queue, T0 + 1_011, "b", "leave")? == (false, 0));
    ensure!(beat(&mut queue, T0 + 1_012, "c", "first")? == (true, 1));
    Ok(())
}

#[test]
fn a_leader_of_rank_second_renews_its_own_term() -> Result<()> {
    let mut queue = queue()?;
    for ms in [0, 2_000, 4_900] {
        ensure!(beat(&mut queue, T0 + ms, "b", "second")?.0, "{ms} ms");
    }
    // After the clock went back, the old leader no longer counts.
    ensure!(beat(&mut queue, T0 - SECOND, "c", "second")?.0);
    Ok(())
}

#[test]
fn a_leader_that_beats_with_stay_keeps_the_lead() -> Result<()> {
    let mut queue = queue()?;
    ensure!(beat(&mut queue, T0, "b", "second")?.0);
    ensure!(beat(&mut queue, T0, "b", "leave")? == (false, 0));
    ensure!(beat(&mut queue, T0, "a", "stay")?.0);
    ensure!(!beat(&mut queue, T0, "c", "first")?.0);
    Ok(())
}

#[test]
fn ranks_also_decide_in_a_queue_without_a_map() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "far", "+100000000", "")?;
    let mut beat = |now, node: &str, word: &str| -> Result<i64> {
        let reply = queue.ok("beat", now, words![node, word])?;
        reply.part(1)?.int()
    };
    ensure!(beat(T0, "b", "second")? == 1);
    ensure!(beat(T0 + 1, "a", "first")? == 1);
    ensure!(beat(T0 + 3_000, "b", "second")? == 0);
    ensure!(beat(T0 + 3_501, "b", "second")? == 1);
    Ok(())
}

#[test]
fn a_parked_leader_of_rank_second_gives_way_to_rank_first() -> Result<()> {
    let mut queue = queue()?;
    let reply = queue.ok("beat", T0, words!["b", "second", 60_000])?;
    ensure!(reply.part(1)?.int()? == 1, "{reply:?}");
    ensure!(!beat(&mut queue, T0 + 30_000, "c", "second")?.0);
    ensure!(beat(&mut queue, T0 + 30_000, "a", "first")? == (true, 3));
    Ok(())
}

#[test]
fn a_watch_enters_the_roster_and_changes_nothing_else() -> Result<()> {
    let mut queue = queue()?;
    let before = queue.state()?;
    let (number, nodes, help) = watch(&mut queue, T0, "a", 0, "")?;
    ensure!((nodes, help) == (vec!["a".to_owned()], vec![]));
    expect(&mut queue, before, |state| {
        state.nodes.insert(0, ("\u{1}a".into(), -(T0 as f64)));
        let number = number.to_string();
        state.meta.insert("roster".into(), number.into());
    })
}

#[test]
fn the_roster_number_changes_with_each_enter_and_leave() -> Result<()> {
    let mut queue = queue()?;
    let (one, nodes, _) = watch(&mut queue, T0, "a", 0, "")?;
    ensure!(one > 0 && nodes == ["a"]);
    ensure!(watch(&mut queue, T0 + 900, "a", one, "")? == (one, vec![], vec![]));
    let (two, nodes, _) = watch(&mut queue, T0 + 900, "b", one, "")?;
    ensure!(two != one && nodes == ["a", "b"], "{nodes:?}");
    // A caller with an old number gets the names, even if nothing has changed since the last watch.
    ensure!(watch(&mut queue, T0 + 901, "a", one, "")?.1 == ["a", "b"]);
    let (three, nodes, _) = unwatch(&mut queue, T0 + 902, "b")?;
    ensure!(three != two && nodes.is_empty());
    ensure!(watch(&mut queue, T0 + 903, "a", two, "")? == (three, vec!["a".into()], vec![]));
    // The node has left already, so nothing changes.
    ensure!(unwatch(&mut queue, T0 + 904, "b")?.0 == three);
    // Node a falls silent for 3 s.
    let (_, nodes, _) = watch(&mut queue, T0 + 903 + 2_999, "c", 0, "")?;
    ensure!(nodes == ["a", "c"], "{nodes:?}");
    let (number, nodes, _) = watch(&mut queue, T0 + 903 + 3_000, "c", 0, "")?;
    ensure!(nodes == ["c"], "{nodes:?}");
    ensure!(watch(&mut queue, T0 + 4_000, "c", number, "")?.1.is_empty());
    Ok(())
}

/// A replica that becomes the master may lack the newest roster. Its next number must be a new one.
#[test]
fn a_lost_roster_gets_a_new_number() -> Result<()> {
    let mut queue = queue()?;
    let (one, ..) = watch(&mut queue, T0, "a", 0, "")?;
    let (two, ..) = watch(&mut queue, T0 + 1_000, "b", 0, "")?;
    queue.command(words!["ZREM", "dueq:{q}:nodes", "\u{1}b"])?;
    queue.command(words!["HSET", "dueq:{q}:meta", "roster", one.to_string()])?;
    let (three, nodes, _) = watch(&mut queue, T0 + 1_500, "c", two, "")?;
    ensure!(three != two && nodes == ["a", "c"], "{three} {nodes:?}");
    Ok(())
}

#[test]
fn a_watch_in_the_future_does_not_count_as_a_live_node() -> Result<()> {
    let mut queue = queue()?;
    watch(&mut queue, T0 + 60_000, "a", 0, "17")?;
    let (_, nodes, help) = watch(&mut queue, T0, "b", 0, "")?;
    ensure!(nodes == ["b"] && help.is_empty(), "{nodes:?} {help:?}");
    Ok(())
}

#[test]
fn a_call_for_help_is_returned_for_2_s() -> Result<()> {
    let mut queue = queue()?;
    ensure!(watch(&mut queue, T0, "a", 0, "17 -")?.2 == ["-", "17"]);
    ensure!(watch(&mut queue, T0 + 1_000, "b", 0, "17 203")?.2 == ["-", "17", "203"]);
    ensure!(watch(&mut queue, T0 + 1_999, "c", 0, "")?.2 == ["-", "17", "203"]);
    ensure!(watch(&mut queue, T0 + 2_000, "c", 0, "")?.2 == ["17", "203"]);
    ensure!(watch(&mut queue, T0 + 3_000, "c", 0, "")?.2.is_empty());
    Ok(())
}

/// A watcher is not a node of the home: it claims nothing, leads nothing and allows no reap.
#[test]
fn a_watcher_is_not_counted_as_a_live_node_of_the_home() -> Result<()> {
    let mut queue = queue()?;
    ensure!(beat(&mut queue, T0, "a", "first")? == (true, 1));
    for node in ["b", "c", "d", "e"] {
        watch(&mut queue, T0, node, 0, "")?;
    }
    ensure!(beat(&mut queue, T0 + 1, "a", "first")? == (true, 1));
    let push = |id: &str| words![id, T0, "payload", ""];
    let four = [words![""], ["p", "q", "r", "s"].map(push).concat()].concat();
    queue.ok("push", format!("m7 {T0}"), four)?;
    let claimed = queue.ok("claim", T0 + 2, words![10, "x".repeat(16), 30_000])?;
    ensure!(
        claimed.deliveries()?.len() == 4,
        "the whole share of one node"
    );
    // A beat forgets silent nodes of the home, but leaves the roster to the watches.
    ensure!(beat(&mut queue, T0 + 2_900, "z", "second")? == (false, 2));
    let watchers = |state: &State| state.nodes.iter().filter(|(_, at)| *at < 0.0).count();
    ensure!(watchers(&queue.state()?) == 4);
    // A watch does not count as a beat: the next beat after a silence still delays reaps.
    watch(&mut queue, T0 + 9_000, "b", 0, "")?;
    let reply = queue.ok("beat", T0 + 9_001, words!["a", "first"])?;
    ensure!(reply.part(3)?.int()? as u64 == T0 + 14_001, "{reply:?}");
    Ok(())
}

#[test]
fn stats_counts_the_roster_at_the_home_and_nodes_elsewhere() -> Result<()> {
    fn nodes(queue: &mut Queue, now: u64) -> Result<i64> {
        let stats = queue.ok("stats", now, words![])?;
        let pairs = stats.part(1)?.list()?;
        let at = pairs.iter().position(|name| *name == "nodes".into());
        pairs[at.map_or(0, |at| at + 1)].int()
    }
    let mut queue = queue()?;
    beat(&mut queue, T0, "x", "first")?;
    for (node, ms) in [("a", 0), ("b", 1_000), ("c", 1_000)] {
        watch(&mut queue, T0 + ms, node, 0, "")?;
    }
    ensure!(nodes(&mut queue, T0 + 2_999)? == 3);
    ensure!(nodes(&mut queue, T0 + 3_000)? == 2);
    queue.enter("17")?;
    queue.ok("remap", T0, words!["forward", "7|- 17|- 17"])?;
    beat(&mut queue, T0, "x", "first")?;
    ensure!(nodes(&mut queue, T0 + 1)? == 1);
    Ok(())
}

#[test]
fn a_watch_without_a_map_writes_nothing() -> Result<()> {
    let mut queue = Queue::start()?;
    for exists in [false, true] {
        if exists {
            queue.push(T0, "far", "+100000000", "")?;
        }
        let before = queue.contents()?;
        ensure!(watch(&mut queue, T0, "a", 5, "17")? == (0, vec![], vec![]));
        ensure!(unwatch(&mut queue, T0, "a")?.0 == 0);
        ensure!(queue.contents()? == before);
    }
    Ok(())
}

#[test]
fn another_partition_keeps_the_roster_while_the_home_is_away() -> Result<()> {
    let mut queue = queue()?;
    queue.enter("17")?;
    ensure!(watch(&mut queue, T0, "a", 0, "")?.0 == 0, "no map yet");
    queue.ok("remap", T0, words!["forward", "7|- 17|- 17"])?;
    ensure!(watch(&mut queue, T0, "a", 0, "")?.1 == ["a"]);
    let (two, nodes, help) = watch(&mut queue, T0 + 1, "b", 0, "17")?;
    ensure!((nodes, help) == (vec!["a".into(), "b".into()], vec!["17".into()]));
    beat(&mut queue, T0 + 2, "a", "first")?;
    ensure!(watch(&mut queue, T0 + 3, "b", two, "")?.1.is_empty());
    ensure!(unwatch(&mut queue, T0 + 4, "b")?.0 > two);
    ensure!(watch(&mut queue, T0 + 5, "a", 0, "")?.1 == ["a"]);
    Ok(())
}

/// A home that is back at one partition counts its own nodes again, from the first beat on.
#[test]
fn a_roster_ends_with_the_map() -> Result<()> {
    let mut queue = queue()?;
    watch(&mut queue, T0, "a", 0, "")?;
    queue.ok("remap", T0, words!["close", 7, "8|-|-"])?;
    let reply = queue.ok("beat", T0 + 1, words!["b", "stay"])?;
    ensure!(reply.part(2)?.int()? == 1, "{reply:?}");
    ensure!(ids(&queue.state()?.nodes) == ["b"]);
    Ok(())
}

#[test]
fn a_watch_returns_the_names_of_a_thousand_nodes() -> Result<()> {
    let mut queue = queue()?;
    let names: Vec<String> = (0..1_000).map(|number| format!("n{number:04}")).collect();
    for name in &names {
        queue.ok("beat", T0, words![name, "watch", 0, ""])?;
    }
    let found: Vec<Text> = watch(&mut queue, T0, "n0000", 0, "")?
        .1
        .iter()
        .map(Text::from)
        .collect();
    ensure!(found == names.iter().map(Text::from).collect::<Vec<_>>());
    ensure!(queue.state()?.nodes.len() == 1_001);
    Ok(())
}
