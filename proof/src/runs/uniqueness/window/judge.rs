//! Judges the windows of a run.
//!
//! A window of an id begins with the push that the server accepted: the append-only file has the
//! message and its due time, which equals the server's time of the push because the push has no
//! delay. The window ends `window_ms` later. The judge uses neither replies to pushes nor the marks
//! by which scripts remember ids.

use std::collections::{HashMap, HashSet};

use dueq_testkit::report::Violations;

/// A message that the server stored, by its append-only file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Accepted {
    pub(super) id: u32,
    pub(super) at_ms: u64,
}

/// A delivery that its handler acked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delivered {
    pub(super) id: u32,
    /// The due time of the message: it identifies which message of the id this is.
    pub(super) due_ms: u64,
    pub(super) attempt: u32,
    /// When the ack was answered: by then the message has left the queue.
    pub(super) ended_ms: u64,
}

/// A push and its final answer, after any repetitions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Push {
    pub(super) id: u32,
    pub(super) sent_ms: u64,
    pub(super) answered_ms: u64,
    pub(super) is_created: bool,
}

#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) window_ms: u64,
    /// The accepted messages, in the order of the file.
    pub(super) accepted: Vec<Accepted>,
    pub(super) delivered: Vec<Delivered>,
    pub(super) pushes: Vec<Push>,
}

/// The messages of one id: their times, ascending, and when each left the queue.
#[derive(Debug, Default)]
struct Messages {
    at_ms: Vec<u64>,
    ended_ms: Vec<u64>,
}

impl History {
    pub(super) fn violations(&self) -> Violations {
        let mut violations = Violations::default();
        let mut ids: HashMap<u32, Messages> = HashMap::new();
        for accepted in &self.accepted {
            ids.entry(accepted.id)
                .or_default()
                .at_ms
                .push(accepted.at_ms);
        }
        for (id, messages) in &mut ids {
            messages.at_ms.sort_unstable();
            messages.ended_ms = vec![0; messages.at_ms.len()];
            for pair in messages.at_ms.windows(2) {
                if pair[1] - pair[0] < self.window_ms {
                    violations.add(format!(
                        "id {id} was stored at {} and at {}, and its window has {} ms",
                        pair[0], pair[1], self.window_ms
                    ));
                }
            }
        }
        self.check_deliveries(&mut ids, &mut violations);
        self.check_answers(&ids, &mut violations);
        violations
    }

    /// Checks that each message has one delivery. After an expired lease it has a further one, with
    /// a higher attempt.
    fn check_deliveries(&self, ids: &mut HashMap<u32, Messages>, violations: &mut Violations) {
        let mut attempts = HashSet::new();
        for delivered in &self.delivered {
            let Delivered {
                id,
                due_ms,
                attempt,
                ended_ms,
            } = *delivered;
            if !attempts.insert((id, due_ms, attempt)) {
                violations.add(format!(
                    "attempt {attempt} of id {id}, stored at {due_ms}, ran twice"
                ));
            }
            let messages = ids.get_mut(&id);
            let found = messages.and_then(|messages| {
                let index = messages.at_ms.binary_search(&due_ms).ok()?;
                messages.ended_ms.get_mut(index)
            });
            match found {
                Some(ended) => *ended = ended_ms.max(*ended),
                None => violations.add(format!(
                    "id {id} was delivered, and no message of it was stored at {due_ms}"
                )),
            }
        }
        for (id, messages) in ids {
            for (at_ms, ended_ms) in messages.at_ms.iter().zip(&messages.ended_ms) {
                if *ended_ms == 0 {
                    violations.add(format!("id {id}, stored at {at_ms}, was not delivered"));
                }
            }
        }
    }

    /// Checks the answers: a push that was not `Created` met a window, or the message still in the
    /// queue. A push that was `Created` has its own message.
    fn check_answers(&self, ids: &HashMap<u32, Messages>, violations: &mut Violations) {
        let nothing = Messages::default();
        let mut taken = HashSet::new();
        for push in &self.pushes {
            let Push {
                id,
                sent_ms,
                answered_ms,
                is_created,
            } = *push;
            let messages = ids.get(&id).unwrap_or(&nothing);
            // Due times are rounded up: a push that was answered at N ms may have the due time N + 1.
            let before = messages
                .at_ms
                .partition_point(|at_ms| *at_ms <= answered_ms + 1);
            let last = before.checked_sub(1);
            if is_created {
                let own = (0..before)
                    .rev()
                    .take_while(|index| messages.at_ms[*index] >= sent_ms)
                    .find(|index| taken.insert((id, *index)));
                if own.is_none() {
                    violations.add(format!(
                        "a push of id {id} was answered with created, and no message was stored from {sent_ms} to {answered_ms}"
                    ));
                }
            } else if last.is_none_or(|last| {
                sent_ms > (messages.at_ms[last] + self.window_ms).max(messages.ended_ms[last])
            }) {
                violations.add(format!(
                    "a push of id {id} from {sent_ms} to {answered_ms} was refused, and no window was open"
                ));
            }
        }
    }

    /// The number of deliveries that were the first of their message.
    pub(super) fn first_deliveries(&self) -> usize {
        let messages: HashSet<(u32, u64)> = self
            .delivered
            .iter()
            .map(|delivered| (delivered.id, delivered.due_ms))
            .collect();
        messages.len()
    }
}
