//! Nodes that park: for how long they count as live and as leaders, and what meta stores about
//! them.

use anyhow::{Context, Result, ensure};

use crate::frozen;
use crate::queue::{Queue, SECOND, T0, token};
use crate::reply::{Reply, Text, words};
use crate::scripts::{self, SCRIPTS};
use crate::vectors::{add, expect, ids};

const TEN_SECONDS: u64 = 10 * SECOND;

/// A queue that was created at `T0`.
fn queue() -> Result<Queue> {
    let mut queue = Queue::start()?;
    queue.push(T0, "far", "+100000000", "")?;
    Ok(queue)
}

/// A beat's reply: whether the node leads, the number of live nodes, and `reap_after`.
fn beat(queue: &mut Queue, now: u64, words: Vec<Text>) -> Result<(bool, i64, u64)> {
    let reply = queue.ok("beat", now, words)?;
    let (leads, nodes) = (reply.part(1)?.int()? == 1, reply.part(2)?.int()?);
    Ok((leads, nodes, reply.part(3)?.int()? as u64))
}

fn stay(queue: &mut Queue, now: u64, node: &str) -> Result<(bool, i64, u64)> {
    beat(queue, now, words![node, "stay"])
}

fn park(queue: &mut Queue, now: u64, node: &str, ms: u64) -> Result<(bool, i64, u64)> {
    beat(queue, now, words![node, "stay", ms])
}

/// A number from the reply to stats.
fn stat(queue: &mut Queue, now: u64, name: &str) -> Result<u64> {
    let reply = queue.ok("stats", now, words![])?;
    let pairs = reply.part(1)?.list()?;
    let at = pairs.iter().position(|one| *one == name.into());
    Ok(pairs[at.map_or(0, |at| at + 1)].int()? as u64)
}

/// The script of this verb in today's release.
fn todays(verb: &str) -> Result<String> {
    let source = SCRIPTS.iter().find(|(name, _)| *name == verb);
    scripts::read(verb, source.context("no such verb")?.1)
}

/// The field `parked_until` of meta.
fn parked_until(queue: &mut Queue) -> Result<Option<u64>> {
    let field = queue
        .state()?
        .meta
        .get(&"parked_until".into())
        .map(Text::text);
    Ok(field.map(|text| text.parse()).transpose()?)
}

#[test]
fn a_parking_beat_changes_only_the_expected_fields() -> Result<()> {
    let mut queue = queue()?;
    let before = queue.state()?;
    ensure!(park(&mut queue, T0, "north", TEN_SECONDS)? == (true, 1, 0));
    expect(&mut queue, before, |state| {
        add(&mut state.nodes, "north", T0 + TEN_SECONDS);
        let times = [
            ("leader_until", T0 + TEN_SECONDS),
            ("parked_until", T0 + TEN_SECONDS),
            ("last_beat", T0),
            ("reap_after", 0),
        ];
        let times = times.map(|(field, time)| (field.into(), time.into()));
        state.meta.extend(times);
        state.meta.insert("leader".into(), "north".into());
    })
}

#[test]
fn an_invalid_parking_time_is_refused() -> Result<()> {
    let mut queue = queue()?;
    let before = queue.contents()?;
    let nines = "9".repeat(400);
    for park in [
        "", "0", "999", "60001", "-1000", "+1000", " 1000", "1000 ", "1000.5", "1e4", "0x2000",
        "inf", "nan", "1000\0", "ten", &nines,
    ] {
        let reply = queue.call("beat", T0, words!["node", "stay", park])?;
        ensure!(reply.code() == Some("BADARGS"), "{park:?}: {reply:?}");
    }
    for words in [
        words!["node", "leave", 1_000],
        words!["node", "", 1_000],
        words!["node", "stay", 1_000, 1_000],
        words!["", "stay", 1_000],
    ] {
        let reply = queue.call("beat", T0, words)?;
        ensure!(reply.code() == Some("BADARGS"), "{reply:?}");
    }
    ensure!(
        queue.contents()? == before,
        "a refused beat wrote something"
    );
    for park in ["1000", "60000"] {
        queue.ok("beat", T0, words!["node", "stay", park])?;
    }
    Ok(())
}

