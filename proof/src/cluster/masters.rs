//! Faults of masters: they die, freeze, become unreachable, or join and leave.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dueq_testkit::cluster::{self, SlotMove};
use fastrand::Rng;
use rustix::process::Signal;

use super::nodes::Node;
use super::{Scene, slots};
use crate::faults::{Mark, last, process_state, target, until};
use crate::history::{Event, now_us};
use crate::kit::proxy::{Direction, Mode};
use crate::queues::PARTITIONED;

/// How many slots a new master gets.
const SLOTS_OF_NEW: usize = 3;

/// A master, and the replica that replaces it.
struct Failover {
    old: Arc<Node>,
    new: Arc<Node>,
    queues: Vec<String>,
    /// For each queue: its `incarnation` and `seq` before the fault.
    before: HashMap<String, (String, u64)>,
    since_us: u64,
}

impl Failover {
    async fn plan(scene: &Scene, rng: &mut Rng) -> Result<Self> {
        let old = chosen(scene, rng).await?;
        let new = target("replica in step", async || {
            scene.nodes.replica_in_step(&old).await
        })
        .await?;
        let queues = scene.queues_of(&old).await?;
        ensure!(!queues.is_empty(), "{} serves no queue", old.name);
        let before = found(&old, &queues).await?;
        Ok(Self {
            old,
            new,
            queues,
            before,
            since_us: now_us(),
        })
    }

    /// Waits until the other masters have promoted the replica, and records which changes of its
    /// queues it lacks. No client reaches it before that. Returns the number of lost changes, and the
    /// queues that it lacks as a whole.
    async fn promoted(&self, scene: &Scene) -> Result<(u64, Vec<String>)> {
        until("a replica that is the master", async || {
            Ok(self.new.is_master().await?.then_some(()))
        })
        .await?;
        // A mover may have made or removed partitions since the plan.
        let (queues, mut lost) = (scene.queues_of(&self.new).await?, 0);
        let survivors = found(&self.new, &queues).await?;
        // A partition that had no keys either may have been removed long ago.
        let was_there = |queue: &String| !queue.contains('/') || self.before.contains_key(queue);
        let gone = queues
            .into_iter()
            .filter(|queue| !survivors.contains_key(queue));
        let gone = gone.filter(was_there).collect();
        for (queue, (incarnation, survived)) in survivors {
            let before = self.before.get(&queue);
            let known = before.filter(|(known, _)| *known == incarnation);
            ensure!(
                known.is_some() || queue.starts_with(PARTITIONED),
                "{queue} was {before:?} and is {incarnation}"
            );
            // So that later answers of the old master have a `seq` between its last one and the
            // raised one.
            let meta = format!("dueq:{{{queue}}}:meta");
            let raise = ["HINCRBY", &*meta, "seq", "1000000"];
            let next = until("a master that takes writes", async || {
                Ok(self.new.command::<u64>(&raise).await.ok())
            });
            scene.log.write(&Event::Undone {
                queue: queue.clone(),
                incarnation: incarnation.clone(),
                survived,
                next: next.await?,
            });
            lost += known.map_or(0, |(_, seq)| seq.saturating_sub(survived));
            scene.log.write(&Event::Replaced {
                queue,
                incarnation,
                survived,
                master: format!("127.0.0.1:{}", self.old.proxy.port()),
            });
        }
        Ok((lost, gone))
    }

    fn words(&self) -> String {
        let Self {
            old, new, queues, ..
        } = self;
        format!(
            "{} with {} queues, replica {}",
            old.name,
            queues.len(),
            new.name
        )
    }
}

/// `incarnation` and `seq` of those of the queues that exist, read from their master.
async fn found(node: &Node, queues: &[String]) -> Result<HashMap<String, (String, u64)>> {
    let mut found = HashMap::new();
    for queue in queues {
        let meta = format!("dueq:{{{queue}}}:meta");
        let read = ["HMGET", &*meta, "incarnation", "seq"];
        let pair = until("the state of a queue", async || {
            let pair = node.command::<(Option<String>, Option<u64>)>(&read).await;
            Ok(pair.ok())
        });
        if let (Some(incarnation), seq) = pair.await? {
            found.insert(queue.clone(), (incarnation, seq.unwrap_or(0)));
        }
    }
    Ok(found)
}

pub(super) async fn chosen(scene: &Scene, rng: &mut Rng) -> Result<Arc<Node>> {
    let masters = scene.nodes.masters().await?;
    Ok(Arc::clone(rng.choice(&masters).context("no masters")?))
}

/// Waits until the former master is a replica with all data; before that, another failover would
/// lose more.
async fn rejoined(old: &Node) -> Result<()> {
    until("the former master as a replica", async || {
        Ok((!old.is_master().await?).then_some(()))
    })
    .await?;
    cluster::follows(old.port).await
}

