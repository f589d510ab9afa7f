//! Whether due messages are claimed in the order of their due times, whether no claim overlooks
//! one, and whether there are no long pauses between claims.
//!
//! The first two rules need only the server's clock and no bound: they hold on the slowest machine
//! and during a fault. The third has a bound, `LONGEST_PAUSE_US`, and excludes the time of faults
//! and stalls.

use crate::check::collect::Collection;
use crate::check::context::{Context, Epoch};
use crate::check::liveness::faults::{Rule, Span, outside_us};
use crate::check::message::hypothesis::Hypothesis;
use crate::check::record::{Record, What};
use crate::check::verdict::{Cause, Kind, Verdict};
use crate::queues::{PARKING, is_found, is_limited};

/// The wait of a message, from when it was due until its claim.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Wait {
    id: u32,
    /// The process that pushed the message, if this is its first wait.
    pusher: Option<u16>,
    /// The `seq` of the change from which on it waited; and that of the claim.
    from_seq: u64,
    to_seq: u64,
    /// By the server's clock: when the message became claimable, and when it was claimed.
    since_ms: u64,
    claimed_ms: u64,
    /// Whether the message was stored before its due time.
    was_early: bool,
    /// By the clock of the processes: the latest possible start of the wait, and its earliest
    /// possible end.
    since_us: u64,
    claimed_us: u64,
}

impl Wait {
    /// Whether the message was never claimed.
    fn is_left(&self) -> bool {
        self.to_seq == self.from_seq
    }
}

/// The longest time without any claim while a message is due and no fault excuses it: five times
/// the fallback interval of 1 s.
const LONGEST_PAUSE_US: u64 = 5_000_000;
/// The longest such time for a queue whose limit delays claims.
const LIMITED_PAUSE_US: u64 = 10_000_000;
/// The longest such time for a queue that workers find by a pattern, while no notice can be lost:
/// half of the parking time.
const PARKED_PAUSE_US: u64 = PARKING.as_micros() as u64 / 2;
/// Two due times this close have no order, because one may be rounded up and the other down.
const SAME_MS: u64 = 2;

impl Hypothesis {
    /// The wait that this claim or the end of the run ends, if its times are certain.
    pub(crate) fn waited(
        &self,
        record: &Record,
        unknown: &[Record],
        context: &Context<'_>,
    ) -> Option<Wait> {
        let (Some(score_ms), true) = (self.score_ms, self.is_waiting()) else {
            return None;
        };
        // A message that is still there has waited until the last answer, and no claim passed it
        // over.
        let (to_seq, claimed_ms, claimed_us) = match record.what {
            What::Claim { .. } => (record.seq(), record.now(), record.asked_us),
            What::Left { .. } => (self.seq, context.epoch.latest_ms, context.epoch.last_us),
            _ => return None,
        };
        let gaps = context.epoch.gaps(self.seq, record.seq());
        let certain = !unknown.iter().any(|call| {
            gaps.iter()
                .any(|gap| gap.fits(call.asked_us, call.answered_us))
        }) && self.hidden == 0
            && self.hidden_crashes(record, context) + self.slack == 0
            && !matches!(self.again, Some(Cause::LeaseRanOut | Cause::Requeue))
            && !context.epoch.stepped(self.seq, record.seq());
        // For a call without an answer only a range of times is known: take the latest.
        let gap = context.epoch.gap(self.seq);
        let now_ms = gap.map_or(self.now_ms, |gap| gap.before_ms.max(self.now_ms));
        let since_ms = score_ms.max(now_ms.saturating_add(1));
        certain.then_some(Wait {
            id: record.id,
            pusher: pusher(context.records, self.seq),
            from_seq: self.seq,
            to_seq,
            since_ms,
            claimed_ms,
            was_early: score_ms >= now_ms,
            since_us: self
                .answered_us
                .saturating_add((since_ms - now_ms).saturating_mul(1_000)),
            claimed_us,
        })
    }
}

/// The process whose push made a message wait.
fn pusher(records: &[Record], seq: u64) -> Option<u16> {
    let pushes = records
        .iter()
        .filter(|record| matches!(record.what, What::Push { .. }));
    let mut pushes = pushes.filter(|record| record.seq() == seq);
    pushes.next().map(|record| record.process)
}

/// Judges all waits of one queue within one epoch.
pub(crate) fn judge(all: &Collection, epoch: &Epoch, waits: Vec<Wait>, verdict: &mut Verdict) {
    let (left, mut waits): (Vec<_>, Vec<_>) = waits.into_iter().partition(Wait::is_left);
    waits.sort_unstable_by_key(|wait| wait.to_seq);
    measure(&waits, &all.queues[usize::from(epoch.queue)].name, verdict);
    let latest = latest_of_each_claim(&waits);
    let rule = Rule::of(&all.queues[usize::from(epoch.queue)].name);
    let excused = all.excused(epoch.queue, rule);
    // For the pauses every claim counts, even if the wait of its message is not certain.
    let granted_us = all.queues[usize::from(epoch.queue)]
        .operators
        .pauses
        .granted_us();
    let granted_us = granted_us.into_iter().chain([epoch.last_us]).collect();
    let pauses = pauses(granted_us, rule.longest_us(), &excused);
    for wait in waits.iter().chain(&left) {
        let tell = |what: String| {
            let (
                name,
                Wait {
                    since_ms,
                    claimed_ms,
                    ..
                },
            ) = (all.name_of(wait.id), wait);
            format!(
                "{name} waited from {since_ms} ms, seq {}, to {claimed_ms} ms, seq {}: {what}",
                wait.from_seq, wait.to_seq
            )
        };
        if let Some((seq, now_ms)) = found_empty(epoch, wait) {
            verdict.found(Kind::Late, || {
                tell(format!("a claim found nothing at {now_ms} ms, seq {seq}"))
            });
        }
        if let Some((seq, since_ms)) = overtaken(&latest, wait) {
            let what =
                format!("one that was due at {since_ms} ms was claimed before it, seq {seq}");
            verdict.found(Kind::OutOfOrder, || tell(what));
        }
        let within = |pause: &&(u64, u64)| {
            let missed = rule == Rule::Parked && is_behind_older(all, &waits, wait, **pause);
            let limit_us = rule.longest_us() + if missed { 2 * PARKED_PAUSE_US } else { 0 };
            let (from_us, to_us) = (pause.0.max(wait.since_us), pause.1.min(wait.claimed_us));
            outside_us((from_us, to_us), &excused) > limit_us
        };
        if let Some((from_us, to_us)) = pauses.iter().find(within) {
            verdict.found(Kind::Late, || {
                tell(format!("nothing was claimed from {from_us} to {to_us} us"))
            });
        }
    }
}

