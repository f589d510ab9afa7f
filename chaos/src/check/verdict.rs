//! What the checker found: a count and a few examples in words of each kind of violation.

use std::collections::BTreeMap;

use serde::Serialize;

use super::excuses::Excuse;

/// What must not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Acknowledged, and neither settled, cancelled, dead nor waiting; or acknowledged as replicated, and undone.
    Lost,
    /// Delivered or left though nobody pushed it, or not as it was pushed.
    Unexpected,
    /// Claimed before its due by the server's clock.
    Early,
    /// Claimed sooner after its push than its delay, by the clock of the processes.
    EarlyByClient,
    /// A message that a retry, again, crash or move put off, claimed before its new time.
    RetriedEarly,
    /// Claimed with another due than it has.
    WrongDue,
    /// Claimed while another lease on it ran.
    OverlappingLeases,
    /// A lease was taken before its deadline without a settle.
    LeasesCutShort,
    /// A settle acted with a token that was not the current one.
    StaleTokensAccepted,
    ClaimedAfterAck,
    FiredAfterCancel,
    /// An id in two states, or something else that does not fit together in what is left.
    TwoStates,
    DeadAndDelivered,
    /// Delivered or made again, and nothing explains it.
    UnexplainedDuplicates,
    /// Granted between the answer to a pause and the resume.
    GrantedWhilePaused,
    /// A push that was refused and is there all the same.
    RefusedLeftTrace,
    /// An attempt that is not the failures and crashes plus one.
    Miscounted,
    /// Dead before its limit, or not at it.
    WrongDeaths,
    /// A caller was told what the server had not said, or of a message that nobody pushed.
    ApiLies,
    /// An answer that cannot be, after those before it.
    Contradictions,
    /// The server forgot what it had answered, and nobody cut its files.
    RolledBack,
    /// The queue changed more often than it was called.
    UnaskedChanges,
    /// A time that was answered, or is left, is not the one that was asked for.
    WrongTimes,
    /// A claim found nothing although it waited, or nothing was claimed for long without a fault.
    Late,
    /// Claimed after what was due later.
    OutOfOrder,
    /// Granted to a process that neither started it nor gave it back.
    NeverStarted,
    /// After a fault work went on later than it must.
    RecoveredLate,
}

impl Kind {
    pub const ALL: [Self; 27] = [
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
        Self::RecoveredLate,
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
    Requeue,
    /// A call of which nobody knows whether it was applied.
    UnknownOutcome,
}

/// How long messages that were due waited for a claim, in ms, clock steps left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Lateness {
    pub judged: u64,
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
}

/// So many examples of each kind are kept.
const EXAMPLES: usize = 5;

/// What came out.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Verdict {
    /// Whether the run proves anything at all.
    pub valid: bool,
    pub invalid_because: Vec<String>,
    /// Different messages that were stored.
    pub messages: u64,
    pub deliveries: u64,
    /// Pushes that were acknowledged as replicated: no failover may undo them.
    pub replicated: u64,
    /// Messages that were stored, asking no replica, and then undone by a failover or a cut file before they were handled:
    /// what `Durability::Memory` may lose. No violation.
    pub lost_in_declared_window: u64,
    #[serde(flatten)]
    pub violations: BTreeMap<Kind, u64>,
    pub explained_duplicates: BTreeMap<Cause, u64>,
    /// Calls without an answer, by what they are: how many there were, and how many were needed to explain something.
    pub excuses: BTreeMap<&'static str, Excuse>,
    /// How late messages were claimed, where that is certain.
    pub lateness: Lateness,
    /// Messages that vanished, and that only a purge can have taken.
    #[serde(skip)]
    pub(super) swept: u64,
    /// Ids with so many unknown outcomes that they were not judged.
    pub unjudged: u64,
    /// Answered calls, by verb.
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

    /// Nothing went wrong, as far as the run proves anything.
    pub fn is_clean(&self) -> bool {
        self.violations.values().all(|count| *count == 0)
    }

    pub fn is_green(&self) -> bool {
        self.valid && self.is_clean()
    }

    /// Counts a violation; asks for the words only if they are kept.
    pub(super) fn found(&mut self, kind: Kind, words: impl FnOnce() -> String) {
        *self.violations.entry(kind).or_default() += 1;
        let examples = self.examples.entry(kind).or_default();
        if examples.len() < EXAMPLES {
            examples.push(words());
        }
    }

    /// Adds what was found about one id.
    pub(super) fn add(&mut self, other: Self) {
        self.messages += other.messages;
        self.deliveries += other.deliveries;
        self.replicated += other.replicated;
        self.lost_in_declared_window += other.lost_in_declared_window;
        self.unjudged += other.unjudged;
        self.swept += other.swept;
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
