//! The findings of the checker: for each kind of violation a count and a few described examples.

use std::collections::BTreeMap;

use serde::Serialize;

use super::excuses::Excuse;

/// The kinds of violations; the comments describe the message, answer or call that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A message whose push was acknowledged is neither settled, cancelled, dead nor waiting; or a
    /// failover undid it although it was acknowledged as replicated.
    Lost,
    /// A message was delivered, or is still stored, that nobody pushed; or it differs from what was
    /// pushed.
    Unexpected,
    /// A message was claimed before its due time by the server's clock.
    Early,
    /// A message was claimed before its delay had passed, by the clock of the processes.
    EarlyByClient,
    /// A message was claimed before the new due time that a retry, again, crash or move gave it.
    RetriedEarly,
    /// A claim returned another due time than the message has.
    WrongDue,
    /// A message was claimed while another lease on it lasted.
    OverlappingLeases,
    /// A lease ended before its deadline without a settlement.
    LeasesCutShort,
    /// A settlement with a token that was not the current one took effect.
    StaleTokensAccepted,
    ClaimedAfterAck,
    FiredAfterCancel,
    /// An id is in two states, or the remaining keys are inconsistent in another way.
    TwoStates,
    DeadAndDelivered,
    /// A message was delivered or made a second time without an explanation.
    UnexplainedDuplicates,
    /// A message was granted between the answer to a pause and the resume.
    GrantedWhilePaused,
    /// A message was granted before the time until which the queue was closed.
    GrantedWhileClosed,
    /// More starts in a window than the rate of the queue allows.
    OverRate,
    /// More messages leased than the queue allows.
    OverLeased,
    /// A message was granted after its deadline, or after it was dropped as expired.
    GrantedExpired,
    /// A message is stored although its push was refused.
    RefusedLeftTrace,
    /// An attempt that differs from failures plus crashes plus one.
    Miscounted,
    /// A message is dead before its limit or deadline, or is not dead after it.
    WrongDeaths,
    /// A caller got an outcome that the server did not report, or one for a message that no process
    /// pushed.
    ApiLies,
    /// An answer contradicts earlier ones.
    Contradictions,
    /// The server forgot a change that it had answered, although the harness did not truncate its
    /// file.
    RolledBack,
    /// The queue has more changes than calls.
    UnaskedChanges,
    /// A time in an answer or of a remaining message is not the requested one.
    WrongTimes,
    /// A claim found nothing although a message was due, or there was no claim for long without a
    /// fault.
    Late,
    /// A message was claimed after one with a later due time.
    OutOfOrder,
    /// A message was granted to a process that neither started nor returned it.
    NeverStarted,
    /// A server of HTTP handed one delivery to two claims.
    HandedOutTwice,
    /// The lease of a grant expired, which charges a crash, although its claim over HTTP was
    /// repeated and answered in time.
    ChargedToRepetition,
    /// A server of HTTP settled a delivery that no consumer asked it to settle, or released one
    /// that a consumer had or could still ask for.
    SettledUnasked,
    /// A worker kept claiming after an unanswered claim, and never asked what that claim was
    /// granted. The leases expired: a crash was charged for a delivery that no handler saw.
    ChargedUnseen,
    /// A worker's settlement was refused while its lease lasted, and not repeated: the message is
    /// handled twice.
    SettlementDropped,
    /// After a fault, workers claimed again later than they must.
    RecoveredLate,
    /// A worker ran more handlers than its concurrency, more handlers of a queue than its max, or
    /// handlers of other queues in a reserve.
    SharesBroken,
    /// A message was stored in a partition to which its id does not belong.
    InTwoPartitions,
    /// A call looked for an id in a partition to which the id does not belong.
    InNone,
    /// A partition applied a call that was routed by another map than its own.
    OldMapAccepted,
    /// No worker called a partition for more than 4 s.
    Unattended,
    /// A fire of a schedule is in none of its counts, or in two; or a tick is counted that no claim
    /// granted.
    UnaccountedFires,
    /// A follow-up is stored although its ack was refused.
    ChildOfRefusedAck,
    /// A push with a window stored a message, and another push stored a second one before the
    /// window ended.
    SecondCreatedInWindow,
}

