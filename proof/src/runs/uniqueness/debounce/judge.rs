//! Judges the debounces of a run.
//!
//! A debounce begins with a push that stores a message, and includes the pushes that replace it. It
//! fires once, with the payload of the last of them: `max_wait` after the first push, or earlier,
//! `delay` after the last one, if the pushes paused for that long. The due time of the first push
//! gives its time: it was due `delay` after that. The time of the last push is known only to lie
//! between call and answer, so on a slow machine that bound is wide and not violated.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use dueq_testkit::report::Violations;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The push stored a message with this due time: a debounce begins.
    Created { due_ms: u64 },
    /// The push replaced the waiting message.
    Moved,
    /// A handler had the message, so nothing changed.
    Running,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Push {
    /// The number in the payload.
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
    /// The pushes of each id, in order.
    pub(super) pushes: HashMap<u32, Vec<Push>>,
    /// The deliveries of each id, in the order in which their handlers started.
    pub(super) fired: HashMap<u32, Vec<Fired>>,
}

#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) violations: Violations,
    /// Debounces that fired at their `max_wait`.
    pub(super) full: u64,
    /// Debounces that fired earlier because their pushes paused.
    pub(super) paused: u64,
    /// Deliveries after an expired lease.
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

    fn judge(&self, id: u32, debounce: &Debounce, fired: Fired, verdict: &mut Verdict) {
        let Debounce {
            first,
            due_ms,
            last,
        } = debounce;
        let violations = &mut verdict.violations;
        if fired.number != last.number {
            violations.add(format!(
                "id {id} fired with payload {}, and the last push had {}",
                fired.number, last.number
            ));
        }
        if fired.started_ms < fired.due_ms {
            violations.add(format!(
                "id {id} started at {}, before its due time {}",
                fired.started_ms, fired.due_ms
            ));
        }
        let first_ms = due_ms.saturating_sub(self.delay_ms);
        if !first.span().contains(&first_ms) {
            violations.add(format!(
                "id {id} was stored at {first_ms}, and its push lasted from {} to {}",
                first.sent_ms, first.answered_ms
            ));
        }
        let limit_ms = first_ms + self.max_wait_ms;
        let paused_ms = fired.due_ms.saturating_sub(self.delay_ms);
        if fired.due_ms == limit_ms {
            verdict.full += 1;
        } else if fired.due_ms < limit_ms && last.span().contains(&paused_ms) {
            verdict.paused += 1;
        } else {
            violations.add(format!(
                "id {id} was due at {}: neither at {limit_ms}, {} ms after its first push, nor {} ms after its last one ({} to {})",
                fired.due_ms, self.max_wait_ms, self.delay_ms, last.sent_ms, last.answered_ms
            ));
        }
    }
}

impl Push {
    /// The range of the server's time of the push; that time is rounded up.
    fn span(&self) -> RangeInclusive<u64> {
        self.sent_ms..=self.answered_ms + 1
    }
}

/// The first and the last effective push of a debounce.
struct Debounce {
    first: Push,
    /// The due time that the first push gave to the message.
    due_ms: u64,
    last: Push,
}

fn debounces(pushes: &[Push]) -> Vec<Debounce> {
    let mut debounces: Vec<Debounce> = Vec::new();
    for &push in pushes {
        match (push.answer, debounces.last_mut()) {
            (Answer::Created { due_ms }, _) => debounces.push(Debounce {
                first: push,
                due_ms,
                last: push,
            }),
            (Answer::Moved, Some(debounce)) => debounce.last = push,
            (Answer::Moved, None) | (Answer::Running, _) => {}
        }
    }
    debounces
}