#[test]
fn a_parking_beat_creates_no_queue() -> Result<()> {
    let mut queue = Queue::start()?;
    let before = queue.contents()?;
    ensure!(park(&mut queue, T0, "a", TEN_SECONDS)? == (false, 0, 0));
    ensure!(queue.contents()? == before);
    Ok(())
}

#[test]
fn a_parked_node_is_live_until_3_s_after_its_parking_time() -> Result<()> {
    let mut queue = queue()?;
    park(&mut queue, T0, "a", TEN_SECONDS)?;
    for (after, nodes) in [(0, 1), (9_999, 1), (13_000, 1), (13_001, 0)] {
        ensure!(
            stat(&mut queue, T0 + after, "nodes")? == nodes,
            "{after} ms"
        );
    }
    ensure!(stay(&mut queue, T0 + 12_999, "b")?.1 == 2);
    ensure!(stay(&mut queue, T0 + 13_000, "b")?.1 == 1);
    ensure!(ids(&queue.state()?.nodes) == ["b"]);
    Ok(())
}

#[test]
fn a_claim_counts_parked_nodes_in_the_fair_share() -> Result<()> {
    let mut queue = queue()?;
    park(&mut queue, T0, "a", TEN_SECONDS)?;
    for number in 0..20 {
        queue.push(T0, &number.to_string(), T0, "")?;
    }
    // Two live nodes share 20 messages. Later the one that is left gets the other 10.
    for after in [9_000, 13_000] {
        stay(&mut queue, T0 + after, "b")?;
        let token = queue.new_token();
        let reply = queue.ok("claim", T0 + after, words![100, token, 30 * SECOND])?;
        let granted = reply.deliveries()?.len();
        ensure!(granted == 10, "{granted} after {after} ms");
    }
    Ok(())
}

#[test]
fn a_parked_leader_leads_until_its_parking_time_ends() -> Result<()> {
    let mut queue = queue()?;
    ensure!(park(&mut queue, T0, "a", TEN_SECONDS)?.0);
    for after in [2_500, 5_000, 7_500, 9_999] {
        ensure!(!stay(&mut queue, T0 + after, "b")?.0, "after {after} ms");
    }
    ensure!(
        stay(&mut queue, T0 + TEN_SECONDS, "b")?.0,
        "the term is over"
    );
    Ok(())
}

#[test]
fn a_short_parking_time_does_not_shorten_the_term() -> Result<()> {
    let mut queue = queue()?;
    ensure!(park(&mut queue, T0, "a", 1_000)?.0);
    ensure!(!stay(&mut queue, T0 + 2_499, "b")?.0);
    ensure!(stay(&mut queue, T0 + 2_500, "b")?.0);
    Ok(())
}

#[test]
fn a_parked_standby_does_not_extend_the_leaders_term() -> Result<()> {
    let mut queue = queue()?;
    ensure!(stay(&mut queue, T0, "a")?.0);
    ensure!(!park(&mut queue, T0, "b", TEN_SECONDS)?.0);
    ensure!(!stay(&mut queue, T0 + 2_499, "c")?.0);
    ensure!(stay(&mut queue, T0 + 2_500, "c")?.0);
    Ok(())
}

#[test]
fn a_parked_node_that_leaves_is_forgotten_at_once() -> Result<()> {
    let mut queue = queue()?;
    ensure!(park(&mut queue, T0, "a", TEN_SECONDS)?.0);
    ensure!(beat(&mut queue, T0 + 1, words!["a", "leave"])?.1 == 0);
    ensure!(stay(&mut queue, T0 + 2, "b")? == (true, 1, 0));
    // Another node may be parked, so the notices end only with time.
    ensure!(parked_until(&mut queue)? == Some(T0 + TEN_SECONDS));
    Ok(())
}

#[test]
fn parked_until_is_the_end_of_the_longest_silence() -> Result<()> {
    let mut queue = queue()?;
    stay(&mut queue, T0, "a")?;
    ensure!(parked_until(&mut queue)?.is_none(), "no node has parked");
    ensure!(stat(&mut queue, T0, "parked_until")? == 0);
    park(&mut queue, T0, "a", TEN_SECONDS)?;
    park(&mut queue, T0 + 1, "b", 5 * SECOND)?;
    stay(&mut queue, T0 + 2, "a")?;
    ensure!(parked_until(&mut queue)? == Some(T0 + TEN_SECONDS));
    park(&mut queue, T0 + 3, "b", 60 * SECOND)?;
    ensure!(parked_until(&mut queue)? == Some(T0 + 3 + 60 * SECOND));
    ensure!(stat(&mut queue, T0 + 3, "parked_until")? == T0 + 3 + 60 * SECOND);
    let later = T0 + 100 * SECOND;
    park(&mut queue, later, "b", 1_000)?;
    ensure!(parked_until(&mut queue)? == Some(later + 1_000));
    Ok(())
}

