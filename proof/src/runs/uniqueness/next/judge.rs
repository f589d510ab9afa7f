//! Judges messages whose id was pushed again during their first run.
//!
//! The server's record shows, in order, which payloads became the message of an id, when workers
//! claimed it, and which next messages were kept. The runs are those that workers printed.

use std::collections::{HashMap, HashSet};

use super::{FIRST, LAST};
use dueq_testkit::report::Violations;

/// A change of one id in the server's record. The numbers are those in payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// This payload became the message of the id.
    Stored(u8),
    Claimed,
    /// This payload is kept until the delivery ends.
    Kept(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Run {
    pub(super) payload: u8,
    pub(super) attempt: u32,
}

/// The answer to a push that was made during the first run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Next,
    /// The lease had expired, and the push replaced the waiting message.
    Moved,
    Other,
}

#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) messages: u32,
    pub(super) events: HashMap<u32, Vec<Event>>,
    pub(super) runs: HashMap<u32, Vec<Run>>,
    /// For each id: the answers to the pushes with the payloads 1, 2 and so on.
    pub(super) answers: HashMap<u32, Vec<Answer>>,
}

impl History {
    pub(super) fn violations(&self) -> Violations {
        let mut violations = Violations::default();
        for id in 0..self.messages {
            let found = [
                self.storing(id),
                self.order(id),
                self.handling(id),
                self.answering(id),
            ];
            for violation in found.into_iter().flatten() {
                violations.add(format!("id {id}: {violation}"));
            }
        }
        violations
    }

    /// Checks that the last payload became the message exactly once, and after all others. An
    /// earlier payload may do so only if the delivery ended between two pushes.
    fn storing(&self, id: u32) -> Option<String> {
        let stored: Vec<u8> = self
            .events(id)
            .filter_map(|event| match event {
                Event::Stored(payload) => Some(payload),
                _ => None,
            })
            .collect();
        let answers = self.answers.get(&id).map_or(&[][..], Vec::as_slice);
        let is_next = |payload: u8| {
            let index = usize::from(payload).checked_sub(1);
            index.and_then(|index| answers.get(index)) == Some(&Answer::Next)
        };
        let expected: Vec<u8> = (FIRST..=LAST)
            .filter(|&payload| {
                let is_kept = is_next(payload) && is_next(payload + 1);
                payload == FIRST || payload == LAST || !is_kept && stored.contains(&payload)
            })
            .collect();
        (stored != expected)
            .then(|| format!("its payloads were {stored:?} in turn, not {expected:?}"))
    }

    /// Checks that a kept message starts next: the earlier message is not claimed again.
    fn order(&self, id: u32) -> Option<String> {
        let mut kept = None;
        for event in self.events(id) {
            match event {
                Event::Kept(payload) => kept = Some(payload),
                Event::Claimed if kept.is_some() => {
                    return Some("a worker took it again, instead of the next message".to_owned());
                }
                Event::Claimed => {}
                Event::Stored(payload) => {
                    let other = kept.take().filter(|kept| *kept != payload);
                    if let Some(other) = other {
                        return Some(format!("payload {payload} started, and {other} was kept"));
                    }
                }
            }
        }
        kept.map(|payload| format!("payload {payload} was kept, and never started"))
    }

    /// Checks that the last payload ran. Each attempt runs once; a second attempt needs a crash.
    fn handling(&self, id: u32) -> Option<String> {
        let runs = self.runs.get(&id).map_or(&[][..], Vec::as_slice);
        let distinct: HashSet<&Run> = runs.iter().collect();
        let stored = |payload| self.events(id).any(|event| event == Event::Stored(payload));
        if distinct.len() != runs.len() {
            Some(format!("one attempt ran twice: {runs:?}"))
        } else if !runs.iter().any(|run| run.payload == LAST) {
            Some("its last payload did not run".to_owned())
        } else {
            let stray = runs.iter().find(|run| !stored(run.payload));
            stray.map(|run| format!("payload {} ran, and was never the message", run.payload))
        }
    }

    fn answering(&self, id: u32) -> Option<String> {
        let answers = self.answers.get(&id).map_or(&[][..], Vec::as_slice);
        let is_complete = answers.len() == usize::from(LAST) && !answers.contains(&Answer::Other);
        (!is_complete).then(|| format!("the pushes were answered with {answers:?}"))
    }

    fn events(&self, id: u32) -> impl Iterator<Item = Event> {
        self.events.get(&id).into_iter().flatten().copied()
    }
}
