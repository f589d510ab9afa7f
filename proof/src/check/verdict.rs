//! The findings of the checker: for each kind of violation a count and a few described examples.

use std::collections::BTreeMap;

use serde::Serialize;

use super::excuses::Excuse;

/// The kinds of violations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Acknowledged, and neither settled, cancelled, dead nor waiting; or acknowledged as
    /// replicated, and undone.
    Lost,
    /// Delivered or left without a push, or not as it was pushed.
    Unexpected,
    /// Claimed before its due time by the server's clock.
    Early,
    /// Claimed sooner after its push than its delay, by the clock of the processes.
    EarlyByClient,
    /// Claimed before the new due time that a retry, again, crash or move gave it.
    RetriedEarly,
    /// Claimed with another due time than it has.
    WrongDue,
    /// Claimed during another lease on it.
    OverlappingLeases,
    /// A lease ended before its deadline without a settlement.
    LeasesCutShort,
    /// A settlement with a token that was not the current one took effect.
    StaleTokensAccepted,
    ClaimedAfterAck,
    FiredAfterCancel,
    /// An id in two states, or another inconsistency in the remaining keys.
    TwoStates,
    DeadAndDelivered,
    /// Delivered or made again without an explanation.
    UnexplainedDuplicates,
    /// Granted between the answer to a pause and the resume.
    GrantedWhilePaused,
    /// Granted before the time until which the queue was closed.
    GrantedWhileClosed,
    /// More starts in a window than the rate of the queue allows.
    OverRate,
    /// More messages leased than the queue allows.
    OverLeased,
    /// Granted after its deadline, or after it was dropped as expired.
    GrantedExpired,
    /// A refused push that is stored all the same.
    RefusedLeftTrace,
    /// An attempt that differs from failures plus crashes plus one.
    Miscounted,
    /// Dead before its limit or deadline, or not at it.
    WrongDeaths,
    /// A caller got an outcome that the server had not reported, or for a message that no process
    /// pushed.
    ApiLies,
    /// An answer that contradicts the earlier ones.
    Contradictions,
    /// The server forgot an answer, and the harness had not truncated its file.
    RolledBack,
    /// The queue has more changes than calls.
    UnaskedChanges,
    /// A time in an answer, or of a remaining message, that differs from the requested one.
    WrongTimes,
    /// A claim found nothing although a message was due, or no claim came for long without a fault.
    Late,
    /// Claimed after a message with a later due time.
    OutOfOrder,
    /// Granted to a process that neither started nor returned it.
    NeverStarted,
    /// A server of HTTP handed a delivery to two claims.
    HandedOutTwice,
    /// The lease of a grant ran out, although its claim over HTTP was repeated and answered in time:
    /// that charges a crash.
    ChargedToRepetition,
    /// A server of HTTP settled a delivery that no consumer asked it to settle, or gave back one that
    /// a consumer had or could still ask for.
    SettledUnasked,
    /// A worker went on claiming after a claim without an answer, did not ask for what that claim was
    /// granted, and the leases ran out: a crash was charged for a delivery that no handler saw.
    ChargedUnseen,
    /// A worker's settlement was refused while its lease lasted, and not sent again: the message is
    /// handled twice.
    SettlementDropped,
    /// After a fault, workers claimed again later than they must.
    RecoveredLate,
    /// A worker ran more handlers than its concurrency, more handlers of a queue than its max, or
    /// handlers of other queues in a reserve.
    SharesBroken,
    /// Made in a partition to which its id does not belong.
    InTwoPartitions,
    /// Looked for, by id, in a partition to which its id does not belong.
    InNone,
    /// A call by one map was applied by a partition with another.
    OldMapAccepted,
    /// No worker called a partition for more than 4 s.
    Unattended,
    /// A fire of a schedule that is in none of its counts or in two, or a tick in its counts that no
    /// claim granted.
    UnaccountedFires,
    /// A message that follows a delivery is there, although the ack was refused.
    ChildOfRefusedAck,
    /// A push with a window stored a message, and another one of its id before the window was over.
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

/// Why a message was delivered more than once.
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
    /// A call without an answer.
    UnknownOutcome,
}

/// Pushes with a window: those that stored a message, and those whose id a window remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct OfWindows {
    pub created: u64,
    pub remembered: u64,
}