impl Kind {
    pub const ALL: [Self; 44] = [
        Self::Lost,
        Self::Unexpected,
        Self::Early,
        Self::EarlyByClient,
        Self::RetriedEarly,
        Self::WrongDue,
        Self::OverlappingLeases,
        Self::LeasesCutShort,
        Self::StaleTokensAccepted,
        Self::ClaimedAfterAck,
        Self::FiredAfterCancel,
        Self::TwoStates,
        Self::DeadAndDelivered,
        Self::UnexplainedDuplicates,
        Self::GrantedWhilePaused,
        Self::GrantedWhileClosed,
        Self::OverRate,
        Self::OverLeased,
        Self::GrantedExpired,
        Self::RefusedLeftTrace,
        Self::Miscounted,
        Self::WrongDeaths,
        Self::ApiLies,
        Self::Contradictions,
        Self::RolledBack,
        Self::UnaskedChanges,
        Self::WrongTimes,
        Self::Late,
        Self::OutOfOrder,
        Self::NeverStarted,
        Self::HandedOutTwice,
        Self::ChargedToRepetition,
        Self::SettledUnasked,
        Self::ChargedUnseen,
        Self::SettlementDropped,
        Self::RecoveredLate,
        Self::SharesBroken,
        Self::InTwoPartitions,
        Self::InNone,
        Self::OldMapAccepted,
        Self::Unattended,
        Self::UnaccountedFires,
        Self::ChildOfRefusedAck,
        Self::SecondCreatedInWindow,
    ];
}

/// The reasons for which a message was delivered more than once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    LeaseRanOut,
    Retry,
    Again,
    Release,
    Snooze,
    Throttle,
    Requeue,
    /// A call without an answer may have delivered it.
    UnknownOutcome,
}

/// Counts of pushes with a window: those that stored a message, and those that a window prevented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct OfWindows {
    pub created: u64,
    pub remembered: u64,
}

/// Batches that left a partition, the messages in them, and batches that came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct OfMoves {
    pub batches: u64,
    pub messages: u64,
    pub returned: u64,
}

/// Counts of schedules. The fires and their counts are those of the schedules that remain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct OfSchedules {
    pub left: u64,
    pub fires: u64,
    pub made: u64,
    pub missed: u64,
    pub overlapped: u64,
    pub paused: u64,
    pub triggered: u64,
    /// Schedules that have made as many ticks as their limit.
    pub ended: u64,
    /// Ticks of past fires that a backfill made.
    pub backfilled: u64,
    /// Lists of crons that were refilled; below, those of them that had run dry before.
    pub refilled: u64,
    pub dry: u64,
    /// Deliveries of ticks.
    pub granted: u64,
    /// Declarations that were applied; below, those that were refused because their revision was
    /// older.
    pub applied: u64,
    pub stale: u64,
}

/// Counts of consumers over HTTP. None of them is a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct OfHttp {
    pub claims: u64,
    /// Tries of claims that got no complete answer.
    pub unanswered: u64,
    pub handed_out: u64,
    /// Deliveries that a repeated claim got from an earlier grant.
    pub repeated: u64,
    /// Grants that the servers released because no consumer received them.
    pub given_back: u64,
    /// Grants that no consumer received in time and no server released: a crash was charged.
    pub unreceived: u64,
    pub settled: u64,
}

impl OfHttp {
    /// Whether consumers over HTTP ran and yet the run proves nothing about them: no claim got a
    /// message, or of many unanswered claims none was repeated.
    pub(super) fn proves_nothing(&self) -> bool {
        self.claims > 0 && self.handed_out == 0 || self.unanswered >= FEW && self.repeated == 0
    }
}

/// Above this number of unanswered claims, some must have been granted messages.
const FEW: u64 = 50;

/// For how long due messages waited for a claim, in ms. Waits with a clock step are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Lateness {
    pub judged: u64,
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
}

/// The counts of one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct OfQueue {
    pub messages: u64,
    pub deliveries: u64,
    /// The number of violations that concern its messages.
    pub violations: u64,
    pub lateness: Lateness,
}

/// How far the limits of queues and messages took effect. None of these counts is a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Limited {
    /// Grants that were judged by a rate; below, the most starts within one window.
    pub under_rate: u64,
    pub most_in_window: u64,
    /// Grants that were judged by `max_leased`; below, the most messages leased at once.
    pub under_max_leased: u64,
    pub most_leased: u64,
    /// Messages that became dead or were dropped because they expired.
    pub expired: u64,
    /// Snoozes that were applied; below, throttles.
    pub snoozed: u64,
    pub throttled: u64,
}

