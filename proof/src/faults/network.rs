//! Faults of the connections of one process, or of all.

use anyhow::{Context, Result};
use fastrand::Rng;

use super::{Kind, Mark, last, target};
use crate::history::Role;
use crate::kit::proxy::{Direction, Mode, Proxy};
use crate::run::stage::Stage;

pub(super) async fn disturb(
    kind: Kind,
    stage: &Stage,
    rng: &mut Rng,
    mark: &Mark<'_>,
) -> Result<()> {
    // A consumer has no connection to Redis, so it is left out.
    let places = stage
        .crew
        .iter()
        .filter(|place| place.role != Role::Consumer);
    let proxies = places.flat_map(|place| {
        let front = place.front.as_ref().map(|front| (place, front, true));
        [Some((place, &place.proxy, false)), front]
    });
    let proxies: Vec<_> = proxies.flatten().collect();
    let (place, proxy, is_front) = *rng.choice(&proxies).context("no processes")?;
    let name = match is_front {
        true => format!("{} over HTTP", place.name),
        false => place.name.clone(),
    };
    let direction = if rng.bool() {
        Direction::Requests
    } else {
        Direction::Replies
    };
    let mode = match kind {
        Kind::NetDelay => {
            let least = rng.u64(0..50);
            Mode::Delay(least..least + rng.u64(1..200))
        }
        Kind::NetCut => Mode::Cut(direction, rng.u64(1..20_000)),
        Kind::NetDrop => Mode::Drop(direction),
        _ => Mode::HalfOpen,
    };
    let before = proxy.done();
    mark.begin(&format!("{name}: {mode:?}"));
    stage.disturb(place, is_front, Some(mode));
    let seen = async {
        let done = target("traffic to disturb", async || {
            let now = proxy.done();
            Ok((now > before).then_some(now - before))
        });
        done.await?;
        last(rng, 1_000..4_500).await;
        anyhow::Ok(())
    };
    let seen = seen.await;
    stage.disturb(place, is_front, None);
    if seen.is_ok() {
        mark.trace(&format!("{} times", proxy.done() - before));
    }
    mark.end(&name);
    seen
}

/// The time for which a server's answers are dropped, in ms.
pub(crate) const DROPPED_MS: std::ops::Range<u64> = 1_000..6_000;

/// Makes the server receive the calls of all processes, while no process gets an answer. The
/// connections stay open; one that lacked an answer stays silent afterwards.
pub(super) async fn drop_answers(stage: &Stage, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    let proxies = || stage.crew.iter().map(|place| &place.proxy);
    let done = || proxies().map(Proxy::done).sum::<u64>();
    let before = done();
    mark.begin("");
    stage.drop_answers(true);
    last(rng, DROPPED_MS).await;
    let dropped = done() - before;
    stage.drop_answers(false);
    if dropped > 0 {
        mark.trace(&format!("{dropped} pieces dropped"));
    }
    mark.end("");
    Ok(())
}
