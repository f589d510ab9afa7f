//! Changes the number of partitions of a queue.

use std::sync::Arc;

use dueq::Queue;
use dueq::admin::RepartitionProgress;

use crate::wire::operations::{Progress, RepartitionState};
use crate::work::operations::operation::Operation;
use crate::work::operations::plan::Change;

/// Makes the change of this operation, and keeps its progress. The library repeats calls while Redis
/// is away.
pub(super) async fn repartition(
    queue: &Queue,
    operation: &Arc<Operation>,
) -> Result<(), dueq::Error> {
    let Some(Change {
        partitions,
        is_gentle,
    }) = operation.plan().change
    else {
        return Ok(());
    };
    let change = match partitions {
        Some(count) => queue.partition_into(count),
        None => queue.abort_repartition(),
    };
    let change = match is_gentle {
        true => change,
        false => change.without_rests(),
    };
    let observer = Arc::clone(operation);
    let observe = move |now: &RepartitionProgress| observer.update(|progress| show(progress, now));
    change.on_progress(observe).await
}

fn show(progress: &mut Progress, now: &RepartitionProgress) {
    progress.done = now.moved;
    progress.of = Some(now.moved + now.left);
    progress.repartition = Some(RepartitionState {
        phase: now.phase.name().to_owned(),
        per_second: now.per_second.round() as u64,
    });
}
