//! The changes of a queue that no answered call made: an unanswered call made each of them.
//!
//! Every change has its own `seq`, and every answer names the change that it made or saw. So
//! unanswered calls made exactly the missing changes, and a change that is not missing has no such
//! explanation.

use super::context::{Epoch, Lost, Queue};
use crate::check::queue::order::{Change, Reply};

/// A `seq` that no answered call certainly made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MissingChange {
    pub(super) seq: u64,
    /// The bounds of its time by the clock of the processes: after calls with a lower `seq` were
    /// sent, and before calls with a higher one were answered.
    pub(super) after_us: u64,
    pub(super) before_us: u64,
    /// The bounds of its time by the server's clock.
    pub(super) after_ms: u64,
    pub(super) before_ms: u64,
    /// The shortest lease of the lost claims that can have made it; `None` if no claim can.
    pub(super) lease_ms: Option<u64>,
}

impl MissingChange {
    /// Whether a call without an answer can have made it.
    pub(super) fn fits(&self, asked_us: u64, until_us: u64) -> bool {
        asked_us < self.before_us && self.after_us < until_us
    }
}

/// A range with more missing changes than this is another kind of violation.
const LONGEST: u64 = 10_000;

/// Finds the missing changes from replies in the order of `seq`, without undone ones; and those
/// that only an unanswered call can have made.
pub(super) fn of(
    epoch: &Epoch,
    queue: &Queue,
    replies: &[Reply],
) -> (Vec<MissingChange>, Vec<MissingChange>) {
    let before_us = earliest_answers(replies);
    let (mut possible, mut sure) = (Vec::new(), Vec::new());
    let (mut after_us, mut after_ms, mut last) = (0, 0, 0);
    let mut rest = replies;
    while let Some(first) = rest.first() {
        let same = rest.partition_point(|reply| reply.seq <= first.seq);
        let (of_seq, later) = rest.split_at(same);
        let (answered_us, now_ms) = (
            before_us[replies.len() - rest.len()],
            first.now_us.div_ceil(1_000),
        );
        let gap = |seq| MissingChange {
            seq,
            after_us,
            before_us: answered_us,
            after_ms,
            before_ms: now_ms,
            lease_ms: None,
        };
        let owner = of_seq
            .iter()
            .map(|reply| reply.changed)
            .min()
            .unwrap_or(Change::No);
        for seq in missing(epoch, last, first.seq) {
            possible.push(gap(seq));
            sure.push(gap(seq));
        }
        let is_raised = epoch.skipped(first.seq).is_some();
        if first.seq > last && owner > Change::Surely && !is_raised {
            possible.push(gap(first.seq));
            sure.extend((owner == Change::No).then(|| gap(first.seq)));
        }
        after_us = of_seq
            .iter()
            .map(|reply| reply.asked_us)
            .fold(after_us, u64::max);
        after_ms = of_seq
            .iter()
            .map(|reply| reply.now_us / 1_000)
            .min()
            .unwrap_or(0);
        (last, rest) = (first.seq, later);
    }
    // After the last answer, changes may follow that no process saw.
    let tail = queue
        .lost
        .iter()
        .filter(|lost| lost.until_us > after_us)
        .count() as u64;
    let (before_us, before_ms) = (u64::MAX, u64::MAX);
    possible.extend(
        (last + 1..)
            .take(tail.min(LONGEST) as usize)
            .map(|seq| MissingChange {
                seq,
                after_us,
                before_us,
                after_ms,
                before_ms,
                lease_ms: None,
            }),
    );
    for gap in &mut possible {
        let claims = queue
            .lost
            .iter()
            .filter(|lost| lost.most > 0 && gap.fits(lost.asked_us, lost.until_us));
        gap.lease_ms = claims.map(|lost| lost.lease_ms).min();
    }
    (possible, sure)
}

