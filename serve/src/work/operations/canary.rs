//! The canary of a requeue: its first messages go first, and the others follow if none of them dies
//! again.

use std::time::{Duration, Instant};

use dueq::{Applied, Error, MessageState, Queue, StoredMessage};

use crate::edge::shown::shown;
use crate::wire::operations::CanaryProgress;
use crate::work::operations::steps::Steps;

/// The pauses between two looks at the messages of a canary.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Why a canary without messages stops.
const NONE: &str = "no message of the canary was requeued: another call changed them, or the call did not reach Redis";

/// The messages of a canary.
pub(super) struct Watched {
    queue: Queue,
    before_ms: u64,
    /// Those of which nothing is known yet.
    waiting: Vec<Vec<u8>>,
    settled: u64,
    died: u64,
    /// How many of those that wait have failed since.
    failed: u64,
    /// What the last failure of one that died said.
    error: String,
    deadline: Instant,
    pause: Duration,
}

/// What the look at a canary tells.
pub(super) enum Verdict {
    /// Look again after this pause.
    Wait(Duration),
    GoOn,
    /// The reason to stop.
    Stop(String),
}

/// Where a message of a canary is.
enum Fate {
    Waits,
    Failed,
    Settled,
    Died(String),
    /// Another caller was faster, so that it was not requeued.
    NotRequeued,
}

/// Requeues the first messages.
pub(super) struct Release {
    messages: usize,
    /// How many the steps with a lost reply may have requeued. They count as requeued: more than the
    /// canary must not go.
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

    /// One step. Returns whether all are requeued that shall be. It can be made again after an error:
    /// then ids of a step with a lost reply are watched too.
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
                    self.lost += left;
                }
                Err(error)
            }
        }
    }

    /// How many may still be requeued. A step can have counted some, and failed after that.
    fn left(&self, steps: &Steps) -> usize {
        let done = usize::try_from(steps.done()).unwrap_or(usize::MAX);
        self.messages.saturating_sub(done.saturating_add(self.lost))
    }

    /// How many were perhaps requeued, and are not counted.
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
    /// Looks at those of which nothing is known. It can be made again after an error.
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

/// What became of a message that was dead, and then requeued with its attempts at none.
fn fate(stored: Option<StoredMessage>, before_ms: u64, now_ms: u64) -> Fate {
    let Some(stored) = stored else {
        return Fate::Settled;
    };
    match stored.state {
        MessageState::Dead if stored.time_ms <= before_ms => Fate::NotRequeued,
        MessageState::Dead => Fate::Died(stored.error),
        _ if stored.failures > 0 || stored.crashes > 0 => Fate::Failed,
        // Its handler made it due again later. A snooze is no settlement.
        MessageState::Scheduled if stored.time_ms > now_ms && stored.snoozes == 0 => Fate::Settled,
        _ => Fate::Waits,
    }
}
