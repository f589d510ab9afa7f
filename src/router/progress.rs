//! How fast messages move between partitions, and how far a move is.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::model::repartition::{RepartitionPhase, RepartitionProgress};
use crate::protocol::partition_map::Tag;

/// How fast messages move.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Each partition rests for three times as long as a step took.
    #[default]
    Gentle,
    /// Without rests.
    Open,
}

impl Pace {
    /// The most names of one batch. A batch of 256 keeps a server busy for 1.5 ms, and delays all
    /// other calls by that.
    pub(super) fn batch(self) -> usize {
        match self {
            Self::Gentle => 64,
            Self::Open => 256,
        }
    }

    /// Rests after a step that took so long.
    pub(super) async fn pause(self, took: Duration) {
        if self == Self::Gentle {
            tokio::time::sleep(3 * took).await;
        }
    }
}

/// What the sources of a change have moved.
pub(super) struct MoveCounts {
    began: Instant,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    moved: u64,
    /// How many messages each source still has for others: an estimate until its first pass.
    left: BTreeMap<Tag, u64>,
}

impl MoveCounts {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            counts: Mutex::default(),
        }
    }

    pub(super) fn moved(&self, from: Tag, messages: u64) {
        let mut counts = self.lock();
        counts.moved += messages;
        if let Some(left) = counts.left.get_mut(&from) {
            *left = left.saturating_sub(messages);
        }
    }

    pub(super) fn set_left(&self, from: Tag, messages: u64) {
        self.lock().left.insert(from, messages);
    }

    pub(super) fn at(&self, phase: RepartitionPhase) -> RepartitionProgress {
        let counts = self.lock();
        let seconds = self.began.elapsed().as_secs_f64().max(0.001);
        RepartitionProgress {
            phase,
            moved: counts.moved,
            left: counts.left.values().sum(),
            per_second: counts.moved as f64 / seconds,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
