//! Settlements by hand, and the words for their outcomes.

use std::time::Duration;

use dueq::{Delivery, Due, Queue, Retried, Settled, Snoozed, Throttled};

use super::worker::Notes;
use crate::history::Verb;
use crate::recorder::{Diary, outcome};
use crate::workload::{POISON, Push};

impl Notes {
    /// Settles by hand and records both ends of the call. Returns the outcome.
    pub(super) async fn settle(&self, delivery: &Delivery, verb: Verb) -> String {
        let op = self
            .diary
            .asked(self.queue.name(), verb, vec![delivery.id().into_owned()]);
        let told = match verb {
            Verb::Ack => outcome(delivery.ack().await, settled),
            Verb::Release => outcome(delivery.release().await, settled),
            Verb::Bury => outcome(delivery.bury("chaos").await, settled),
            Verb::Snooze => outcome(delivery.snooze(soon()).await, snoozed),
            Verb::Throttle => outcome(delivery.throttle(short()).await, throttled),
            Verb::Again => outcome(
                delivery
                    .again(Duration::from_millis(fastrand::u64(0..500)))
                    .await,
                settled,
            ),
            _ => outcome(
                delivery
                    .retry(Duration::from_millis(fastrand::u64(0..500)), "chaos")
                    .await,
                retried,
            ),
        };
        self.diary.told(op, vec![told.clone()]);
        told
    }
}

/// The delay of a snooze.
pub(super) fn soon() -> Duration {
    Duration::from_millis(fastrand::u64(0..500))
}

/// The length of a break.
pub(super) fn short() -> Duration {
    Duration::from_millis(fastrand::u64(1..120))
}

fn settled(settled: Settled) -> String {
    match settled {
        Settled::Done => "OK".to_owned(),
        Settled::Gone => "GONE".to_owned(),
        Settled::Lost => "LOST".to_owned(),
        other => format!("{other:?}"),
    }
}

fn retried(retried: Retried) -> String {
    match retried {
        Retried::Scheduled(due_ms) => format!("SCHEDULED {due_ms}"),
        Retried::Dead => "DEAD".to_owned(),
        Retried::Dropped => "DROPPED".to_owned(),
        Retried::Gone => "GONE".to_owned(),
        Retried::Lost => "LOST".to_owned(),
        other => format!("{other:?}"),
    }
}

fn snoozed(snoozed: Snoozed) -> String {
    match snoozed {
        Snoozed::Scheduled(due_ms) => format!("SCHEDULED {due_ms}"),
        Snoozed::Dead => "DEAD".to_owned(),
        Snoozed::Dropped => "DROPPED".to_owned(),
        Snoozed::Gone => "GONE".to_owned(),
        Snoozed::Lost => "LOST".to_owned(),
        other => format!("{other:?}"),
    }
}

fn throttled(throttled: Throttled) -> String {
    match throttled {
        Throttled::Until(until_ms) => format!("OK {until_ms}"),
        Throttled::Gone => "GONE".to_owned(),
        Throttled::Lost => "LOST".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Pushes a new message under the id of one that has just ended: it is no repetition, and must be
/// stored.
pub(super) async fn push_again(queue: &Queue, diary: &Diary, id: &str) {
    // A poison message kills six workers.
    if id.ends_with(POISON) {
        return;
    }
    let push = Push::again(id.to_owned(), Due::AfterMs(fastrand::u64(0..300)));
    let op = diary.asked(queue.name(), Verb::Push, vec![id.to_owned()]);
    let told = outcome(
        queue.push_message(push.message()).await,
        super::producer::word,
    );
    diary.told(op, vec![told]);
}
