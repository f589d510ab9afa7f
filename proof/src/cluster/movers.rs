//! Faults of movers, at the worst moment: a batch has left its partition, and has not arrived.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use rustix::process::Signal;

use super::Scene;
use crate::faults::processes::{chosen, froze};
use crate::faults::{Mark, last, process_state, target, until};
use crate::history::Role;
use crate::kit::place::Place;

/// How long a mover is frozen: it may miss a whole change.
const FROZEN_MS: std::ops::Range<u64> = 2_000..16_000;

/// Freezes a mover as soon as it has taken a batch out of a partition; or at any moment, if it
/// takes none for long. Returns the mover, its number, and what it was doing.
async fn frozen(scene: &Scene, rng: &mut Rng) -> Result<(Arc<Place>, u32, &'static str)> {
    let mover = until("a mover that stops", async || {
        let place = chosen(&scene.crew, rng, Role::Mover)?;
        place.until("its start", |status| status.ready).await?;
        let pid = place.status().pid.context("a process that is ready runs")?;
        // It then freezes itself.
        let life = place.signal(Signal::USR2)?;
        let frozen = target("batch of a mover", async || {
            Ok((process_state(pid)? == 'T').then_some(()))
        });
        let when = match frozen.await {
            Ok(()) => "with a batch on its way",
            Err(_) if froze(&place).await?.is_some() => "without a batch",
            Err(_) => return Ok(None),
        };
        Ok(Some((place, life, when)))
    });
    mover.await
}

/// Kills a mover by SIGKILL; the other one, or the next process, ends its batch.
pub(super) async fn kill(scene: &Scene, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    let (place, life, when) = frozen(scene, rng).await?;
    let process = place.process(life);
    mark.begin(&process);
    place.signal_kill()?;
    let end = place.ended(life).await?;
    ensure!(
        end.starts_with("signal:"),
        "{process} ended otherwise: {end}"
    );
    mark.trace(&format!("{process} died {when}"));
    mark.end(&process);
    Ok(())
}

/// Freezes a mover. When it goes on, its batch may have arrived or come back, the map may be
/// another one, and its partitions gone.
pub(super) async fn stop(scene: &Scene, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    let (place, life, when) = frozen(scene, rng).await?;
    let process = place.process(life);
    mark.begin(&process);
    last(rng, FROZEN_MS).await;
    place.signal(Signal::CONT)?;
    ensure!(place.status().life == life, "did not stay stopped");
    mark.trace(&format!("{process} went on {when}"));
    mark.end(&process);
    Ok(())
}