/// The number of examples that are kept of each kind.
const EXAMPLES: usize = 5;

/// The result of the checker.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Verdict {
    /// Whether the run can prove anything.
    pub valid: bool,
    pub invalid_because: Vec<String>,
    /// The number of different messages that were stored.
    pub messages: u64,
    pub deliveries: u64,
    /// Pushes that were acknowledged as replicated: no failover may undo them.
    pub replicated: u64,
    /// Messages stored without a replica that a failover or a truncated file undid before they were
    /// handled. `Durability::Memory` allows that loss: it is not a violation.
    pub lost_in_declared_window: u64,
    #[serde(flatten)]
    pub violations: BTreeMap<Kind, u64>,
    pub limits: Limited,
    pub schedules: OfSchedules,
    /// Messages that were stored together with an ack.
    pub follow_ups: u64,
    pub windows: OfWindows,
    pub moves: OfMoves,
    pub http: OfHttp,
    pub explained_duplicates: BTreeMap<Cause, u64>,
    /// The unanswered calls of each kind, and how many messages they explain.
    pub excuses: BTreeMap<&'static str, Excuse>,
    /// For how long messages waited for their claim, where that is certain.
    pub lateness: Lateness,
    /// The counts of each queue.
    pub queues: BTreeMap<String, OfQueue>,
    /// Messages that vanished, where only a purge can be the reason.
    #[serde(skip)]
    pub(super) swept: u64,
    /// Ids that could not be judged, because they have too many calls with unknown outcomes.
    pub unjudged: u64,
    /// Starts of handlers that were judged by the shares of their worker.
    pub shares_judged: u64,
    /// The number of answered calls of each verb.
    pub verbs: BTreeMap<String, u64>,
    /// How often each fault was begun.
    pub faults: BTreeMap<String, u64>,
    pub examples: BTreeMap<Kind, Vec<String>>,
}

impl Verdict {
    pub(super) fn new() -> Self {
        Self {
            violations: Kind::ALL.into_iter().map(|kind| (kind, 0)).collect(),
            ..Self::default()
        }
    }

    pub fn count(&self, kind: Kind) -> u64 {
        self.violations.get(&kind).copied().unwrap_or(0)
    }

    /// Whether there are no violations, and the run proves anything.
    pub fn is_clean(&self) -> bool {
        self.violations.values().all(|count| *count == 0)
    }

    pub fn is_green(&self) -> bool {
        self.valid && self.is_clean()
    }

    /// Counts a violation. `words` describes it, and is called only if the example is kept.
    pub(super) fn found(&mut self, kind: Kind, words: impl FnOnce() -> String) {
        *self.violations.entry(kind).or_default() += 1;
        let examples = self.examples.entry(kind).or_default();
        if examples.len() < EXAMPLES {
            examples.push(words());
        }
    }

    /// Adds the findings about one id.
    pub(super) fn add(&mut self, other: Self) {
        self.messages += other.messages;
        self.deliveries += other.deliveries;
        self.replicated += other.replicated;
        self.lost_in_declared_window += other.lost_in_declared_window;
        self.unjudged += other.unjudged;
        self.swept += other.swept;
        self.limits.expired += other.limits.expired;
        self.limits.snoozed += other.limits.snoozed;
        self.limits.throttled += other.limits.throttled;
        for (kind, count) in other.violations {
            *self.violations.entry(kind).or_default() += count;
        }
        for (cause, count) in other.explained_duplicates {
            *self.explained_duplicates.entry(cause).or_default() += count;
        }
        for (kind, words) in other.examples {
            let examples = self.examples.entry(kind).or_default();
            examples.extend(
                words
                    .into_iter()
                    .take(EXAMPLES.saturating_sub(examples.len())),
            );
        }
    }

    /// Adds recoveries that took too long.
    pub fn recovered_late(&mut self, late: &[String]) {
        late.iter()
            .for_each(|words| self.found(Kind::RecoveredLate, || words.clone()));
    }

    pub(super) fn explained(&mut self, cause: Cause) {
        *self.explained_duplicates.entry(cause).or_default() += 1;
    }
}
