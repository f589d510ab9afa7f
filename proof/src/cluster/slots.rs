//! Faults that move slots from one master to another while their queues are in use.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dueq_testkit::cluster::SlotMove;
use fastrand::Rng;

use super::Scene;
use super::nodes::Node;
use crate::faults::{Mark, last, target, until};
use crate::history::now_us;

/// How long an unfinished move lasts.
const HALFWAY: Duration = Duration::from_secs(5);
/// The interval between two moves of a storm; below, the number of moves.
const TURN: Duration = Duration::from_millis(200);
const TURNS: usize = 12;

/// A slot of a queue, and the two masters between which it moves.
struct Trip {
    queue: String,
    from: Arc<Node>,
    to: Arc<Node>,
    slot: u16,
    since_us: u64,
}

impl Trip {
    /// Chooses a queue and its new master, by the seed.
    async fn plan(scene: &Scene, rng: &mut Rng) -> Result<Self> {
        let (queue, slot) = rng.choice(scene.places().await?).context("no queues")?;
        let from = scene.nodes.owner(slot).await?;
        let mut others = scene.nodes.masters().await?;
        others.retain(|node| node.port != from.port);
        let to = Arc::clone(rng.choice(&others).context("one master")?);
        Ok(Self {
            queue,
            from,
            to,
            slot,
            since_us: now_us(),
        })
    }

    fn by_keys(&self) -> SlotMove {
        SlotMove {
            slot: self.slot,
            from: self.from.port,
            to: self.to.port,
        }
    }

    fn words(&self) -> String {
        let Self {
            queue,
            slot,
            from,
            to,
            ..
        } = self;
        format!("{queue}, slot {slot}, from {} to {}", from.name, to.name)
    }

    fn over(&self, scene: &Scene, mark: &Mark<'_>) {
        scene.touched(vec![self.queue.clone()], self.since_us);
        mark.end(&self.words());
    }

    /// The number of redirections by the former master so far. Each was sent to a client that asked
    /// the wrong master.
    async fn redirections(&self) -> Result<u64> {
        Ok(self.from.errors("MOVED").await? + self.from.errors("ASK").await?)
    }
}

/// Moves a slot key by key, with pauses between.
pub(super) async fn one(scene: &Scene, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    let trip = Trip::plan(scene, rng).await?;
    let before = trip.redirections().await?;
    mark.begin(&trip.words());
    by_keys(&trip.by_keys(), rng).await?;
    let seen = target("client that is redirected", async || {
        let now = trip.redirections().await?;
        Ok((now > before).then_some(now - before))
    });
    let seen = seen.await;
    trip.over(scene, mark);
    mark.trace(&format!("{} redirections", seen?));
    Ok(())
}

/// Moves a slot, one key after the other.
pub(super) async fn by_keys(slot: &SlotMove, rng: &mut Rng) -> Result<()> {
    slot.begin().await?;
    while slot.keys(1).await? > 0 {
        last(rng, 0..30).await;
    }
    slot.finish().await
}

/// Leaves a move unfinished for 5 s. If some keys were moved, finishes it, and half of the time
/// moves the slot back at once. If no key was moved, cancels it.
pub(super) async fn halfway(scene: &Scene, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    let trip = Trip::plan(scene, rng).await?;
    let (slot, keys, returns) = (trip.by_keys(), rng.usize(0..5), rng.bool());
    let before = halted(&trip).await?;
    mark.begin(&format!("{}, {keys} keys", trip.words()));
    slot.begin().await?;
    let moved = if keys > 0 { slot.keys(keys).await? } else { 0 };
    tokio::time::sleep(HALFWAY).await;
    let seen = halted(&trip).await? - before;
    if moved == 0 {
        slot.give_up().await?;
    } else {
        slot.finish().await?;
        if returns {
            by_keys(&slot.reversed(), rng).await?;
        }
    }
    trip.over(scene, mark);
    // A queue without traffic is parked after 5 s, and then no call uses its slot.
    ensure_seen(
        mark,
        seen,
        &format!("{moved} keys moved, {seen} calls had to wait"),
    )
}

/// The number of calls that a half-moved slot has refused so far.
async fn halted(trip: &Trip) -> Result<u64> {
    let Trip { from, to, .. } = trip;
    Ok(from.errors("TRYAGAIN").await? + to.errors("TRYAGAIN").await? + from.errors("ASK").await?)
}

fn ensure_seen(mark: &Mark<'_>, seen: u64, words: &str) -> Result<()> {
    if seen == 0 {
        return Err(crate::faults::NoTarget(words.to_owned()).into());
    }
    mark.trace(words);
    Ok(())
}

/// Moves a slot to and fro quickly, which makes a storm of redirections.
pub(super) async fn to_and_fro(scene: &Scene, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    let trip = Trip::plan(scene, rng).await?;
    let before = trip.redirections().await?;
    mark.begin(&trip.words());
    let mut slot = trip.by_keys();
    let mut turns = tokio::time::interval(TURN);
    for _ in 0..TURNS {
        turns.tick().await;
        slot.begin().await?;
        slot.finish().await?;
        slot = slot.reversed();
    }
    let seen = trip.redirections().await? - before;
    trip.over(scene, mark);
    ensure_seen(mark, seen, &format!("{TURNS} moves, {seen} redirections"))
}

/// Whether the servers can move a slot atomically.
pub(super) async fn moves_atomically(scene: &Scene) -> Result<bool> {
    let first = scene.nodes.all().into_iter().next().context("no servers")?;
    let help: Vec<String> = first.command(&["CLUSTER", "HELP"]).await?;
    Ok(help.iter().any(|line| line.starts_with("MIGRATESLOTS")))
}

/// Moves a slot atomically, as Valkey 9 can; sometimes cancels the move.
pub(super) async fn atomic(scene: &Scene, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    let trip = Trip::plan(scene, rng).await?;
    let (slot, cancels) = (trip.slot.to_string(), rng.u32(0..4) == 0);
    let to_id = dueq_testkit::cluster::id(trip.to.port).await?;
    mark.begin(&trip.words());
    let words = [
        "CLUSTER",
        "MIGRATESLOTS",
        "SLOTSRANGE",
        &slot,
        &slot,
        "NODE",
        &to_id,
    ];
    trip.from.command::<()>(&words).await?;
    if cancels {
        trip.from
            .command::<()>(&["CLUSTER", "CANCELSLOTMIGRATIONS"])
            .await?;
    }
    let state = until("the end of a migration", async || {
        let told: Vec<redis::Value> = trip.from.command(&["CLUSTER", "GETSLOTMIGRATIONS"]).await?;
        // The newest migration is first; older ones follow.
        let newest = format!("{:?}", told.first());
        let ends = ["success", "failed", "cancelled"].into_iter();
        let mut ended = ends.filter(|state| newest.contains(&format!("\"{state}\"")));
        Ok(ended.next())
    })
    .await?;
    let owner = scene.nodes.owner(trip.slot).await?;
    trip.over(scene, mark);
    // The servers may give up a migration, for example when their connection breaks. Then the slot
    // stays.
    let expected = if state == "success" {
        &trip.to
    } else {
        &trip.from
    };
    ensure!(
        owner.port == expected.port,
        "the migration of {} ended as {state}, and {} serves it",
        trip.words(),
        owner.name
    );
    mark.trace(&format!("it ended as {state}"));
    Ok(())
}
