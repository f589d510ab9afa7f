//! Lists scheduled and ready messages, and cancels, reschedules, runs or requeues some of them.

use std::time::Duration;

use anyhow::Result;
use dueq::inspect::{MessageCursor, MessageEntry};
use dueq::outcomes::{CancelOutcome, RequeueOutcome, RescheduleOutcome, RunNowOutcome};
use dueq::{Due, MessageState, Queue};
use fastrand::Rng;
use tokio::task::JoinSet;

use super::{Options, Pace, Stop};
use crate::history::Verb;
use crate::recorder::{Diary, outcome};
use crate::workload::{POISON, hash};

const RATE: u32 = 200;
/// The size of a page of the ready list: the whole list, because its last entries wait longest.
const READY_PAGE: usize = 1_000;
const PAGE: usize = 100;
/// The number of messages on a page that are changed.
const LEAST: u64 = 5;
const MOST: usize = 40;
const PURGE_PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn run(
    options: &Options,
    queues: Vec<Queue>,
    diary: &Diary,
    mut stop: Stop,
) -> Result<()> {
    let of_queue = |queue: Queue| Canceller {
        rng: Rng::with_seed(
            options.seed ^ hash(options.name.as_bytes()) ^ hash(queue.name().as_bytes()),
        ),
        queue,
        diary: diary.clone(),
        scheduled: None,
    };
    // The queues take turns, one page at a time.
    let mut cancellers: Vec<_> = queues.into_iter().map(of_queue).collect();
    let mut pace = Pace::new(options.rate.unwrap_or(RATE));
    loop {
        cancellers.rotate_left(1);
        let canceller = &mut cancellers[0];
        if options.purge {
            canceller.purge().await;
        } else {
            canceller.look(&mut pace).await;
        }
        // Stops only between two pages, so that every operation has an outcome.
        tokio::select! {
            biased;
            () = super::stopped(&mut stop) => return Ok(()),
            () = tokio::time::sleep(if options.purge { PURGE_PAUSE } else { Duration::ZERO }) => {}
        }
    }
}

struct Canceller {
    queue: Queue,
    diary: Diary,
    rng: Rng,
    /// The cursor in the scheduled set.
    scheduled: Option<MessageCursor>,
}

impl Canceller {
    async fn look(&mut self, pace: &mut Pace) {
        let owed = usize::try_from(pace.owed(LEAST).await).unwrap_or(1);
        let state = match self.rng.u32(0..20) {
            0..9 => MessageState::Ready,
            9..17 => MessageState::Scheduled,
            17 | 18 => MessageState::Dead,
            _ => MessageState::Leased,
        };
        let cursor = if state == MessageState::Scheduled {
            self.scheduled.take()
        } else {
            None
        };
        let limit = if state == MessageState::Ready {
            READY_PAGE
        } else {
            PAGE
        };
        let page = match self.queue.list(state, cursor.as_ref(), limit).await {
            Ok(page) => page,
            Err(error) => return tracing::warn!(%error, "looking failed"),
        };
        if state == MessageState::Scheduled {
            self.scheduled = page.next;
        }
        let mut found = page.messages;
        if state == MessageState::Ready {
            // The first messages are claimed while this process chooses; the last ones wait
            // longest.
            found.drain(..found.len() / 2);
        }
        self.rng.shuffle(&mut found);
        found.truncate(owed.min(MOST));
        // An empty page counts too, because listing costs the server more than changing.
        pace.did(LEAST.max(u64::try_from(found.len()).unwrap_or(LEAST)));
        let mut changes = JoinSet::new();
        for message in found {
            changes.spawn(self.change(state, message));
        }
        if self.rng.u32(0..20) == 0 {
            let absent = format!("absent-{}", self.rng.u32(..));
            changes.spawn(change(
                self.queue.clone(),
                self.diary.clone(),
                absent,
                Change::Cancel,
            ));
        }
        while changes.join_next().await.is_some() {}
    }

    fn change(
        &mut self,
        state: MessageState,
        message: MessageEntry,
    ) -> impl Future<Output = ()> + use<> {
        let id = String::from_utf8_lossy(&message.id).into_owned();
        let due = self.due();
        let chosen = match (state, self.rng.u32(0..10)) {
            // A requeued poison message would kill six more workers.
            (MessageState::Dead, 0..7) if !id.ends_with(POISON) => Change::Requeue,
            (MessageState::Dead, _) => Change::CancelDead,
            (MessageState::Leased, 9) => Change::Requeue,
            (_, 0..4) => Change::Cancel,
            (_, 4 | 5) => Change::Reschedule(due),
            (_, 6 | 7) => Change::RescheduleIf(due, message.time_ms),
            (_, 8) => Change::RescheduleIf(due, message.time_ms + 1),
            _ => Change::RunNow,
        };
        change(self.queue.clone(), self.diary.clone(), id, chosen)
    }

