//! Moves a slot to another server of a cluster, key by key, and calls every script at every step.
//!
//! A twin queue on a single server gets the calls that a node served. The twin's replies and its
//! whole state are the expected ones.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::queue::{Queue, SECOND, T0, attempt, keys_of, token};
use crate::reply::{Reply, Text, words};
use crate::scripts::{BATCH, SCRIPTS};
use crate::state::KEYS;

const BASE: &str = "dueq:{q}";

/// The time limit for a cluster of two servers to form. A server waits 2 s before it reports the
/// state ok.
const FORMED_WITHIN: Duration = Duration::from_secs(60);

type Call = (&'static str, Vec<Text>);

struct Cluster {
    source: Queue,
    target: Queue,
    twin: Queue,
    source_id: Text,
    target_id: Text,
    slot: Text,
}

fn node() -> Result<Queue> {
    Queue::start_with(&["--cluster-enabled", "yes"])
}

impl Cluster {
    /// Starts two nodes that know each other. The source owns all slots.
    fn start() -> Result<Self> {
        let (mut source, mut target) = (node()?, node()?);
        source.command(words!["CLUSTER", "ADDSLOTSRANGE", 0, 16_383])?;
        source.command(words![
            "CLUSTER",
            "MEET",
            "127.0.0.1",
            u64::from(target.server.port())
        ])?;
        let start = Instant::now();
        for node in [&mut source, &mut target] {
            while !node
                .command(words!["CLUSTER", "INFO"])?
                .text()?
                .contains("cluster_state:ok")
                || !node
                    .command(words!["CLUSTER", "INFO"])?
                    .text()?
                    .contains("cluster_known_nodes:2")
            {
                ensure!(start.elapsed() < FORMED_WITHIN, "the cluster did not form");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let slot = source.command(words!["CLUSTER", "KEYSLOT", BASE])?.int()? as u64;
        let id = |node: &mut Queue| node.command(words!["CLUSTER", "MYID"])?.bytes().cloned();
        let (source_id, target_id) = (id(&mut source)?, id(&mut target)?);
        source.empty()?;
        Ok(Self {
            source,
            target,
            twin: Queue::start()?,
            source_id,
            target_id,
            slot: slot.into(),
        })
    }

    fn begin(&mut self) -> Result<()> {
        let (slot, source, target) = (&self.slot, &self.source_id, &self.target_id);
        fine(
            self.target
                .command(words!["CLUSTER", "SETSLOT", slot, "IMPORTING", source])?,
        )?;
        fine(
            self.source
                .command(words!["CLUSTER", "SETSLOT", slot, "MIGRATING", target])?,
        )
    }

    fn end(&mut self) -> Result<()> {
        let (slot, target) = (&self.slot, &self.target_id);
        fine(
            self.target
                .command(words!["CLUSTER", "SETSLOT", slot, "NODE", target])?,
        )?;
        fine(
            self.source
                .command(words!["CLUSTER", "SETSLOT", slot, "NODE", target])?,
        )
    }

    fn migrate(&mut self, key: &str) -> Result<Reply> {
        let port = u64::from(self.target.server.port());
        self.source
            .command(words!["MIGRATE", "127.0.0.1", port, key, 0, 5_000])
    }

    /// Runs a call at the target like a client that follows an ASK redirection.
    fn ask(&mut self, (verb, argv): &Call) -> Result<Reply> {
        fine(self.target.command(words!["ASKING"])?)?;
        self.target.call_with(verb, keys_of(BASE), argv.clone())
    }

    /// Checks that one node serves the calls with the twin's replies.
    fn served(
        &mut self,
        calls: &[Call],
        mut serve: impl FnMut(&mut Self, &Call) -> Result<Reply>,
    ) -> Result<()> {
        for call in calls {
            let reply = serve(self, call)?;
            let expected = self.twin.call_with(call.0, keys_of(BASE), call.1.clone())?;
            ensure!(expected.code().is_none(), "{call:?}: {expected:?}");
            ensure!(
                reply == expected,
                "{call:?}\n    is       {reply:?}\n    expected {expected:?}"
            );
        }
        Ok(())
    }

    /// Checks that both nodes refuse the calls, with and without ASKING, and change nothing.
    fn refused(&mut self, calls: &[Call], moved: &[String]) -> Result<()> {
        let before = (self.source.contents()?, self.target.contents()?);
        for call in calls {
            let there = self
                .source
                .call_with(call.0, keys_of(BASE), call.1.clone())?;
            ensure!(
                there.code() == Some("TRYAGAIN"),
                "{moved:?} moved, {}: the source replied {there:?}",
                call.0
            );
            let asked = self.ask(call)?;
            ensure!(
                asked.code() == Some("TRYAGAIN"),
                "{moved:?} moved, {}: the target replied {asked:?} after ASKING",
                call.0
            );
            let unasked = self
                .target
                .call_with(call.0, keys_of(BASE), call.1.clone())?;
            ensure!(
                unasked.code() == Some("MOVED"),
                "{moved:?} moved, {}: the target replied {unasked:?} without ASKING",
                call.0
            );
        }
        ensure!(
            (self.source.contents()?, self.target.contents()?) == before,
            "{moved:?} moved: a refused call changed a key"
        );
        Ok(())
    }

    /// Checks that the state equals the twin's, except the wake-up list: the scripts may add no
    /// tokens while it moves.
    fn same(&mut self, at_target: bool) -> Result<()> {
        let mut state = if at_target {
            &mut self.target
        } else {
            &mut self.source
        }
        .state()?;
        let expected = self.twin.state()?;
        ensure!(state.wake.len() <= 2);
        state.wake.clone_from(&expected.wake);
        let difference = state.difference(&expected);
        ensure!(difference.is_none(), "{}", difference.unwrap_or_default());
        Ok(())
    }
}

fn fine(reply: Reply) -> Result<()> {
    ensure!(reply == "OK".into(), "{reply:?}");
    Ok(())
}

/// Calls of every verb on messages of this round.
fn calls(round: u64) -> Vec<Call> {
    let now = T0 + round * 100 * SECOND;
    let id = |name: &str| Text::from(format!("{name}{round}"));
    let held = token('a');
    let push = ["a", "b", "c", "d", "e", "f", "g", "h"]
        .map(|name| words![id(name), now, "payload", "max_attempts=3"]);
    let far = words!["", id("far"), "+3600000", "", ""];
    let near = words![id("near"), "+1500", "", ""];
    let beats = (0..6).map(|s| ("beat", now + s * SECOND, words!["node", "stay", "9 1|"]));
    let mut calls = vec![
        ("configure", now, words!["max_crashes", 4]),
        (
            "push",
            now,
            [words![attempt(now, 1)], push.concat()].concat(),
        ),
        ("push", now, [far, near].concat()),
        (
            "upsert",
            now,
            words!["", id("near"), "+1600", "", "on_conflict=reschedule"],
        ),
        ("promote", now, words![9]),
        ("claim", now, words![8, &held, 5_500]),
        ("ack", now, words![&held, 3, id("a"), id("a"), "?"]),
        (
            "ack_push",
            now,
            words![
                Text([&held.0[..], id("g").0.as_slice()].concat()),
                id("following"),
                "+3600000",
                "",
                ""
            ],
        ),
        ("again", now, words![id("b"), &held, "+500"]),
        ("retry", now, words![id("c"), &held, 700, "error"]),
        ("release", now, words![id("d"), &held]),
        ("bury", now, words![id("e"), &held, "why"]),
        ("snooze", now, words![id("g"), &held, "+700"]),
        ("throttle", now, words![id("h"), &held, 1]),
        ("extend", now, words![id("f"), &held, 60 * SECOND]),
        ("requeue", now, words!["ids", id("e")]),
        ("cancel", now, words!["", id("d"), id("f")]),
        ("reschedule", now, words![id("near"), "+900", now + 1_600]),
        ("run_now", now, words![id("far")]),
        ("pause", now, words![]),
        ("resume", now, words![]),
        (
            "remap",
            now,
            words!["forward", format!("{}|-|-", round + 1)],
        ),
        ("depart", now, words!["", 0, "17", 5_000, id("far")]),
        ("arrive", now, words!["17", round + 1, BATCH]),
    ];
    let name = format!("tick{round}");
    let declare = words![&name, "", "", &name, "every=1000", "", "", "", ""];
    let audit = words!["messages", "0", 1_000, "1"];
    calls.extend([
        ("schedule", now, declare),
        ("schedules", now, words!["", 10, ""]),
        ("trigger", now, words![&name, "now"]),
        ("refill", now, words![&name, 1, 1, "2026a 0\n1"]),
        ("amend", now, words!["pause", &name]),
    ]);
    calls.extend(beats);
    calls.extend([
        ("reap", now + 6 * SECOND, words![10]),
        (
            "reap",
            now + 6 * SECOND,
            words!["ids", id("e"), "0123456789abcdef"],
        ),
        ("purge", now + 6 * SECOND, words!["dead", 10]),
        ("get", now + 6 * SECOND, words![id("f")]),
        ("peek", now + 6 * SECOND, words!["scheduled", "", 10]),
        ("stats", now + 6 * SECOND, words![]),
        ("dues", now + 6 * SECOND, words![now, now + 6 * SECOND]),
        ("nodes", now + 6 * SECOND, words![]),
        ("held", now + 6 * SECOND, words![&held]),
        ("history", now + 6 * SECOND, words!["days"]),
        ("verify", now + 6 * SECOND, words!["1"]),
        ("audit", now + 6 * SECOND, audit),
    ]);
    calls
        .into_iter()
        .map(|(verb, now, words)| (verb, [words![now], words].concat()))
        .collect()
}

#[test]
fn a_round_of_calls_has_every_verb() -> Result<()> {
    let mut verbs: Vec<_> = calls(1).into_iter().map(|(verb, _)| verb).collect();
    verbs.sort_unstable();
    verbs.dedup();
    ensure!(verbs == SCRIPTS.iter().map(|(verb, _)| *verb).collect::<Vec<_>>());
    Ok(())
}

/// Moves the queue key by key in this order. The order may contain the wake-up list.
fn moves(order: &[&str]) -> Result<()> {
    let mut cluster = Cluster::start()?;
    let at_source: fn(&mut Cluster, &Call) -> Result<Reply> =
        |cluster, (verb, argv)| cluster.source.call_with(verb, keys_of(BASE), argv.clone());
    let at_target: fn(&mut Cluster, &Call) -> Result<Reply> =
        |cluster, (verb, argv)| cluster.target.call_with(verb, keys_of(BASE), argv.clone());

    cluster.served(&calls(0), at_source)?;
    let wake = format!("{BASE}:wake");
    if !order.contains(&"wake") {
        cluster.source.command(words!["DEL", &wake])?;
    }
    cluster.begin()?;
    // No key has moved: the source has all ten and serves, with or without a wake-up list.
    cluster.served(&calls(1), at_source)?;
    cluster.same(false)?;
    if !order.contains(&"wake") {
        ensure!(
            cluster.source.state()?.wake.is_empty(),
            "the source created a wake-up list in a slot that leaves it"
        );
    }

    let (mut moved, mut data) = (Vec::new(), 0);
    for suffix in order {
        let reply = cluster.migrate(&format!("{BASE}:{suffix}"))?;
        fine(reply).with_context(|| format!("MIGRATE of {suffix} after {moved:?}"))?;
        moved.push((*suffix).to_owned());
        data += usize::from(*suffix != "wake");
        match data {
            0 => {
                cluster.served(&calls(9), at_source)?;
                cluster.same(false)?;
            }
            1..10 => cluster.refused(&calls(2), &moved)?,
            _ => {
                // All ten keys have moved: the source redirects, and the target serves calls after
                // ASKING.
                let round = 2 + moved.len() as u64;
                let call = calls(round).swap_remove(1);
                let redirected = cluster.source.call_with(call.0, keys_of(BASE), call.1)?;
                ensure!(redirected.code() == Some("ASK"), "{redirected:?}");
                cluster.served(&calls(round), Cluster::ask)?;
                cluster.same(true)?;
            }
        }
    }
    cluster.end()?;
    cluster.served(&calls(20), at_target)?;
    cluster.same(true)?;
    ensure!(
        cluster.target.state()?.wake.len() == 2,
        "the wake-up list lacks its two tokens after the move"
    );
    ensure!(
        cluster.source.contents()?.is_empty(),
        "the source still has keys"
    );
    let call = calls(21).swap_remove(1);
    let redirected = cluster.source.call_with(call.0, keys_of(BASE), call.1)?;
    ensure!(redirected.code() == Some("MOVED"), "{redirected:?}");
    Ok(())
}

#[test]
fn a_queue_moves_with_its_wake_up_list_first() -> Result<()> {
    moves(&[&["wake"], &KEYS[..]].concat())
}

#[test]
fn a_queue_moves_with_its_wake_up_list_in_the_middle() -> Result<()> {
    let mut order: Vec<&str> = KEYS.into_iter().rev().collect();
    order.insert(5, "wake");
    moves(&order)
}

#[test]
fn a_queue_moves_with_its_wake_up_list_last() -> Result<()> {
    moves(&[&KEYS[..], &["wake"]].concat())
}

#[test]
fn a_queue_moves_without_a_wake_up_list() -> Result<()> {
    moves(&KEYS)
}

#[test]
fn a_push_creates_an_absent_queue_after_its_slot_moved() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.source.command(words!["FLUSHALL"])?;
    cluster.begin()?;
    let push: Call = ("push", words!["", "", "a", "+1", "", ""]);
    let at_source = cluster
        .source
        .call_with(push.0, keys_of(BASE), push.1.clone())?;
    ensure!(at_source.code() == Some("ASK"), "{at_source:?}");
    let asked = cluster.ask(&push)?;
    ensure!(asked.code() == Some("TRYAGAIN"), "{asked:?}");
    ensure!(cluster.source.contents()?.is_empty() && cluster.target.contents()?.is_empty());
    cluster.end()?;
    ensure!(
        cluster
            .target
            .call_with(push.0, keys_of(BASE), push.1.clone())?
            .items()?
            == ["CREATED"]
    );
    Ok(())
}
