//! One partition of a requeue or a purge in steps.

use std::sync::Arc;

use crate::error::Error;
use crate::model::outcomes::MessageState;
use crate::partition::Partition;
use crate::protocol::results::administer::Step;
use crate::protocol::verbs::Verb;
use crate::router::Partitions;
use crate::server::patience::{Repeat, patiently};

/// What a call in steps does to each message.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bulk {
    Requeue,
    Purge(MessageState),
}

impl Bulk {
    /// The state of the messages that the steps deal with.
    pub(super) fn state(self) -> MessageState {
        match self {
            Self::Requeue => MessageState::Dead,
            Self::Purge(state) => state,
        }
    }

    /// One call at one partition: at most `limit` messages whose time is at or before `until_ms`.
    /// `passed` is the value that the previous call returned; `from_ms` applies to dead messages
    /// only.
    pub(crate) async fn step(
        self,
        partition: &Partition,
        limit: usize,
        (from_ms, until_ms): (Option<u64>, Option<u64>),
        passed: u64,
    ) -> Result<Step, Error> {
        let (limit, until, passed) = (limit.to_string(), text_of(until_ms), passed.to_string());
        let (verb, mut args) = match self {
            Self::Requeue => (Verb::Requeue, vec!["oldest", &limit, &until]),
            Self::Purge(state) => (Verb::Purge, vec![state.as_str(), &limit, &until, &passed]),
        };
        let from = text_of(from_ms);
        args.extend(from_ms.map(|_| &*from));
        let args: Vec<_> = args.into_iter().map(str::as_bytes).collect();
        Step::decode(partition.call(verb, &args, Repeat::Unsafe).await?)
    }
}

/// The time as the scripts read it: at most 15 digits; empty without a time.
pub(super) fn text_of(until_ms: Option<u64>) -> String {
    let digits = until_ms.map(|ms| ms.min(999_999_999_999_999).to_string());
    digits.unwrap_or_default()
}

/// The progress of the steps in one partition.
pub(super) struct Part {
    pub(super) partition: Arc<Partition>,
    pub(super) until_ms: u64,
    pub(super) done: u64,
    /// How many messages matched after the last step, newer ones included; `None` before the first.
    pub(super) left: Option<u64>,
    /// How many messages were selected at the first step: a purge ends after this number.
    pub(super) selected: u64,
    pub(super) incarnation: String,
    /// How many timers of schedules the steps have skipped.
    pub(super) passed: u64,
    pub(super) has_ended: bool,
}

impl Part {
    /// Whether the partition still has the incarnation of its first step.
    pub(super) async fn is_same(&self) -> Result<bool, Error> {
        if self.incarnation.is_empty() {
            return Ok(true);
        }
        let names = ["incarnation", "layout"];
        let (lane, meta) = (self.partition.control(), self.partition.keys().meta());
        let read = patiently(|| lane.fields(meta, names)).await;
        let [incarnation, layout] = read.map_err(Error::of_read)?;
        Ok(layout.is_some() && incarnation.as_ref() == Some(&self.incarnation))
    }

    pub(super) fn took(&mut self, step: &Step, bulk: Bulk) {
        if self.left.is_none() {
            self.selected = step.done + step.left;
            self.incarnation.clone_from(&step.incarnation);
        }
        self.done += step.done;
        self.left = Some(step.left);
        self.passed = step.passed;
        self.has_ended = step.left == 0;
        match bulk {
            // The first call sees only messages that were dead before it.
            Bulk::Requeue => self.until_ms = self.until_ms.min(step.now_ms),
            // Producers may push messages without end, and timers of schedules stay, so the number
            // of the first step is the limit.
            Bulk::Purge(_) => self.has_ended |= step.found_none() || self.done >= self.selected,
        }
    }
}

pub(super) fn parts_of(partitions: &Partitions, until_ms: u64) -> Vec<Part> {
    let part = |partition| Part {
        partition: Arc::clone(partition),
        until_ms,
        done: 0,
        left: None,
        selected: 0,
        incarnation: String::new(),
        passed: 0,
        has_ended: false,
    };
    partitions.list().iter().map(part).collect()
}
