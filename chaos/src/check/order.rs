//! What the `seq` of all replies says about a queue as a whole.

use super::context::{Epoch, Queue};
use super::verdict::{Kind, Verdict};

/// The header of a reply, and when it was asked for and told.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reply {
    pub(super) asked_us: u64,
    pub(super) told_us: u64,
    pub(super) now_us: u64,
    pub(super) seq: u64,
    pub(super) changed: Change,
}

/// Whether a call made the change that its `seq` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    Yes,
    /// Its answer does not say.
    Perhaps,
    No,
}

/// Finds where the clock went back, and what the server forgot or did unasked. Sorts the replies.
pub(super) fn judge(epoch: &mut Epoch, queue: &Queue, replies: &mut Vec<Reply>, verdict: &mut Verdict) {
    replies.retain(|reply| !epoch.is_void(reply.seq));
    went_back(epoch, queue, replies, verdict);
    replies.sort_unstable_by_key(|reply| (reply.seq, reply.changed, reply.now_us));
    let mut latest_us = 0;
    for reply in &*replies {
        if reply.now_us < latest_us && epoch.steps.last() != Some(&reply.seq) {
            epoch.steps.push(reply.seq);
        }
        latest_us = latest_us.max(reply.now_us);
    }
    changes(epoch, queue, replies, verdict);
}

/// A later call must not be answered a lower `seq`.
fn went_back(epoch: &Epoch, queue: &Queue, replies: &mut [Reply], verdict: &mut Verdict) {
    let mut told: Vec<(u64, u64)> = replies.iter().map(|reply| (reply.told_us, reply.seq)).collect();
    told.sort_unstable();
    replies.sort_unstable_by_key(|reply| reply.asked_us);
    let (mut told, mut highest) = (told.into_iter().peekable(), 0);
    for reply in replies {
        while let Some((_, seq)) = told.next_if(|(told_us, _)| *told_us < reply.asked_us) {
            highest = highest.max(seq);
        }
        if reply.seq < highest {
            verdict.found(Kind::RolledBack, || {
                let (name, born) = (&queue.name, &epoch.born);
                format!("queue {name} {born}: seq {} was answered at {} us after {highest}", reply.seq, reply.told_us)
            });
        }
    }
}

fn changes(epoch: &Epoch, queue: &Queue, replies: &[Reply], verdict: &mut Verdict) {
    let (mut owned, mut last, mut known) = (0_u64, None, None);
    let mut first = None;
    for reply in replies.iter().filter(|reply| reply.changed != Change::No) {
        if reply.changed == Change::Yes && known.replace(reply.seq) == Some(reply.seq) {
            verdict.found(Kind::RolledBack, || {
                format!("queue {} {}: two changes have seq {}", queue.name, epoch.born, reply.seq)
            });
        }
        first.get_or_insert(reply.seq);
        if last.replace(reply.seq) != Some(reply.seq) {
            owned += 1;
        }
    }
    let (Some(first), Some(_)) = (first, last) else { return };
    let highest = replies.last().map_or(0, |reply| reply.seq);
    // What was cut off, and what the count was raised by then.
    let void: u64 = epoch.undone.iter().map(|(survived, next)| next.min(&highest).saturating_sub(*survived)).sum();
    let unasked = (highest + 1 - first).saturating_sub(void + owned);
    if unasked > queue.unknown_calls {
        verdict.found(Kind::UnaskedChanges, || {
            let unknown = queue.unknown_calls;
            format!(
                "queue {} {}: {unasked} changes that no answered call made, and {unknown} calls without an answer",
                queue.name, epoch.born
            )
        });
    }
}
