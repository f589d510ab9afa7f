//! Pauses of a queue, with or without an end, and throttles: no claim may grant meanwhile.

use crate::check::collect::Collection;
use crate::check::context::Epoch;
use crate::check::excuses::UNDER_WAY_US;
use crate::check::record::Record;
use crate::check::verdict::{Kind, Verdict};

/// An answered change that closes or opens the queue.
#[derive(Debug, Clone, Copy)]
struct Change {
    epoch: u16,
    seq: u64,
    asked_us: u64,
    shut: Shut,
    /// Whether a handler closed the queue. That is too short to delay a claim by a second.
    by_handler: bool,
}

impl Change {
    /// Whether the change closes the queue at this time of the server.
    fn closes_at(&self, now_us: u64) -> bool {
        matches!(self.shut, Shut::Closed { until_ms, .. } if now_us / 1_000 < until_ms)
    }
}

#[derive(Debug, Clone, Copy)]
enum Shut {
    Open,
    Paused,
    /// Closed until a time of the server. By the clock of the processes it opens at the latest at
    /// `opens_us`.
    Closed {
        until_ms: u64,
        opens_us: u64,
    },
}

/// A claim.
#[derive(Debug, Clone, Copy)]
struct Claim {
    epoch: u16,
    seq: u64,
    process: u16,
    now_us: u64,
    asked_us: u64,
    answered_us: u64,
}

impl Claim {
    fn of(record: &Record) -> Self {
        Self {
            epoch: record.epoch,
            seq: record.seq(),
            process: record.process,
            now_us: record.now_us,
            asked_us: record.asked_us,
            answered_us: record.answered_us,
        }
    }
}

/// The pauses and the claims of one queue.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    changes: Vec<Change>,
    /// The claims that granted messages; below, those that found none.
    grants: Vec<Claim>,
    /// Claims that found none; the flag says whether they looked at messages, which may have
    /// expired.
    empty: Vec<(Claim, bool)>,
    /// When unanswered resumes were sent.
    lost_resumes: Vec<u64>,
    /// When unanswered pauses without an end were sent.
    lost_pauses: Vec<u64>,
    /// When unanswered pauses with an end were sent; and the latest time at which the queue opens
    /// after each.
    lost_closings: Vec<(u64, u64)>,
}

impl Pauses {
    pub(crate) fn granted(&mut self, record: &Record) {
        self.grants.push(Claim::of(record));
    }

    /// When each claim that granted messages was sent.
    pub(crate) fn granted_us(&self) -> Vec<u64> {
        self.grants.iter().map(|grant| grant.asked_us).collect()
    }

    /// Notes a claim that found nothing although the queue was not paused. `may_expire`: it may
    /// have ended expired messages.
    pub(crate) fn found_empty(&mut self, record: &Record, may_expire: bool) {
        self.empty.push((Claim::of(record), may_expire));
    }

    /// The claims that found nothing while the queue was certainly open: epoch, `seq`, and the
    /// server's time in ms. A change that a failover undid counts only for claims that it undid as
    /// well. `expires`: whether messages of the queue may expire.
    pub(crate) fn empty_while_open(
        &self,
        epochs: &[Epoch],
        expires: bool,
    ) -> Vec<(u16, (u64, u64))> {
        let is_void = |epoch: u16, seq| epochs[usize::from(epoch)].is_void(seq);
        let all = self.sorted(|_| true);
        let lasting = self.sorted(|change| !is_void(change.epoch, change.seq));
        let may_be_closed = |claim: &&Claim| {
            let is_undone = is_void(claim.epoch, claim.seq);
            let changes = if is_undone { &all } else { &lasting };
            let mut closings = since_resume(changes, claim);
            closings.any(|change| change.closes_at(claim.now_us))
                || self.lost_closings.iter().any(|(asked_us, opens_us)| {
                    *asked_us < claim.answered_us && claim.asked_us < *opens_us
                })
        };
        let empty = self.empty.iter();
        let empty = empty.filter(|(_, may_expire)| !(expires && *may_expire));
        let open = empty.map(|(claim, _)| claim);
        let open = open.filter(|claim| !may_be_closed(claim));
        open.map(|claim| (claim.epoch, (claim.seq, claim.now_us / 1_000)))
            .collect()
    }

    /// The changes that `counts` accepts, in order. All answers with one `seq` saw one state of the
    /// queue.
    fn sorted(&self, counts: impl Fn(&Change) -> bool) -> Vec<Change> {
        let mut changes = self.changes.clone();
        changes.retain(counts);
        changes.sort_by_key(|change| (change.epoch, change.seq));
        changes
    }

    /// Notes an answered pause. Returns whether these words are an answer to it.
    pub(crate) fn paused(&mut self, args: &[String], words: &[String], record: &Record) -> bool {
        let shut = match (args, words) {
            ([], [ok]) if ok == "OK" => Shut::Paused,
            ([period_ms], [answer]) => {
                let until_ms = answer.strip_prefix("OK ").and_then(|ms| ms.parse().ok());
                let (Some(until_ms), Ok(period_ms)) = (until_ms, period_ms.parse::<u64>()) else {
                    return false;
                };
                let opens_us = record.answered_us + 1_000 * period_ms;
                Shut::Closed { until_ms, opens_us }
            }
            _ => return false,
        };
        self.change(shut, record, false);
        true
    }

