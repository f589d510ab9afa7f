//! Faults of masters that keep their slots but do not serve for a while, or lose their keys.

use std::time::Duration;

use anyhow::{Result, ensure};
use fastrand::Rng;
use rustix::process::Signal;

use super::Scene;
use super::masters::chosen;
use super::nodes::Node;
use crate::faults::network::DROPPED_MS;
use crate::faults::{Mark, NoTarget, last, process_state, rights, until};
use crate::history::{Event, now_us};
use crate::kit::proxy::{Direction, Mode};
use crate::queues::PARTITIONED;

/// The usual node timeout in ms; below, one that is longer than a freeze.
const USUAL_TIMEOUT: &str = "2000";
const LONG_TIMEOUT: &str = "15000";
const FROZEN_MS: std::ops::Range<u64> = 1_000..6_000;

/// Freezes a master for less than the node timeout, so that no replica is promoted.
pub(super) async fn stop(scene: &Scene, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    let node = chosen(scene, rng).await?;
    let (queues, since_us) = (scene.queues_of(&node).await?, now_us());
    set_timeout(scene, LONG_TIMEOUT).await?;
    mark.begin(&node.name);
    let pid = node.pid()?;
    node.signal(Signal::STOP)?;
    let seen = async {
        until("a stopped server", async || {
            Ok((process_state(pid)? == 'T').then_some(()))
        })
        .await?;
        let ping = node.command::<String>(&["PING"]);
        let ping = tokio::time::timeout(Duration::from_millis(300), ping).await;
        ensure!(ping.is_err(), "a stopped server answered");
        last(rng, FROZEN_MS).await;
        anyhow::Ok(())
    };
    let seen = seen.await;
    node.signal(Signal::CONT)?;
    heard(scene, &node).await?;
    set_timeout(scene, USUAL_TIMEOUT).await?;
    scene.touched(queues, since_us);
    mark.end(&node.name);
    seen?;
    ensure!(node.is_master().await?, "{} was replaced", node.name);
    mark.trace("it did not answer, and is the master");
    Ok(())
}

async fn set_timeout(scene: &Scene, ms: &str) -> Result<()> {
    for node in scene.nodes.all() {
        let words = ["CONFIG", "SET", "cluster-node-timeout", ms];
        node.command::<()>(&words).await?;
    }
    Ok(())
}

/// Waits until no other server waits for an answer of this one.
async fn heard(scene: &Scene, node: &Node) -> Result<()> {
    let id = dueq_testkit::cluster::id(node.port).await?;
    for other in scene.nodes.all() {
        if other.port == node.port {
            continue;
        }
        until("an answer on the bus", async || {
            let nodes: String = other.command(&["CLUSTER", "NODES"]).await?;
            let line = nodes.lines().find(|line| line.starts_with(&*id));
            let ping_sent = line.and_then(|line| line.split(' ').nth(4));
            Ok((ping_sent == Some("0")).then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// Makes a master receive all calls, while no client or replica gets an answer.
pub(super) async fn drop_answers(scene: &Scene, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    let node = chosen(scene, rng).await?;
    let (queues, since_us) = (scene.queues_of(&node).await?, now_us());
    let before = node.proxy.done();
    mark.begin(&node.name);
    node.proxy.set(Mode::Drop(Direction::Replies));
    last(rng, DROPPED_MS).await;
    let dropped = node.proxy.done() - before;
    node.proxy.set(Mode::Pass);
    scene.touched(queues, since_us);
    mark.end(&node.name);
    if dropped > 0 {
        mark.trace(&format!("{dropped} pieces dropped"));
    }
    Ok(())
}

/// Takes the rights of the processes' user away on one master.
pub(super) async fn take_rights(scene: &Scene, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    let node = chosen(scene, rng).await?;
    let (queues, since_us) = (scene.queues_of(&node).await?, now_us());
    mark.begin(&node.name);
    let taken = rights::take(node.port, rng).await;
    scene.touched(queues, since_us);
    mark.end(&node.name);
    taken?.trace(mark);
    Ok(())
}

/// Empties the master that has the home of the partitioned queue, while other masters keep
/// partitions of it.
pub(super) async fn empty_home(scene: &Scene, mark: &Mark<'_>) -> Result<()> {
    let (home, map) = scene.map().await?;
    let (queues, since_us) = (scene.queues_of(&home).await?, now_us());
    let is_elsewhere =
        |name: &str| name.starts_with(PARTITIONED) && !queues.iter().any(|here| here == name);
    let kept = scene.places().await?;
    let kept = kept.iter().filter(|(name, _)| is_elsewhere(name)).count();
    let Some(map) = map.filter(|_| kept > 0) else {
        return Err(NoTarget("partition on another master".to_owned()).into());
    };
    mark.begin(&format!("{} with {} queues", home.name, queues.len()));
    for (queue, incarnation) in queues.iter().zip(emptied(&home, &queues).await?) {
        if !incarnation.is_empty() {
            scene.log.write(&Event::Emptied {
                queue: queue.clone(),
                incarnation,
            });
        }
    }
    let epoch: u64 = map.split('|').next().unwrap_or_default().parse()?;
    let meta = format!("dueq:{{{PARTITIONED}}}:meta");
    let back = until("the map at its home, or a newer one", async || {
        let now: Option<u64> = home.command(&["HGET", &meta, "epoch"]).await?;
        Ok(now.filter(|now| *now >= epoch))
    });
    let back = back.await;
    scene.touched(queues, since_us);
    mark.end(&home.name);
    back?;
    mark.trace(&format!("the map is back, {kept} partitions were kept"));
    Ok(())
}

/// Empties a master. Returns the incarnation that each queue had; empty if it did not exist.
async fn emptied(node: &Node, queues: &[String]) -> Result<Vec<String>> {
    // A script reads and empties in one step: a queue that is created between the two would be lost
    // unnoticed. A transaction may not name several slots; a script may, if it does not declare the
    // keys.
    const SCRIPT: &str = "local found = {} \
        for i, key in ipairs(ARGV) do found[i] = redis.call('HGET', key, 'incarnation') or '' end \
        redis.call('FLUSHALL') return found";
    let metas = queues.iter().map(|queue| format!("dueq:{{{queue}}}:meta"));
    let metas: Vec<_> = metas.collect();
    let words = ["EVAL", SCRIPT, "0"].into_iter();
    let words: Vec<_> = words.chain(metas.iter().map(String::as_str)).collect();
    node.command(&words).await
}
