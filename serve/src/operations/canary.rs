//! The canary of a requeue: its first messages go first, and the others follow if none of them dies
//! again.

use std::time::{Duration, Instant};

use dueq::{BulkSteps, Error, Queue, State, Stored};

use crate::operations::progress::CanaryProgress;
use crate::shown::shown;

/// The pauses between two looks at the messages of a canary.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

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
    left: usize,
    ids: Vec<Vec<u8>>,
}

impl Release {
    pub(super) fn new(messages: usize) -> Self {
        Self {
            left: messages,
            ids: Vec::new(),
        }
    }

    /// One step. Returns whether all are requeued that shall be. It can be made again after an error:
    /// then ids of a step with a lost reply are watched too.
    pub(super) async fn step(&mut self, steps: &mut BulkSteps) -> Result<bool, Error> {
        let next = steps.peek(self.left).await?;
        self.ids.extend(next);
        let before = steps.done();
        let stepped = steps.step(self.left).await?;
        let requeued = usize::try_from(stepped.done - before).unwrap_or(self.left);
        self.left -= requeued.min(self.left);
        Ok(self.left == 0 || stepped.end.is_some())
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
                0 => Verdict::Stop("another call changed all messages of the canary".to_owned()),
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
fn fate(stored: Option<Stored>, before_ms: u64, now_ms: u64) -> Fate {
    let Some(stored) = stored else {
        return Fate::Settled;
    };
    match stored.state {
        State::Dead if stored.time_ms <= before_ms => Fate::NotRequeued,
        State::Dead => Fate::Died(stored.error),
        _ if stored.failures > 0 || stored.crashes > 0 => Fate::Failed,
        // Its handler made it due again later. A snooze is no settlement.
        State::Scheduled if stored.time_ms > now_ms && stored.snoozes == 0 => Fate::Settled,
        _ => Fate::Waits,
    }
}
