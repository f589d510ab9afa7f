//! Live nodes, the leader and the standbys.

use anyhow::{Result, ensure};

use super::{add, expect, ids};
use crate::queue::{Queue, T0};
use crate::reply::words;

/// A queue that exists since `T0`.
fn queue() -> Result<Queue> {
    let mut queue = Queue::start()?;
    queue.push(T0, "far", "+100000000", "")?;
    Ok(queue)
}

/// Beats. Returns whether the node leads, and the number of live nodes.
fn beat(queue: &mut Queue, now: u64, node: &str, stay: &str) -> Result<(bool, i64)> {
    let reply = queue.ok("beat", now, words![node, stay])?;
    Ok((reply.part(1)?.int()? == 1, reply.part(2)?.int()?))
}

#[test]
fn a_beat_is_one_transition_of_the_whole_state() -> Result<()> {
    let mut queue = queue()?;
    let before = queue.state()?;
    ensure!(beat(&mut queue, T0, "north", "stay")? == (true, 1));
    expect(&mut queue, before, |state| {
        add(&mut state.nodes, "north", T0);
        let times = [
            ("leader_until", T0 + 2_500),
            ("last_beat", T0),
            ("reap_after", 0),
        ];
        state
            .meta
            .extend(times.map(|(field, time)| (field.into(), time.into())));
        state.meta.insert("leader".into(), "north".into());
    })
}

#[test]
fn a_node_leads_until_2500_ms_after_its_last_beat() -> Result<()> {
    let mut queue = queue()?;
    ensure!(beat(&mut queue, T0, "a", "stay")? == (true, 1));
    ensure!(beat(&mut queue, T0 + 1, "b", "stay")? == (false, 2));
    ensure!(
        beat(&mut queue, T0 + 1_000, "a", "stay")? == (true, 2),
        "a must stay the leader after its beat"
    );
    ensure!(beat(&mut queue, T0 + 2_900, "b", "stay")? == (false, 2));
    ensure!(
        beat(&mut queue, T0 + 3_499, "b", "stay")? == (false, 2),
        "b became the leader 1 ms too early"
    );
    ensure!(
        beat(&mut queue, T0 + 3_500, "b", "stay")? == (true, 2),
        "b must lead 2.5 s after the last beat of a"
    );
    ensure!(
        beat(&mut queue, T0 + 3_600, "a", "stay")? == (false, 2),
        "the former leader must stay a standby"
    );
    Ok(())
}

#[test]
fn a_leader_that_leaves_is_replaced_at_once() -> Result<()> {
    let mut queue = queue()?;
    ensure!(beat(&mut queue, T0, "a", "stay")? == (true, 1));
    ensure!(beat(&mut queue, T0, "b", "stay")? == (false, 2));
    ensure!(
        beat(&mut queue, T0 + 1, "b", "leave")? == (false, 1),
        "a standby that leaves must not change the leader"
    );
    ensure!(beat(&mut queue, T0 + 2, "b", "stay")? == (false, 2));
    ensure!(beat(&mut queue, T0 + 3, "a", "leave")? == (false, 1));
    ensure!(beat(&mut queue, T0 + 4, "b", "stay")? == (true, 1));
    ensure!(beat(&mut queue, T0 + 5, "nobody", "leave")? == (false, 1));
    Ok(())
}

#[test]
fn a_clock_that_goes_back_keeps_no_dead_leader() -> Result<()> {
    let mut queue = queue()?;
    ensure!(beat(&mut queue, T0 + 60_000, "dead", "stay")? == (true, 1));
    ensure!(
        beat(&mut queue, T0, "alive", "stay")? == (true, 1),
        "a leader_until beyond 2.5 s must not keep the leader"
    );
    ensure!(
        ids(&queue.state()?.nodes) == ["alive"],
        "a node with a last beat in the future must go"
    );
    Ok(())
}

#[test]
fn silent_nodes_are_forgotten_after_3_s() -> Result<()> {
    let mut queue = queue()?;
    beat(&mut queue, T0, "a", "stay")?;
    ensure!(beat(&mut queue, T0 + 2_999, "b", "stay")? == (true, 2));
    ensure!(beat(&mut queue, T0 + 3_000, "b", "stay")? == (true, 1));
    ensure!(ids(&queue.state()?.nodes) == ["b"]);
    Ok(())
}

#[test]
fn beats_leave_seq_unchanged_and_create_no_queue() -> Result<()> {
    let mut queue = Queue::start()?;
    let before = queue.contents()?;
    let reply = queue.ok("beat", T0, words!["a", "stay"])?;
    ensure!((1..=3).all(|part| {
        reply
            .part(part)
            .and_then(|part| part.int())
            .is_ok_and(|number| number == 0)
    }));
    ensure!(queue.contents()? == before);
    queue.push(T0, "a", T0, "")?;
    for second in 0..5 {
        queue.ok("beat", T0 + second, words!["a", "stay"])?;
    }
    ensure!(queue.state()?.meta.get(&"seq".into()) == Some(&"1".into()));
    Ok(())
}
