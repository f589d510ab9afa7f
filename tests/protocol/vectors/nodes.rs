//! Who lives, and who has the leader.

use anyhow::{Result, ensure};

use super::{add, expect, ids};
use crate::queue::{Queue, T0};
use crate::reply::words;

/// A queue that exists and was seen at `T0`.
fn queue() -> Result<Queue> {
    let mut queue = Queue::start()?;
    queue.push(T0, "far", "+100000000", "")?;
    Ok(queue)
}

/// Beats and returns whether the node leads, and how many live.
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
fn one_leads_until_it_is_silent_for_its_time() -> Result<()> {
    let mut queue = queue()?;
    ensure!(beat(&mut queue, T0, "a", "stay")? == (true, 1));
    ensure!(beat(&mut queue, T0 + 1, "b", "stay")? == (false, 2));
    ensure!(
        beat(&mut queue, T0 + 1_000, "a", "stay")? == (true, 2),
        "renewed"
    );
    ensure!(beat(&mut queue, T0 + 2_900, "b", "stay")? == (false, 2));
    ensure!(
        beat(&mut queue, T0 + 3_499, "b", "stay")? == (false, 2),
        "to the millisecond"
    );
    ensure!(
        beat(&mut queue, T0 + 3_500, "b", "stay")? == (true, 2),
        "2.5 s after its last beat"
    );
    ensure!(
        beat(&mut queue, T0 + 3_600, "a", "stay")? == (false, 2),
        "and it does not come back"
    );
    Ok(())
}

#[test]
fn a_lead_that_leaves_is_followed_at_once() -> Result<()> {
    let mut queue = queue()?;
    ensure!(beat(&mut queue, T0, "a", "stay")? == (true, 1));
    ensure!(beat(&mut queue, T0, "b", "stay")? == (false, 2));
    ensure!(
        beat(&mut queue, T0 + 1, "b", "leave")? == (false, 1),
        "another one that leaves changes nothing"
    );
    ensure!(beat(&mut queue, T0 + 2, "b", "stay")? == (false, 2));
    ensure!(beat(&mut queue, T0 + 3, "a", "leave")? == (false, 1));
    ensure!(beat(&mut queue, T0 + 4, "b", "stay")? == (true, 1));
    ensure!(beat(&mut queue, T0 + 5, "nobody", "leave")? == (false, 1));
    Ok(())
}

#[test]
fn a_clock_that_goes_back_keeps_no_lead_for_ever() -> Result<()> {
    let mut queue = queue()?;
    ensure!(beat(&mut queue, T0 + 60_000, "dead", "stay")? == (true, 1));
    ensure!(
        beat(&mut queue, T0, "alive", "stay")? == (true, 1),
        "its leader is further ahead than any can be"
    );
    ensure!(
        ids(&queue.state()?.nodes) == ["alive"],
        "it was seen in the future"
    );
    Ok(())
}

#[test]
fn the_silent_are_forgotten_after_3_s() -> Result<()> {
    let mut queue = queue()?;
    beat(&mut queue, T0, "a", "stay")?;
    ensure!(beat(&mut queue, T0 + 2_999, "b", "stay")? == (true, 2));
    ensure!(beat(&mut queue, T0 + 3_000, "b", "stay")? == (true, 1));
    ensure!(ids(&queue.state()?.nodes) == ["b"]);
    Ok(())
}

#[test]
fn beats_do_not_number_the_state_and_make_no_queue() -> Result<()> {
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