/// For each reply: when the first answer with its `seq` or a higher one came.
fn earliest_answers(replies: &[Reply]) -> Vec<u64> {
    let mut earliest: Vec<u64> = replies.iter().map(|reply| reply.answered_us).collect();
    let mut least = u64::MAX;
    for answered_us in earliest.iter_mut().rev() {
        least = least.min(*answered_us);
        *answered_us = least;
    }
    earliest
}

/// Each `seq` between two numbers that a call can have made.
fn missing(epoch: &Epoch, after: u64, until: u64) -> Vec<u64> {
    let (mut seq, mut found) = (after + 1, Vec::new());
    while seq < until && (found.len() as u64) < LONGEST {
        match epoch.skipped(seq) {
            Some(next) => seq = next + 1,
            None => {
                found.push(seq);
                seq += 1;
            }
        }
    }
    found
}

/// The number of changes that remain if each unanswered call made at most one of them, in its time.
pub(super) fn unpaid(gaps: &[MissingChange], lost: &[Lost]) -> u64 {
    // Both bounds grow with `seq`, so the call whose time ends first is used first.
    let mut waiting = std::collections::BinaryHeap::new();
    let (mut next, mut left) = (lost.iter().peekable(), 0);
    for gap in gaps {
        while let Some(lost) = next.next_if(|lost| lost.asked_us < gap.before_us) {
            waiting.push(std::cmp::Reverse(lost.until_us));
        }
        while waiting
            .peek()
            .is_some_and(|until_us| until_us.0 <= gap.after_us)
        {
            waiting.pop();
        }
        left += u64::from(waiting.pop().is_none());
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(seq: u64, after_us: u64, before_us: u64) -> MissingChange {
        MissingChange {
            seq,
            after_us,
            before_us,
            after_ms: 0,
            before_ms: 0,
            lease_ms: None,
        }
    }

    fn lost(asked_us: u64, until_us: u64) -> Lost {
        Lost {
            asked_us,
            until_us,
            most: 0,
            lease_ms: 0,
            token: 0,
            given_up: false,
        }
    }

    #[test]
    fn a_lost_call_explains_one_change_in_its_time() {
        let gaps = [gap(1, 10, 20), gap(2, 30, 40), gap(3, 30, 45)];
        assert_eq!(unpaid(&gaps, &[]), 3);
        assert_eq!(unpaid(&gaps, &[lost(5, 35), lost(6, 50), lost(31, 60)]), 0);
        assert_eq!(
            unpaid(&gaps, &[lost(5, 9), lost(6, 50), lost(31, 60)]),
            1,
            "one had ended"
        );
        assert_eq!(
            unpaid(&gaps, &[lost(50, 60), lost(51, 60), lost(52, 60)]),
            3,
            "they came later"
        );
    }

    #[test]
    fn answered_and_undone_changes_are_not_missing() {
        let reply = |seq, changed| {
            let at_us = seq * 1_000;
            Reply {
                asked_us: at_us,
                answered_us: at_us + 500,
                now_us: at_us,
                seq,
                changed,
                master: 0,
            }
        };
        let epoch = Epoch {
            undone: vec![(6, 9)],
            ..Epoch::default()
        };
        let queue = Queue {
            lost: vec![lost(1, 5_200)],
            ..Queue::default()
        };
        let replies = [
            (2, Change::Yes),
            (2, Change::No),
            (4, Change::Perhaps),
            (5, Change::No),
            (10, Change::Yes),
        ];
        let replies = replies.map(|(seq, changed)| reply(seq, changed));
        let (possible, sure) = of(&epoch, &queue, &replies);
        let seqs = |gaps: &[MissingChange]| gaps.iter().map(|gap| gap.seq).collect::<Vec<_>>();
        assert_eq!(seqs(&sure), [1, 3, 5, 6]);
        assert_eq!(
            seqs(&possible),
            [1, 3, 4, 5, 6],
            "the call had ended before the last answer"
        );
        assert_eq!((sure[1].after_us, sure[1].before_us), (2_000, 4_500));
    }
}