    /// A due time: mostly soon, so that the message is delivered during the run.
    fn due(&mut self) -> Due {
        match self.rng.u32(0..8) {
            0..3 => Due::AfterMs(self.rng.u64(0..200)),
            3..6 => Due::AfterMs(self.rng.u64(200..4_000)),
            6 => Due::AtMs(self.diary.server_now_ms() + self.rng.u64(0..4_000)),
            _ => Due::AfterMs(self.rng.u64(60_000..300_000)),
        }
    }

    async fn purge(&mut self) {
        let state = *self
            .rng
            .choice(&[
                MessageState::Scheduled,
                MessageState::Ready,
                MessageState::Dead,
            ])
            .unwrap_or(&MessageState::Scheduled);
        if let Err(error) = self.queue.purge(state).await {
            tracing::warn!(%error, "purging failed");
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Cancel,
    CancelDead,
    Reschedule(Due),
    RescheduleIf(Due, u64),
    RunNow,
    Requeue,
}

async fn change(queue: Queue, diary: Diary, id: String, change: Change) {
    let verb = match change {
        Change::Cancel | Change::CancelDead => Verb::Cancel,
        Change::Reschedule(_) | Change::RescheduleIf(..) => Verb::Reschedule,
        Change::RunNow => Verb::RunNow,
        Change::Requeue => Verb::Requeue,
    };
    let op = diary.asked(queue.name(), verb, vec![id.clone()]);
    let told = match change {
        Change::Cancel => outcome(queue.cancel(&id).await, cancelled),
        Change::CancelDead => outcome(queue.cancel_dead(&id).await, cancelled),
        Change::Reschedule(due) => outcome(queue.reschedule(&id, due).await, rescheduled),
        Change::RescheduleIf(due, expected_ms) => outcome(
            queue.reschedule_if(&id, due, expected_ms).await,
            rescheduled,
        ),
        Change::RunNow => outcome(queue.run_now(&id).await, run_now),
        Change::Requeue => outcome(queue.requeue(&id).await, requeued),
    };
    let pushed_again = told == "CANCELLED" && fastrand::u32(0..3) == 0;
    diary.told(op, vec![told]);
    if pushed_again {
        super::settling::push_again(&queue, &diary, &id).await;
    }
}

pub(super) fn cancelled(cancelled: CancelOutcome) -> String {
    match cancelled {
        CancelOutcome::Cancelled => "CANCELLED".to_owned(),
        CancelOutcome::Leased => "LEASED".to_owned(),
        CancelOutcome::Dead => "DEAD".to_owned(),
        CancelOutcome::Absent => "ABSENT".to_owned(),
        other => format!("{other:?}"),
    }
}

fn rescheduled(rescheduled: RescheduleOutcome) -> String {
    match rescheduled {
        RescheduleOutcome::Moved(due_ms) => format!("MOVED {due_ms}"),
        RescheduleOutcome::Conflict(due_ms) => format!("CONFLICT {due_ms}"),
        RescheduleOutcome::Leased => "LEASED".to_owned(),
        RescheduleOutcome::Dead => "DEAD".to_owned(),
        RescheduleOutcome::Absent => "ABSENT".to_owned(),
        other => format!("{other:?}"),
    }
}

fn run_now(run_now: RunNowOutcome) -> String {
    match run_now {
        RunNowOutcome::Moved => "MOVED".to_owned(),
        RunNowOutcome::Already => "ALREADY".to_owned(),
        RunNowOutcome::Leased => "LEASED".to_owned(),
        RunNowOutcome::Dead => "DEAD".to_owned(),
        RunNowOutcome::Absent => "ABSENT".to_owned(),
        other => format!("{other:?}"),
    }
}

fn requeued(requeued: RequeueOutcome) -> String {
    match requeued {
        RequeueOutcome::Requeued => "REQUEUED".to_owned(),
        RequeueOutcome::NotDead(state) => format!("NOT_DEAD {state}"),
        RequeueOutcome::Absent => "ABSENT".to_owned(),
        other => format!("{other:?}"),
    }
}
