//! The structures that take part.

use anyhow::Result;

use super::load::{self, Sample, Size};
use super::memory::{self, Memory};
use super::structures::{
    Dueq, HashWheel, Kafka, LazyHeap, Netty, Nexus, Skynet, SlabWheel, SortedMap, TokioUtil,
};
use super::timers::{Payload, Timers};

/// A structure with one kind of value.
pub(super) struct Contestant {
    pub(super) name: &'static str,
    pub(super) label: &'static str,
    pub(super) note: &'static str,
    pub(super) measure: fn(Size, u64) -> Sample,
    pub(super) memory: fn(usize) -> Result<Memory>,
}

fn contestant<S: Timers<T>, T: Payload>() -> Contestant {
    Contestant {
        name: S::NAME,
        label: S::LABEL,
        note: S::NOTE,
        measure: load::measure::<S, T>,
        memory: memory::here::<S, T>,
    }
}

/// All of them, dueq first.
pub(super) fn all<T: Payload>() -> Vec<Contestant> {
    vec![
        contestant::<Dueq<T>, T>(),
        contestant::<TokioUtil<T>, T>(),
        contestant::<HashWheel<T>, T>(),
        contestant::<SlabWheel<T>, T>(),
        contestant::<Nexus<T>, T>(),
        contestant::<LazyHeap<T>, T>(),
        contestant::<SortedMap<T>, T>(),
        contestant::<Netty<T>, T>(),
        contestant::<Skynet<T>, T>(),
        contestant::<Kafka<T>, T>(),
    ]
}
