//! Faults of the connections of one process.

use std::sync::Arc;

use anyhow::{Context, Result};
use fastrand::Rng;

use super::{Kind, Mark, last, target};
use crate::proxy::{Direction, Mode};
use crate::run::stage::Stage;

pub(super) async fn disturb(
    kind: Kind,
    stage: &Stage,
    rng: &mut Rng,
    mark: &Mark<'_>,
) -> Result<()> {
    let place = rng
        .choice(&stage.crew)
        .map(Arc::clone)
        .context("no processes")?;
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
    let before = place.proxy.done();
    mark.begin(&format!("{}: {mode:?}", place.name));
    stage.disturb(&place, Some(mode));
    let seen = async {
        let done = target("traffic to disturb", async || {
            let now = place.proxy.done();
            Ok((now > before).then_some(now - before))
        });
        done.await?;
        last(rng, 1_000..4_500).await;
        anyhow::Ok(())
    };
    let seen = seen.await;
    stage.disturb(&place, None);
    if seen.is_ok() {
        mark.trace(&format!("{} times", place.proxy.done() - before));
    }
    mark.end(&place.name);
    seen
}
