//! The canary of a requeue: the first messages are requeued alone, and the others follow if none of
//! the first dies again.

use std::time::{Duration, Instant};

use dueq::{Applied, Error, MessageState, Queue, StoredMessage};

use crate::edge::shown::shown;
use crate::wire::operations::CanaryProgress;
use crate::work::operations::steps::Steps;

/// The shortest and the longest pause between two looks at the canary's messages.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The reason if no message of the canary was requeued.
const NONE: &str = "no message of the canary was requeued: another call changed them, or the call did not reach Redis";

/// The requeued messages of a canary, which are watched.
pub(super) struct Watched {
    queue: Queue,
    before_ms: u64,
    /// The messages whose fate is not known yet.
    waiting: Vec<Vec<u8>>,
    settled: u64,
    died: u64,
    /// The number of waiting messages that have failed again.
    failed: u64,
    /// The error of the last message that died again.
    error: String,
    deadline: Instant,
    pause: Duration,
}

/// The result of a look at the canary's messages.
pub(super) enum Verdict {
    /// No decision yet: look again after this pause.
    Wait(Duration),
    GoOn,
    /// Stop the requeue, for this reason.
    Stop(String),
}

/// The fate of one message of a canary.
enum Fate {
    Waits,
    Failed,
    Settled,
    Died(String),
    /// Another call changed the message first, so the canary did not requeue it.
    NotRequeued,
}

/// Requeues the messages of the canary.
pub(super) struct Release {
    messages: usize,
    /// The most messages that steps with a lost reply may have requeued. They count as requeued, so
    /// that never more than the canary's number are.
    lost: usize,
    ids: Vec<Vec<u8>>,
}

impl Release {
    pub(super) fn new(messages: usize) -> Self {
        Self {
            messages,
            lost: 0,
            ids: Vec::new(),
        }
    }

    /// Requeues further messages of the canary. Returns whether all are requeued. May be called
    /// again after an error: the messages of a step with a lost reply are watched too.
    pub(super) async fn step(&mut self, steps: &mut Steps) -> Result<bool, Error> {
        let left = self.left(steps);
        if left == 0 {
            return Ok(true);
        }
        let next = steps.peek(left).await?;
        self.ids.extend(next);
        match steps.step(left).await {
            Ok(stepped) => Ok(self.left(steps) == 0 || stepped.end.is_some()),
            Err(error) => {
                if error.was_applied() == Applied::Unknown {
                    self.lost += steps.lost(left);
                }
                Err(error)
            }
        }
    }

    /// The number of messages that may still be requeued. A step may count some messages and then
    /// fail.
    fn left(&self, steps: &Steps) -> usize {
        let done = usize::try_from(steps.done()).unwrap_or(usize::MAX);
        self.messages.saturating_sub(done.saturating_add(self.lost))
    }

    /// The number of messages that may have been requeued, but are not counted.
    pub(super) fn lost(&self) -> usize {
        self.lost
    }

    pub(super) fn watched(mut self, queue: &Queue, before_ms: u64, wait_ms: u64) -> Watched {
        self.ids.sort_unstable();
        self.ids.dedup();
        Watched {
            queue: queue.clone(),
            before_ms,
            waiting: self.ids,
            settled: 0,
            died: 0,
            failed: 0,
            error: String::new(),
            deadline: Instant::now() + Duration::from_millis(wait_ms),
            pause: FIRST_PAUSE,
        }
    }
}

impl Watched {
    /// Looks at the messages whose fate is unknown. May be called again after an error.
    pub(super) async fn look(&mut self) -> Result<Verdict, Error> {
        let now_ms = self.queue.dues(&[]).await?.now_ms;
        self.failed = 0;
        let mut index = 0;
        while let Some(id) = self.waiting.get(index) {
            let stored = self.queue.get_up_to(id, 0).await?;
            match fate(stored, self.before_ms, now_ms) {
                Fate::Waits => index += 1,
                Fate::Failed => {
                    self.failed += 1;
                    index += 1;
                }
                Fate::Settled => {
                    self.settled += 1;
                    self.waiting.swap_remove(index);
                }
                Fate::Died(error) => {
                    self.died += 1;
                    self.error = error;
                    self.waiting.swap_remove(index);
                }
                Fate::NotRequeued => {
                    self.waiting.swap_remove(index);
                }
            }
        }
        let all = self.settled + self.died + self.waiting.len() as u64;
        if self.died > 0 {
            let first = self.error.lines().next().unwrap_or_default();
            let first: String = shown(first).chars().take(200).collect();
            let reason = format!(
                "{} of the canary's {all} messages died again: {first}",
                self.died
            );
            return Ok(Verdict::Stop(reason));
        }
        if self.waiting.is_empty() {
            return Ok(match self.settled {
                0 => Verdict::Stop(NONE.to_owned()),
                _ => Verdict::GoOn,
            });
        }
        if Instant::now() >= self.deadline {
            let reason = format!(
                "{} of the canary's {all} messages were not settled in time, {} of them failed",
                self.waiting.len(),
                self.failed
            );
            return Ok(Verdict::Stop(reason));
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        Ok(Verdict::Wait(pause))
    }

    pub(super) fn progress(&self) -> CanaryProgress {
        let waiting = self.waiting.len() as u64;
        CanaryProgress {
            messages: self.settled + self.died + waiting,
            settled: self.settled,
            died: self.died,
            waiting,
        }
    }
}

/// The fate of a dead message that was requeued with its attempts reset.
fn fate(stored: Option<StoredMessage>, before_ms: u64, now_ms: u64) -> Fate {
    let Some(stored) = stored else {
        return Fate::Settled;
    };
    match stored.state {
        MessageState::Dead if stored.time_ms <= before_ms => Fate::NotRequeued,
        MessageState::Dead => Fate::Died(stored.error),
        _ if stored.failures > 0 || stored.crashes > 0 => Fate::Failed,
        // The handler called `again`: the message is due later. A snooze does not count as settled.
        MessageState::Scheduled if stored.time_ms > now_ms && stored.snoozes == 0 => Fate::Settled,
        _ => Fate::Waits,
    }
}