/// The boundary: a time exactly 60 s ahead is an announced silence, 1 ms more is not.
#[test]
fn parked_until_beyond_60_s_ahead_is_ignored() -> Result<()> {
    let mut queue = queue()?;
    park(&mut queue, T0, "a", 60 * SECOND)?;
    ensure!(!stay(&mut queue, T0, "b")?.0);
    ensure!(parked_until(&mut queue)? == Some(T0 + 60 * SECOND));
    ensure!(ids(&queue.state()?.nodes) == ["b", "a"]);

    ensure!(
        stay(&mut queue, T0 - 1, "b")?.0,
        "the clock went back: b must lead"
    );
    ensure!(parked_until(&mut queue)? == Some(0));
    ensure!(ids(&queue.state()?.nodes) == ["b"], "a must be forgotten");
    park(&mut queue, T0 - 1, "a", TEN_SECONDS)?;
    ensure!(parked_until(&mut queue)? == Some(T0 - 1 + TEN_SECONDS));
    Ok(())
}

/// The clock went back by so little that the announced silence is still plausible.
#[test]
fn a_small_step_back_keeps_parked_nodes() -> Result<()> {
    let mut queue = queue()?;
    let ahead = T0 + 20 * SECOND;
    ensure!(park(&mut queue, ahead, "a", TEN_SECONDS)?.0);
    let (leads, nodes, reap_after) = stay(&mut queue, T0, "b")?;
    ensure!((leads, nodes) == (false, 2));
    ensure!(reap_after == T0 + 5 * SECOND, "a step back delays reaps");
    ensure!(parked_until(&mut queue)? == Some(ahead + TEN_SECONDS));
    Ok(())
}

#[test]
fn a_jump_of_the_clock_forward_ends_a_silence() -> Result<()> {
    let mut queue = queue()?;
    ensure!(park(&mut queue, T0, "a", TEN_SECONDS)?.0);
    let (leads, nodes, reap_after) = stay(&mut queue, T0 + 3_600 * SECOND, "b")?;
    ensure!((leads, nodes) == (true, 1));
    ensure!(reap_after == T0 + 3_605 * SECOND, "it looks like an outage");
    Ok(())
}

#[test]
fn an_announced_silence_does_not_delay_reaps() -> Result<()> {
    let mut queue = queue()?;
    park(&mut queue, T0, "a", TEN_SECONDS)?;
    ensure!(park(&mut queue, T0 + TEN_SECONDS, "a", TEN_SECONDS)?.2 == 0);
    let late = T0 + 2 * TEN_SECONDS + 3_000;
    ensure!(
        stay(&mut queue, late, "a")?.2 == late + 5_000,
        "node a was silent for 3 s longer than it said"
    );
    Ok(())
}

#[test]
fn an_unannounced_silence_beside_a_parked_node_delays_reaps() -> Result<()> {
    let mut queue = queue()?;
    stay(&mut queue, T0, "b")?;
    park(&mut queue, T0, "a", TEN_SECONDS)?;
    let now = T0 + 3_001;
    ensure!(
        stay(&mut queue, now, "a")?.2 == now + 5_000,
        "b fell silent"
    );
    Ok(())
}

/// Node a has left, so no node is overdue, and only `parked_until` decides.
#[test]
fn a_silence_counts_from_the_end_of_parked_until() -> Result<()> {
    for (after, delays) in [(13_000, false), (13_001, true)] {
        let mut queue = queue()?;
        park(&mut queue, T0, "a", TEN_SECONDS)?;
        beat(&mut queue, T0 + 1, words!["a", "leave"])?;
        let reap_after = stay(&mut queue, T0 + after, "b")?.2;
        let expected = if delays { T0 + after + 5_000 } else { 0 };
        ensure!(reap_after == expected, "{after} ms: {reap_after}");
    }
    Ok(())
}

