//! Messages that a command selects by its filter, one call for each.

use std::ops::RangeInclusive;

use clap::Args;
use dueq::outcomes::{CancelOutcome, RequeueOutcome};
use dueq::{MessageState, Queue};
use dueq_input::Filter;
use tokio::task::JoinSet;

/// The most messages of one read, whose calls run at once.
const STEP: usize = 100;

#[derive(Args)]
pub(crate) struct FilterFlags {
    /// Only messages with this text in their error, in any case
    #[arg(long, value_name = "TEXT")]
    error_text: Option<String>,
    /// Only messages with at least so many failures
    #[arg(long, value_name = "N")]
    min_failures: Option<u32>,
    /// Only messages with at least so many crashes
    #[arg(long, value_name = "N")]
    min_crashes: Option<u32>,
}

impl FilterFlags {
    pub(crate) fn read(self) -> Filter {
        Filter {
            error_text: self.error_text,
            min_failures: self.min_failures,
            min_crashes: self.min_crashes,
        }
    }
}

/// What is done to the messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Count,
    Requeue,
    Remove,
}

/// Changes the messages of a state whose time is within these, or only counts them. Returns their
/// number.
pub(crate) async fn each(
    queue: &Queue,
    state: MessageState,
    times: RangeInclusive<u64>,
    filter: &Filter,
    change: Change,
) -> Result<u64, dueq::Error> {
    let own = filter.clone();
    let mut picks = queue.picks(state, times, move |message| {
        own.has(message.failures, message.crashes, &message.error)
    });
    let mut count = 0;
    while let Some(messages) = picks.read(STEP).await? {
        if change == Change::Count {
            count += messages.len() as u64;
            continue;
        }
        let mut calls = JoinSet::new();
        for message in messages {
            let queue = queue.clone();
            calls.spawn(async move { make(&queue, state, &message.id, change).await });
        }
        for made in calls.join_all().await {
            count += u64::from(made?);
        }
    }
    Ok(count)
}

/// False if another call was faster.
async fn make(
    queue: &Queue,
    state: MessageState,
    id: &[u8],
    change: Change,
) -> Result<bool, dueq::Error> {
    Ok(match (change, state) {
        (Change::Requeue, _) => queue.requeue(id).await? == RequeueOutcome::Requeued,
        (_, MessageState::Dead) => queue.cancel_dead(id).await? == CancelOutcome::Cancelled,
        _ => queue.cancel(id).await? == CancelOutcome::Cancelled,
    })
}
