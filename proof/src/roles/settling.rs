//! Settlements by hand, and the words that stand for their outcomes.

use std::time::Duration;

use dueq::outcomes::{RetryOutcome, SettleOutcome, SnoozeOutcome, ThrottleOutcome};
use dueq::{Delivery, Due, Queue};

use super::worker::Notes;
use crate::history::Verb;
use crate::recorder::{Diary, outcome};
use crate::workload::{POISON, Push};

impl Notes {
    /// Settles by hand, and records the call and its outcome. Returns the outcome.
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

/// A random delay for a snooze.
pub(super) fn soon() -> Duration {
    Duration::from_millis(fastrand::u64(0..500))
}

/// A random length for a throttle.
pub(super) fn short() -> Duration {
    Duration::from_millis(fastrand::u64(1..120))
}

fn settled(settled: SettleOutcome) -> String {
    match settled {
        SettleOutcome::Done => "OK".to_owned(),
        SettleOutcome::Gone => "GONE".to_owned(),
        SettleOutcome::Lost => "LOST".to_owned(),
        other => format!("{other:?}"),
    }
}

fn retried(retried: RetryOutcome) -> String {
    match retried {
        RetryOutcome::Scheduled(due_ms) => format!("SCHEDULED {due_ms}"),
        RetryOutcome::Dead => "DEAD".to_owned(),
        RetryOutcome::Dropped => "DROPPED".to_owned(),
        RetryOutcome::Gone => "GONE".to_owned(),
        RetryOutcome::Lost => "LOST".to_owned(),
        other => format!("{other:?}"),
    }
}

fn snoozed(snoozed: SnoozeOutcome) -> String {
    match snoozed {
        SnoozeOutcome::Scheduled(due_ms) => format!("SCHEDULED {due_ms}"),
        SnoozeOutcome::Dead => "DEAD".to_owned(),
        SnoozeOutcome::Dropped => "DROPPED".to_owned(),
        SnoozeOutcome::Gone => "GONE".to_owned(),
        SnoozeOutcome::Lost => "LOST".to_owned(),
        other => format!("{other:?}"),
    }
}

fn throttled(throttled: ThrottleOutcome) -> String {
    match throttled {
        ThrottleOutcome::Until(until_ms) => format!("OK {until_ms}"),
        ThrottleOutcome::Gone => "GONE".to_owned(),
        ThrottleOutcome::Lost => "LOST".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Pushes a new message with the id of one that has just ended: this is no repetition, so it must
/// be stored.
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
