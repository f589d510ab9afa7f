//! The faults of a cluster, each with evidence that it had an effect.

use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;

use super::{Scene, masters, movers, outages, slots};
use crate::faults::{LIMIT, Mark, marked, processes};
use crate::history::Role;

/// All faults, with the names of the report and of `--cluster-faults`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Kind {
    SlotMove,
    SlotHalfway,
    SlotToAndFro,
    SlotAtomic,
    MasterKill,
    MasterFreeze,
    MasterCut,
    MasterStop,
    MasterAdd,
    AnswersDropped,
    RightsTaken,
    HomeEmptied,
    ProducerKill,
    WorkerKill,
    CancellerKill,
    MoverKill,
    MoverStop,
}

/// A lane: its faults follow one another, and the lanes run concurrently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    Cluster,
    Processes,
}

impl Kind {
    pub fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self)
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default()
    }

    pub(super) fn lane(self) -> Lane {
        match self {
            Self::ProducerKill
            | Self::WorkerKill
            | Self::CancellerKill
            | Self::MoverKill
            | Self::MoverStop => Lane::Processes,
            _ => Lane::Cluster,
        }
    }

    /// About how long the fault takes on an idle machine.
    pub(super) fn takes(self) -> Duration {
        Duration::from_secs(match self {
            Self::MasterKill
            | Self::MasterFreeze
            | Self::MasterStop
            | Self::SlotHalfway
            | Self::MasterAdd
            | Self::AnswersDropped
            | Self::MoverKill
            | Self::MoverStop => 8,
            _ => 4,
        })
    }
}

/// The requested faults that these servers support.
pub(super) async fn possible(scene: &Scene) -> Result<Vec<Kind>> {
    if scene.options.no_faults {
        return Ok(Vec::new());
    }
    let all: &[Kind] = clap::ValueEnum::value_variants();
    let mut kinds = scene
        .options
        .cluster_faults
        .clone()
        .unwrap_or_else(|| all.to_vec());
    if !slots::moves_atomically(scene).await? {
        kinds.retain(|kind| *kind != Kind::SlotAtomic);
    }
    Ok(kinds)
}

/// Injects the fault. No fault excludes another on a cluster.
pub(super) async fn inject(kind: Kind, scene: &Scene, rng: &mut Rng) -> bool {
    let limit = kind.takes() + 6 * LIMIT;
    marked(&scene.log, kind.name(), limit, async |mark| {
        perform(kind, scene, rng, mark).await
    })
    .await;
    true
}

async fn perform(kind: Kind, scene: &Scene, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    match kind {
        Kind::SlotMove => slots::one(scene, rng, mark).await,
        Kind::SlotHalfway => slots::halfway(scene, rng, mark).await,
        Kind::SlotToAndFro => slots::to_and_fro(scene, rng, mark).await,
        Kind::SlotAtomic => slots::atomic(scene, rng, mark).await,
        Kind::MasterKill => masters::kill(scene, rng, mark).await,
        Kind::MasterFreeze => masters::freeze(scene, rng, mark).await,
        Kind::MasterCut => masters::cut(scene, rng, mark).await,
        Kind::MasterStop => outages::stop(scene, rng, mark).await,
        Kind::AnswersDropped => outages::drop_answers(scene, rng, mark).await,
        Kind::RightsTaken => outages::take_rights(scene, rng, mark).await,
        Kind::HomeEmptied => outages::empty_home(scene, mark).await,
        Kind::MasterAdd => masters::add(scene, rng, mark).await,
        Kind::ProducerKill => processes::kill(Role::Producer, &scene.crew, rng, mark).await,
        Kind::WorkerKill => processes::kill(Role::Worker, &scene.crew, rng, mark).await,
        Kind::CancellerKill => processes::kill(Role::Canceller, &scene.crew, rng, mark).await,
        Kind::MoverKill => movers::kill(scene, rng, mark).await,
        Kind::MoverStop => movers::stop(scene, rng, mark).await,
    }
}