#[test]
fn a_reap_in_a_parked_queue_needs_a_recent_beat() -> Result<()> {
    let mut queue = queue()?;
    queue.push(T0, "a", T0, "")?;
    queue.ok("claim", T0, words![1, token('a'), SECOND])?;
    park(&mut queue, T0, "node", TEN_SECONDS)?;
    let reaped = |queue: &mut Queue, after| -> Result<i64> {
        queue.ok("reap", T0 + after, words![10])?.part(1)?.int()
    };
    ensure!(reaped(&mut queue, 3_001)? == 0, "no node beat for 3 s");
    stay(&mut queue, T0 + 3_001, "node")?;
    ensure!(reaped(&mut queue, 3_001)? == 1);
    Ok(())
}

#[test]
fn verify_finds_a_parked_queue_silent_3_s_after_its_park() -> Result<()> {
    let mut queue = queue()?;
    park(&mut queue, T0, "a", TEN_SECONDS)?;
    queue.push(T0, "due", T0, "")?;
    queue.command(words!["DEL", "dueq:{q}:wake"])?;
    let kinds = |queue: &mut Queue, now: u64| -> Result<usize> {
        Ok(queue.ok("verify", now, words![""])?.part(1)?.list()?.len())
    };
    ensure!(kinds(&mut queue, T0 + 13_000)? == 0, "its node is live");
    ensure!(kinds(&mut queue, T0 + 13_001)? == 1);
    // More than 60 s ahead it is not an announced silence, so the last beat counts.
    let meta = "dueq:{q}:meta";
    queue.command(words!["HSET", meta, "parked_until", T0 + 65_000])?;
    ensure!(kinds(&mut queue, T0 + 5_000)? == 0, "exactly 60 s ahead");
    queue.command(words!["HSET", meta, "parked_until", T0 + 65_001])?;
    ensure!(kinds(&mut queue, T0 + 5_000)? == 1, "60,001 ms ahead");
    Ok(())
}

#[test]
fn a_frozen_beat_forgets_parked_nodes_and_refuses_to_park() -> Result<()> {
    let mut queue = queue()?;
    ensure!(park(&mut queue, T0, "new", TEN_SECONDS)?.0);
    queue.load("beat", &frozen::scripts()?["beat"])?;
    let refused = queue.call("beat", T0, words!["old", "stay", 1_000])?;
    ensure!(refused.code() == Some("BADARGS"), "{refused:?}");
    ensure!(stay(&mut queue, T0 + 1, "old")? == (true, 1, 0));
    ensure!(ids(&queue.state()?.nodes) == ["old"]);
    ensure!(
        parked_until(&mut queue)? == Some(T0 + TEN_SECONDS),
        "the notices go on"
    );
    queue.load("beat", &todays("beat")?)?;
    ensure!(park(&mut queue, T0 + 2, "new", TEN_SECONDS)? == (false, 2, 0));
    Ok(())
}

#[test]
fn a_malformed_parked_until_stops_no_call() -> Result<()> {
    for value in ["gibberish", "", "-5", "7.5", "1e300", "inf", "-inf", "nan"] {
        let mut queue = queue()?;
        let meta = "dueq:{q}:meta";
        queue.command(words!["HSET", meta, "parked_until", value])?;
        for (verb, words) in [
            ("push", words!["", "new", T0 + SECOND, "", ""]),
            ("stats", words![]),
            ("beat", words!["node", "stay"]),
        ] {
            let reply = queue.call(verb, T0, words)?;
            ensure!(reply.code().is_none(), "{value:?}: {verb}: {reply:?}");
        }
        let mut queue = self::queue()?;
        queue.command(words!["HSET", meta, "parked_until", value])?;
        let found = queue.ok("verify", T0, words!["1"])?;
        let expected = Reply::from("parked_until");
        ensure!(*found.part(1)?.part(0)?.part(1)? == expected, "{value:?}");
        ensure!(parked_until(&mut queue)?.is_none(), "{value:?}");
        park(&mut queue, T0, "node", TEN_SECONDS)?;
        ensure!(parked_until(&mut queue)? == Some(T0 + TEN_SECONDS));
    }
    Ok(())
}