/// The last claim before this wait ended that found nothing although the message was due.
fn found_empty(epoch: &Epoch, wait: &Wait) -> Option<(u64, u64)> {
    let before = epoch.empty.partition_point(|(seq, _)| *seq < wait.to_seq);
    let (seq, now_ms) = *epoch.empty.get(before.checked_sub(1)?)?;
    (seq >= wait.from_seq && now_ms >= wait.since_ms && now_ms <= wait.claimed_ms)
        .then_some((seq, now_ms))
}

/// The grant of one claim.
struct Grant {
    seq: u64,
    now_ms: u64,
    /// The latest due time among the granted messages.
    latest_ms: u64,
}

/// For each claim, in the order of `seq`: its grant of messages that had waited for their due
/// times.
fn latest_of_each_claim(waits: &[Wait]) -> Vec<Grant> {
    let claims = waits.chunk_by(|one, other| one.to_seq == other.to_seq);
    let latest = |claim: &[Wait]| {
        let latest_ms = claim
            .iter()
            .filter(|wait| wait.was_early)
            .map(|wait| wait.since_ms)
            .max()?;
        let first = claim.first()?;
        Some(Grant {
            seq: first.to_seq,
            now_ms: first.claimed_ms,
            latest_ms,
        })
    };
    claims.filter_map(latest).collect()
}

/// A claim during this wait that granted a message with a later due time.
fn overtaken(latest: &[Grant], wait: &Wait) -> Option<(u64, u64)> {
    let from = latest.partition_point(|grant| grant.seq <= wait.from_seq);
    let until = latest.partition_point(|grant| grant.seq < wait.to_seq);
    let between = latest.get(from..until).unwrap_or_default();
    // The clock did not go back during the wait.
    let due = between.partition_point(|grant| grant.now_ms <= wait.since_ms);
    let mut later = between.get(due..).unwrap_or_default().iter();
    later
        .find(|grant| grant.latest_ms > wait.since_ms + SAME_MS)
        .map(|grant| (grant.seq, grant.latest_ms))
}

/// Whether the pause is explained by a producer with old scripts, which publish no notice for a
/// parked queue: it pushed this message, or another one first in the pause.
fn is_behind_older(all: &Collection, waits: &[Wait], wait: &Wait, pause: (u64, u64)) -> bool {
    waits.iter().any(|other| {
        other.from_seq <= wait.from_seq
            && other.claimed_us >= pause.1
            && other
                .pusher
                .is_some_and(|pusher| all.older.contains(&pusher))
    })
}

impl Rule {
    fn of(queue: &str) -> Self {
        match queue {
            queue if is_found(queue) => Self::Parked,
            queue if is_limited(queue) => Self::Limited,
            _ => Self::Named,
        }
    }

    fn longest_us(self) -> u64 {
        match self {
            Self::Named => LONGEST_PAUSE_US,
            Self::Parked => PARKED_PAUSE_US,
            Self::Limited => LIMITED_PAUSE_US,
        }
    }
}

/// The spans without any claim that are longer than the bound.
fn pauses(mut claimed: Vec<u64>, longest_us: u64, excused: &[Span]) -> Vec<Span> {
    claimed.sort_unstable();
    claimed.insert(0, 0);
    let between = claimed.windows(2).map(|pair| (pair[0], pair[1]));
    between
        .filter(|pause| outside_us(*pause, excused) > longest_us)
        .collect()
}

fn measure(waits: &[Wait], queue: &str, verdict: &mut Verdict) {
    let mut late: Vec<u64> = waits
        .iter()
        .map(|wait| wait.claimed_ms.saturating_sub(wait.since_ms))
        .collect();
    late.sort_unstable();
    let at = |place: usize| late.get(place).copied().unwrap_or(0);
    let of_queue = verdict.queues.entry(queue.to_owned()).or_default();
    if late.len() as u64 > verdict.lateness.judged.min(of_queue.lateness.judged) {
        let (p50, p99, max) = (
            at(late.len() / 2),
            at(late.len() * 99 / 100),
            at(late.len().saturating_sub(1)),
        );
        let found = crate::check::verdict::Lateness {
            judged: late.len() as u64,
            p50,
            p99,
            max,
        };
        for known in [&mut of_queue.lateness, &mut verdict.lateness] {
            if found.judged > known.judged {
                *known = found;
            }
        }
    }
}