/// Kills a master by SIGKILL.
pub(super) async fn kill(scene: &Scene, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    let failover = Failover::plan(scene, rng).await?;
    mark.begin(&failover.words());
    let Failover { old, new, .. } = &failover;
    new.proxy.set(Mode::Away);
    old.kill()?;
    let lost = failover.promoted(scene).await;
    new.proxy.set(Mode::Pass);
    let (lost, gone) = lost?;
    last(rng, 0..1_500).await;
    old.restart().await?;
    rejoined(old).await?;
    mark.trace(&format!(
        "{} was promoted; {lost} changes or more are lost",
        new.name
    ));
    // Until it rejoined, the former master may have made these queues anew.
    for queue in gone {
        let master = format!("127.0.0.1:{}", old.proxy.port());
        scene.log.write(&Event::Vanished { queue, master });
    }
    scene.touched(failover.queues.clone(), failover.since_us);
    mark.end(&failover.words());
    Ok(())
}

/// Freezes a master until its replica has replaced it. After it resumes, it still acts as a master
/// until another server tells it.
pub(super) async fn freeze(scene: &Scene, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    let failover = Failover::plan(scene, rng).await?;
    mark.begin(&failover.words());
    let Failover { old, new, .. } = &failover;
    new.proxy.set(Mode::Away);
    let pid = old.pid()?;
    old.signal(Signal::STOP)?;
    let lost = async {
        until("a stopped server", async || {
            Ok((process_state(pid)? == 'T').then_some(()))
        })
        .await?;
        failover.promoted(scene).await
    };
    let lost = lost.await;
    new.proxy.set(Mode::Pass);
    last(rng, 0..1_500).await;
    old.signal(Signal::CONT)?;
    let (lost, gone) = lost?;
    rejoined(old).await?;
    mark.trace(&format!(
        "{} was promoted; {lost} changes or more are lost",
        new.name
    ));
    // Until it rejoined, the former master may have made these queues anew.
    for queue in gone {
        let master = format!("127.0.0.1:{}", old.proxy.port());
        scene.log.write(&Event::Vanished { queue, master });
    }
    scene.touched(failover.queues.clone(), failover.since_us);
    mark.end(&failover.words());
    Ok(())
}

/// Cuts a master off from clients and from its replica; the other masters still reach it.
pub(super) async fn cut(scene: &Scene, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    let node = chosen(scene, rng).await?;
    let direction = if rng.bool() {
        Direction::Requests
    } else {
        Direction::Replies
    };
    let mode = match rng.u32(0..4) {
        0 => Mode::Away,
        1 => Mode::HalfOpen,
        2 => Mode::Drop(direction),
        _ => Mode::Cut(direction, rng.u64(1..20_000)),
    };
    let (before, since_us) = (node.proxy.done(), now_us());
    let queues = scene.queues_of(&node).await?;
    mark.begin(&format!("{}: {mode:?}", node.name));
    node.proxy.set(mode);
    let seen = target("traffic to disturb", async || {
        let now = node.proxy.done();
        Ok((now > before).then_some(()))
    });
    let seen = seen.await;
    last(rng, 1_000..4_500).await;
    node.proxy.set(Mode::Pass);
    scene.touched(queues, since_us);
    mark.end(&node.name);
    seen?;
    mark.trace(&format!("{} times", node.proxy.done() - before));
    Ok(())
}

/// Adds a master, which gets some slots and serves them; then it gives them back and leaves.
pub(super) async fn add(scene: &Scene, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    mark.begin("a new master");
    let since_us = now_us();
    let node = scene.nodes.add().await?;
    let mut queues = scene.places().await?;
    rng.shuffle(&mut queues);
    let (mut moves, mut touched) = (Vec::new(), Vec::new());
    for (queue, slot) in queues.into_iter().take(SLOTS_OF_NEW) {
        touched.push(queue);
        let from = scene.nodes.owner(slot).await?;
        let (from, to) = (from.port, node.port);
        let slot = SlotMove { slot, from, to };
        slots::by_keys(&slot, rng).await?;
        moves.push(slot);
    }
    let served = async || -> Result<u64> {
        let stats = node.info("commandstats", "cmdstat_evalsha").await?;
        let calls = stats
            .split(',')
            .find_map(|word| word.strip_prefix("calls="));
        Ok(calls.map_or(Ok(0), str::parse)?)
    };
    let seen = target("call of a script", async || {
        let calls = served().await?;
        Ok((calls > 0).then_some(calls))
    });
    let seen = seen.await;
    last(rng, 500..2_500).await;
    for slot in moves {
        slots::by_keys(&slot.reversed(), rng).await?;
    }
    // Leaving is safe only after every server knows the new owner of its slots.
    tokio::time::sleep(Duration::from_millis(500)).await;
    scene.nodes.remove(&node).await?;
    scene.touched(touched, since_us);
    mark.end("a new master");
    mark.trace(&format!("it served {} calls of scripts", seen?));
    Ok(())
}
