//! A message that leaves a partition, comes back, or arrives.

use crate::check::context::Context;
use crate::check::message::hypothesis::{Gone, Hypothesis, Status};
use crate::check::queue::moves::Moved;
use crate::check::record::{Record, Step};
use crate::check::verdict::Kind;

impl Hypothesis {
    /// Whether it is in this batch, or in one that no answer has shown yet.
    fn is_in(&self, moved: &Moved) -> bool {
        self.status == Status::Absent(Gone::Departed) && [0, moved.batch].contains(&self.batch)
    }

    pub(crate) fn allows_move(
        &self,
        step: Step,
        moved: &Moved,
        record: &Record,
        context: &Context<'_>,
    ) -> Result<(), Kind> {
        match step {
            Step::Departs => self.allows_seen(moved.state, record, context),
            Step::Away if self.is_there() => Err(Kind::InTwoPartitions),
            Step::Away if !self.is_in(moved) => Err(Kind::Contradictions),
            Step::Arrives if self.is_there() => Err(Kind::InTwoPartitions),
            Step::Arrived if self.arrived < moved.batch => Err(Kind::Lost),
            _ => Ok(()),
        }
    }

    pub(crate) fn after_move(&mut self, step: Step, moved: &Moved, record: &Record) {
        match step {
            Step::Departs => self.leave(Gone::Departed),
            Step::Returns if self.is_in(moved) => self.land(moved),
            Step::Arrives => self.land(moved),
            Step::Away => {
                self.leave(Gone::Departed);
                self.batch = moved.batch;
                return;
            }
            Step::Returns | Step::Arrived => return,
        }
        self.batch = moved.batch;
        self.changed_by(record);
    }

    /// The state if a call without an answer made this step.
    pub(crate) fn perhaps_moved(mut self, step: Step, moved: Option<&Moved>) -> Option<Self> {
        match (step, moved) {
            (Step::Departs, _) if matches!(self.status, Status::Waiting | Status::Dead) => {
                self.leave(Gone::Departed);
                self.batch = 0;
            }
            (Step::Returns, Some(moved)) if self.is_in(moved) => self.land(moved),
            (Step::Arrives, Some(moved)) if !self.is_there() => self.land(moved),
            _ => return None,
        }
        Some(self)
    }

    /// Stores the message as the batch has it.
    fn land(&mut self, moved: &Moved) {
        let Some(found) = moved.state.found() else {
            return;
        };
        self.wait_until(found.time_ms);
        if moved.due_ms > 0 {
            self.due_ms = Some(moved.due_ms);
        }
        if found.state == crate::history::State::Dead {
            self.status = Status::Dead;
        }
        self.count_anew(None);
        (self.failures, self.crashes, self.put_off) = (found.failures, found.crashes, true);
        self.version = u16::try_from(found.version).unwrap_or(u16::MAX);
        (self.bytes, self.options) = (found.bytes, found.options);
        (self.max_attempts, self.expiry) = (found.max_attempts, found.expiry);
        (self.expires_by_ms, self.arrived) = (moved.fixed_ms, moved.batch);
    }
}
