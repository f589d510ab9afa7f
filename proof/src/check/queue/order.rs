//! Judges a queue as a whole by the `seq` of all replies.

use crate::check::context::{Epoch, Queue};
use crate::check::missing;
use crate::check::verdict::{Kind, Verdict};

/// The header of a reply, and when its call was sent and answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reply {
    pub(crate) asked_us: u64,
    pub(crate) answered_us: u64,
    pub(crate) now_us: u64,
    pub(crate) seq: u64,
    pub(crate) changed: Change,
    /// The number of the replying master, on a cluster.
    pub(crate) master: u16,
}

/// Whether a call made the change that the `seq` of its answer counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    Yes,
    /// The answer does not say so, but it is practically certain.
    Surely,
    /// The answer does not say whether it did.
    Perhaps,
    No,
}

/// Finds where the server's clock went back, which answers the server forgot, and which changes no
/// call made. Sorts the replies.
pub(crate) fn judge(
    epoch: &mut Epoch,
    queue: &Queue,
    replies: &mut Vec<Reply>,
    verdict: &mut Verdict,
) {
    replies.retain(|reply| !epoch.is_void(reply.seq) && !epoch.is_stale(reply));
    let mut empty = std::mem::take(&mut epoch.empty);
    empty.retain(|(seq, _)| !epoch.is_void(*seq));
    empty.sort_unstable();
    epoch.empty = empty;
    went_back(epoch, queue, replies, verdict);
    // The call that made a change comes before calls that saw it; those come in the order of the
    // server's clock.
    replies.sort_unstable_by_key(|reply| (reply.seq, reply.changed > Change::Surely, reply.now_us));
    let mut latest_us = 0;
    for reply in &*replies {
        if reply.now_us < latest_us && epoch.steps.last() != Some(&reply.seq) {
            epoch.steps.push(reply.seq);
        }
        latest_us = latest_us.max(reply.now_us);
    }
    epoch.latest_ms = latest_us / 1_000;
    changes(epoch, queue, replies, verdict);
}

/// Judges that no later call got a lower `seq`.
fn went_back(epoch: &Epoch, queue: &Queue, replies: &mut [Reply], verdict: &mut Verdict) {
    let mut told: Vec<(u64, u64)> = replies
        .iter()
        .map(|reply| (reply.answered_us, reply.seq))
        .collect();
    told.sort_unstable();
    replies.sort_unstable_by_key(|reply| reply.asked_us);
    let (mut told, mut highest) = (told.into_iter().peekable(), 0);
    for reply in replies {
        while let Some((_, seq)) = told.next_if(|(answered_us, _)| *answered_us < reply.asked_us) {
            highest = highest.max(seq);
        }
        if reply.seq < highest {
            verdict.found(Kind::RolledBack, || {
                let (name, incarnation) = (&queue.name, &epoch.incarnation);
                format!(
                    "queue {name} {incarnation}: seq {} was answered at {} us after {highest}",
                    reply.seq, reply.answered_us
                )
            });
        }
    }
}

fn changes(epoch: &mut Epoch, queue: &Queue, replies: &[Reply], verdict: &mut Verdict) {
    let mut known = None;
    for reply in replies.iter().filter(|reply| reply.changed == Change::Yes) {
        epoch.made.push(reply.seq);
        if known.replace(reply.seq) == Some(reply.seq) {
            verdict.found(Kind::RolledBack, || {
                format!(
                    "queue {} {}: two changes have seq {}",
                    queue.name, epoch.incarnation, reply.seq
                )
            });
        }
    }
    let (possible, mut sure) = missing::of(epoch, queue, replies);
    epoch.gaps = possible;
    // Changes before the first answered one may be of a process without a history.
    let first = replies
        .iter()
        .find(|reply| reply.changed != Change::No)
        .map_or(u64::MAX, |reply| reply.seq);
    sure.retain(|gap| gap.seq > first);
    let unpaid = missing::unpaid(&sure, &queue.lost);
    if unpaid > 0 {
        verdict.found(Kind::UnaskedChanges, || {
            let (missing, lost) = (sure.len(), queue.lost.len());
            format!(
                "queue {} {}: {missing} changes that no answered call made; {unpaid} of them in the time of none of {lost} calls without an answer",
                queue.name, epoch.incarnation
            )
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The `seq` at which the server's clock went back, from replies of (`seq`, ms, change).
    fn steps(replies: &[(u64, u64, Change)]) -> Vec<u64> {
        let (mut epoch, queue, mut verdict) =
            (Epoch::default(), Queue::default(), Verdict::default());
        let reply = |(seq, now_ms, changed): &(u64, u64, Change)| {
            let now_us = now_ms * 1_000;
            Reply {
                asked_us: now_us,
                answered_us: now_us + 1,
                now_us,
                seq: *seq,
                changed: *changed,
                master: 0,
            }
        };
        judge(
            &mut epoch,
            &queue,
            &mut replies.iter().map(reply).collect(),
            &mut verdict,
        );
        epoch.steps
    }

    #[test]
    fn answers_with_the_same_seq_are_in_clock_order() {
        let (made, seen, perhaps) = (Change::Yes, Change::No, Change::Perhaps);
        assert_eq!(
            steps(&[
                (1, 10, made),
                (1, 30, perhaps),
                (1, 20, seen),
                (2, 40, made)
            ]),
            [0; 0]
        );
        assert_eq!(steps(&[(1, 10, made), (1, 5, seen)]), [1]);
        assert_eq!(steps(&[(1, 10, made), (1, 30, seen), (2, 20, made)]), [2]);
    }
}
