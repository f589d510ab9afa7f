//! Judges the debounces of a run.
//!
//! A debounce begins with a push that stored a message, and contains the pushes that replaced it. It
//! fires once, with the payload of the last of them: `max_wait` after the first push, or `delay` after
//! the last one if the pushes paused for so long. The time of a push is only known to lie between its
//! call and its answer, so a slow machine widens the bounds and violates none.

use std::collections::HashMap;

use crate::uniqueness::outcome::Violations;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// It stored a message: a debounce begins.
    Created,
    /// It replaced the message that waits.
    Moved,
    /// The handler had the message: nothing changed.
    Running,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Push {
    /// The payload.
    pub(super) number: u64,
    pub(super) sent_ms: u64,
    pub(super) answered_ms: u64,
    pub(super) answer: Answer,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Fired {
    pub(super) number: u64,
    pub(super) due_ms: u64,
    pub(super) started_ms: u64,
    pub(super) attempt: u32,
}

#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) delay_ms: u64,
    pub(super) max_wait_ms: u64,
    /// The pushes of each id, one after the other.
    pub(super) pushes: HashMap<u32, Vec<Push>>,
    /// The deliveries of each id, in the order of their handlers.
    pub(super) fired: HashMap<u32, Vec<Fired>>,
}

#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) violations: Violations,
    /// Debounces that fired at their `max_wait`.
    pub(super) full: u64,
    /// Debounces that fired earlier, because their pushes paused.
    pub(super) paused: u64,
    /// Deliveries after a lease that ran out.
    pub(super) repeated: u64,
}

impl History {
    pub(super) fn verdict(&self) -> Verdict {
        let mut verdict = Verdict::default();
        for (id, pushes) in &self.pushes {
            let mut fired: Vec<Fired> = self.fired.get(id).cloned().unwrap_or_default();
            fired.retain(|fired| fired.attempt == 1);
            let all = self.fired.get(id).map_or(0, Vec::len);
            verdict.repeated += (all - fired.len()) as u64;
            let debounces = debounces(pushes);
            if debounces.len() != fired.len() {
                let (count, begun) = (fired.len(), debounces.len());
                verdict
                    .violations
                    .add(format!("id {id} fired {count} times for {begun} debounces"));
            }
            for (debounce, fired) in debounces.iter().zip(&fired) {
                self.judge(*id, debounce, *fired, &mut verdict);
            }
        }
        verdict
    }

    fn judge(&self, id: u32, debounce: &[Push], fired: Fired, verdict: &mut Verdict) {
        let (Some(first), Some(last)) = (debounce.first(), debounce.last()) else {
            return;
        };
        let Fired {
            number,
            due_ms,
            started_ms,
            ..
        } = fired;
        if number != last.number {
            let last = last.number;
            let violation =
                format!("id {id} fired with payload {number}, and the last push had {last}");
            verdict.violations.add(violation);
        }
        // Due times are rounded up.
        let after =
            |push: &Push, wait_ms: u64| push.sent_ms + wait_ms..=push.answered_ms + 1 + wait_ms;
        let (by_limit, by_pause) = (after(first, self.max_wait_ms), after(last, self.delay_ms));
        if started_ms < due_ms {
            verdict.violations.add(format!(
                "id {id} started at {started_ms}, before its due time {due_ms}"
            ));
        }
        if by_limit.contains(&due_ms) {
            verdict.full += 1;
        } else if by_pause.contains(&due_ms) && due_ms <= *by_limit.end() {
            verdict.paused += 1;
        } else {
            verdict.violations.add(format!(
                "id {id} was due at {due_ms}: neither {} ms after its first push ({} to {}), nor {} ms after its last one ({} to {})",
                self.max_wait_ms, first.sent_ms, first.answered_ms, self.delay_ms, last.sent_ms, last.answered_ms
            ));
        }
    }
}

/// The pushes that took effect, by debounce.
fn debounces(pushes: &[Push]) -> Vec<Vec<Push>> {
    let mut debounces: Vec<Vec<Push>> = Vec::new();
    for push in pushes {
        match push.answer {
            Answer::Created => debounces.push(vec![*push]),
            Answer::Moved => match debounces.last_mut() {
                Some(debounce) => debounce.push(*push),
                None => debounces.push(vec![*push]),
            },
            Answer::Running => {}
        }
    }
    debounces
}
