//! Judges the chains of a run.
//!
//! The stored messages are those in the server's record. The payload of each child names the run
//! that pushed it, so the record shows which run's `ack_push` took effect. Runs are known by the
//! lines that they printed before they acted. Answers serve only to find those that the record
//! contradicts.

use std::collections::HashMap;

use super::step::{STEPS, Step, Uid};
use dueq_testkit::report::Violations;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Gone,
    Lost,
    /// An error: the call may have taken effect.
    Unknown,
}

/// A message that the server stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stored {
    pub(super) step: Step,
    /// Its payload: the run that pushed it; `None` for a first step.
    pub(super) by: Option<Uid>,
}

/// A run of a handler: the effect of a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) step: Step,
    /// The answer to its `ack_push`; `None` if the run was killed before, or gave its delivery
    /// back.
    pub(super) answer: Option<Answer>,
}

#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) chains: u32,
    pub(super) stored: Vec<Stored>,
    /// Ids of stored messages that belong to no step.
    pub(super) strays: Vec<String>,
    pub(super) runs: HashMap<Uid, Run>,
    /// Answers to runs that had already given their delivery back.
    pub(super) stale: Vec<(Uid, Answer)>,
}

/// What is known of a step.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    stored: u32,
    runs: u32,
    done: u32,
    by: Option<Uid>,
}

impl History {
    pub(super) fn violations(&self) -> Violations {
        let mut violations = Violations::default();
        // Report the causes first: broken chains follow from them.
        for stray in &self.strays {
            violations.add(format!("{stray:?} was stored: the child of a refused ack"));
        }
        for (uid, answer) in &self.stale {
            if *answer == Answer::Done {
                violations.add(format!(
                    "run {uid} gave its delivery back, and its ack was accepted"
                ));
            }
        }
        let mut steps = vec![Known::default(); self.chains as usize * STEPS];
        for stored in &self.stored {
            match steps.get_mut(stored.step.index()) {
                Some(known) => (known.stored, known.by) = (known.stored + 1, stored.by),
                None => violations.add(format!("{} is of no chain", stored.step)),
            }
            self.check_pusher(*stored, &mut violations);
        }
        for run in self.runs.values() {
            if let Some(known) = steps.get_mut(run.step.index()) {
                known.runs += 1;
                known.done += u32::from(run.answer == Some(Answer::Done));
            }
        }
        for chain in 0..self.chains {
            for number in 0..STEPS {
                let step = Step { chain, number };
                let Known {
                    stored, runs, done, ..
                } = steps[step.index()];
                if stored != 1 {
                    violations.add(format!("the message of {step} was stored {stored} times"));
                }
                if runs == 0 {
                    violations.add(format!("{step} had no effect: no run of it"));
                }
                if done > 1 {
                    violations.add(format!("{done} runs acked {step}"));
                }
            }
        }
        self.check_answers(&steps, &mut violations);
        violations
    }

    /// Checks that each child was pushed by a run of its parent whose ack was not refused.
    fn check_pusher(&self, stored: Stored, violations: &mut Violations) {
        let Stored { step, by } = stored;
        let Some(number) = step.number.checked_sub(1) else {
            return;
        };
        let parent = Step { number, ..step };
        let run = by.and_then(|uid| self.runs.get(&uid));
        match run {
            Some(run) if run.step == parent => {
                if run.answer == Some(Answer::Lost) {
                    violations.add(format!(
                        "{step} was stored, and the ack of {parent} with it was refused"
                    ));
                }
            }
            _ => violations.add(format!(
                "{step} was stored by {by:?}, which is no run of {parent}"
            )),
        }
    }

    /// Checks that every accepted ack has stored the child.
    fn check_answers(&self, steps: &[Known], violations: &mut Violations) {
        for (uid, run) in &self.runs {
            if run.answer != Some(Answer::Done) || run.step.is_last() {
                continue;
            }
            let child = Step {
                number: run.step.number + 1,
                ..run.step
            };
            let by = steps.get(child.index()).and_then(|known| known.by);
            if by != Some(*uid) {
                violations.add(format!(
                    "run {uid} acked {}, and {child} is not its child",
                    run.step
                ));
            }
        }
    }

    /// The number of runs that got this answer.
    pub(super) fn answered(&self, answer: Answer) -> usize {
        let runs = self.runs.values();
        runs.filter(|run| run.answer == Some(answer)).count()
    }
}