/// What schedules did: the fires and their counts are of the schedules that remain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct OfSchedules {
    pub left: u64,
    pub fires: u64,
    pub made: u64,
    pub missed: u64,
    pub overlapped: u64,
    pub paused: u64,
    pub triggered: u64,
    /// Those that have made as many ticks as their limit.
    pub ended: u64,
    /// Ticks of past fires that were made by hand.
    pub backfilled: u64,
    /// Lists of crons that got fires, and of these the ones whose last fire was over before.
    pub refilled: u64,
    pub dry: u64,
    /// Deliveries of ticks.
    pub granted: u64,
    /// Declarations that were applied, and those that were refused as older.
    pub applied: u64,
    pub stale: u64,
}

/// What consumers over HTTP did. No violations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct OfHttp {
    pub claims: u64,
    /// Sendings of claims that got no whole answer.
    pub unanswered: u64,
    pub handed_out: u64,
    /// Deliveries of a grant that was older than the claim that got them: of a repetition.
    pub repeated: u64,
    /// Grants that the servers gave back, because nobody received them.
    pub given_back: u64,
    /// Grants that nobody received in time, and nobody gave back: a crash was charged.
    pub unreceived: u64,
    pub settled: u64,
}

impl OfHttp {
    /// Whether consumers over HTTP ran, and the run proves nothing about them: no claim got a message,
    /// or none of many claims without an answer was repeated.
    pub(super) fn proves_nothing(&self) -> bool {
        self.claims > 0 && self.handed_out == 0 || self.unanswered >= FEW && self.repeated == 0
    }
}

/// Of so many claims without an answer some were granted.
const FEW: u64 = 50;

/// How long due messages waited for a claim, in ms, clock steps left out.
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
    /// Violations of its messages.
    pub violations: u64,
    pub lateness: Lateness,
}

/// How far the limits of queues and messages took effect. None of these counts is a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Limited {
    /// Grants that were judged by a rate, and the most starts in one of its windows.
    pub under_rate: u64,
    pub most_in_window: u64,
    /// Grants that were judged by a limit of leased messages, and the most that were leased at once.
    pub under_max_leased: u64,
    pub most_leased: u64,
    /// Messages that were dead or dropped because they expired.
    pub expired: u64,
    /// Snoozes and throttles that were applied.
    pub snoozed: u64,
    pub throttled: u64,
}

/// How many examples of each kind are kept.
const EXAMPLES: usize = 5;

/// The result of the checker.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Verdict {
    /// Whether the run proves anything.
    pub valid: bool,
    pub invalid_because: Vec<String>,
    /// Different messages that were stored.
    pub messages: u64,
    pub deliveries: u64,
    /// Pushes that were acknowledged as replicated: no failover may undo them.
    pub replicated: u64,
    /// Stored messages without a wish for replicas that a failover or a truncated file undid before
    /// they were handled: a loss that `Durability::Memory` allows. No violation.
    pub lost_in_declared_window: u64,
    #[serde(flatten)]
    pub violations: BTreeMap<Kind, u64>,
    pub limits: Limited,
    pub schedules: OfSchedules,
    /// Messages that were stored together with an ack.
    pub follow_ups: u64,
    pub windows: OfWindows,
    pub http: OfHttp,
    pub explained_duplicates: BTreeMap<Cause, u64>,
    /// Calls without an answer, by kind: their number, and how many messages they explain.
    pub excuses: BTreeMap<&'static str, Excuse>,
    /// How late messages were claimed, where that is certain.
    pub lateness: Lateness,
    /// The same by queue.
    pub queues: BTreeMap<String, OfQueue>,
    /// Messages that vanished and that only a purge can have taken.
    #[serde(skip)]
    pub(super) swept: u64,
    /// Ids with too many unknown outcomes to be judged.
    pub unjudged: u64,
    /// Starts of handlers that were judged by the shares of their worker.
    pub shares_judged: u64,
    /// Answered calls, by verb.
    pub verbs: BTreeMap<String, u64>,
    /// How often each fault began.
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

    /// No violations, as far as the run proves anything.
    pub fn is_clean(&self) -> bool {
        self.violations.values().all(|count| *count == 0)
    }

    pub fn is_green(&self) -> bool {
        self.valid && self.is_clean()
    }

    /// Counts a violation; describes it only if the example is kept.
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