    /// Notes an answered throttle. The answer may name a later time, if the queue is closed until
    /// then for another reason.
    pub(crate) fn throttled(&mut self, wait_ms: u64, record: &Record) {
        let until_ms = record.now_up() + wait_ms;
        let opens_us = record.answered_us + 1_000 * wait_ms;
        self.change(Shut::Closed { until_ms, opens_us }, record, true);
    }

    pub(crate) fn resumed(&mut self, record: &Record) {
        self.change(Shut::Open, record, false);
    }

    pub(crate) fn lost_resume(&mut self, asked_us: u64) {
        self.lost_resumes.push(asked_us);
    }

    pub(crate) fn lost_pause(&mut self, args: &[String], asked_us: u64) {
        match args.first() {
            None => self.lost_pauses.push(asked_us),
            Some(ms) => self.lost_throttle(ms.parse().ok(), asked_us),
        }
    }

    /// Notes an unanswered throttle: if it has a length, it may have closed the queue.
    pub(crate) fn lost_throttle(&mut self, period_ms: Option<u64>, asked_us: u64) {
        self.lost_closings
            .extend(period_ms.map(|ms| (asked_us, asked_us + UNDER_WAY_US + 1_000 * ms)));
    }

    fn change(&mut self, shut: Shut, record: &Record, by_handler: bool) {
        self.changes.push(Change {
            epoch: record.epoch,
            seq: record.seq(),
            asked_us: record.asked_us,
            shut,
            by_handler,
        });
    }

    /// The spans, by the clock of the processes, from each pause to the first resume after it, or
    /// until the queue opens without one.
    pub(crate) fn windows_us(&self) -> Vec<(u64, u64)> {
        let changes = self.changes.iter();
        let resumed = changes
            .clone()
            .filter(|change| matches!(change.shut, Shut::Open))
            .map(|change| change.asked_us);
        let mut resumed: Vec<u64> = resumed.chain(self.lost_resumes.iter().copied()).collect();
        resumed.sort_unstable();
        let shut = |change: &Change| match change.shut {
            Shut::Open => None,
            Shut::Paused => Some((change.asked_us, u64::MAX)),
            Shut::Closed { opens_us, .. } => Some((change.asked_us, opens_us)),
        };
        let long = changes.filter(|change| !change.by_handler).filter_map(shut);
        // An operator resumes a queue only if it is paused, so a lost pause may have closed it.
        let lost = self.lost_pauses.iter();
        let lost = lost.map(|asked_us| (*asked_us, asked_us + UNDER_WAY_US));
        long.chain(lost)
            .map(|(asked_us, longest)| {
                let later = resumed.iter().find(|us| **us > asked_us);
                (asked_us, later.map_or(longest, |us| longest.min(*us)))
            })
            .collect()
    }

    pub(crate) fn judge(&self, all: &Collection, queue: &str, verdict: &mut Verdict) {
        let is_void = |epoch: u16, seq| all.epochs[usize::from(epoch)].is_void(seq);
        let changes = self.sorted(|change| !is_void(change.epoch, change.seq));
        let grants = self.grants.iter();
        for grant in grants.filter(|grant| !is_void(grant.epoch, grant.seq)) {
            // Scripts of release 0.1 do not know closed queues.
            let knows_closing = !all.older.contains(&grant.process);
            let kind_of = |change: &Change| match change.shut {
                Shut::Paused => Some(Kind::GrantedWhilePaused),
                _ if knows_closing
                    && change.closes_at(grant.now_us)
                    && !self.has_opened(change, grant, all) =>
                {
                    Some(Kind::GrantedWhileClosed)
                }
                _ => None,
            };
            let violated = since_resume(&changes, grant)
                .filter(|change| !self.may_be_resumed(change, grant))
                .find_map(|change| Some((change, kind_of(change)?)));
            if let Some((change, kind)) = violated {
                verdict.found(kind, || {
                    format!(
                        "queue {queue}: a claim with seq {} was granted messages at {} us; with seq \
                         {} it was {:?}",
                        grant.seq, grant.now_us, change.seq, change.shut
                    )
                });
            }
        }
    }

    /// Whether the queue had opened before this grant: an earlier grant came after the end of the
    /// closing. If the server's clock then goes back, the queue stays open.
    fn has_opened(&self, change: &Change, grant: &Claim, all: &Collection) -> bool {
        let epoch = &all.epochs[usize::from(grant.epoch)];
        let between = change.seq + 1..grant.seq;
        let shows = |claim: &&Claim| {
            claim.epoch == grant.epoch
                && between.contains(&claim.seq)
                && !change.closes_at(claim.now_us)
                && epoch.stepped(claim.seq, grant.seq)
                && !epoch.is_void(claim.seq)
                && !all.older.contains(&claim.process)
        };
        self.grants.iter().any(|claim| shows(&claim))
    }

    /// Whether a resume without an answer may have ended a pause before this grant.
    fn may_be_resumed(&self, change: &Change, grant: &Claim) -> bool {
        let may_end = |resume_us: &u64| {
            *resume_us < grant.answered_us && change.asked_us < resume_us + UNDER_WAY_US
        };
        self.lost_resumes.iter().any(may_end)
    }
}

/// The pauses before a claim, the latest first, back to the last resume, which ends all earlier
/// ones.
fn since_resume<'a>(changes: &'a [Change], claim: &Claim) -> impl Iterator<Item = &'a Change> {
    let (epoch, at) = (claim.epoch, (claim.epoch, claim.seq));
    let after = changes.partition_point(|change| (change.epoch, change.seq) <= at);
    let before = changes[..after].iter().rev();
    before.take_while(move |change| change.epoch == epoch && !matches!(change.shut, Shut::Open))
}
