//! What a worker gives its queues.

use dueq::Share;

use super::Options;
use crate::history::{self, Event};
use crate::queues::Planned;

/// Fewer in the queue with the most traffic. None in the queue with a reserve: others get it while
/// the queue is closed, and the checker could not judge it.
pub(super) fn throttles(planned: &Planned) -> u64 {
    match planned {
        Planned { reserve: 1.., .. } => 0,
        Planned { traffic: 40.., .. } => 4,
        _ => 40,
    }
}

pub(super) fn share(planned: &Planned) -> Share {
    let share = Share::weight(planned.weight).reserve(planned.reserve);
    match planned.max {
        Some(max) => share.max(max),
        None => share,
    }
}

/// What the checker must know to judge the handlers of this process.
pub(super) fn serves(options: &Options, planned: &[Planned]) -> Event {
    let concurrency = options.concurrency;
    let handlers = |number| u32::try_from(number).unwrap_or(u32::MAX);
    let queues = planned.iter().map(|planned| history::Share {
        queue: planned.name.to_owned(),
        weight: planned.weight,
        reserve: handlers(planned.reserve),
        max: handlers(planned.max.unwrap_or(concurrency)),
    });
    Event::Serves {
        concurrency: handlers(concurrency),
        lease_ms: options.lease_ms,
        queues: queues.collect(),
    }
}
