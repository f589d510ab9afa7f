//! Broken servers and consumers over HTTP, and broken scripts that only they use.

use super::{LIMIT_SECONDS, OF_MAPS, OF_MOVES, OF_SCHEDULES, SECONDS, VARIANTS, Variant};

/// How a process is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Program {
    /// Each server signs with a key of its own, so that none knows the claims of the others.
    KeysDiffer,
    /// A consumer leaves `claim_id` out, and repeats its claims all the same.
    ClaimIdForgotten,
    /// A consumer repeats its claims with another `claim_id`.
    ClaimIdRenewed,
    /// A consumer repeats a claim that was answered, and handles both answers.
    AnswersHandledTwice,
    /// A worker gives free handlers to the queue that it names first, whatever waits in the others.
    OrderWithoutTurns,
    /// A worker claims again after a claim without an answer, and forgets its grants.
    LostClaimsForgotten,
}

/// A broken script or program that a run or a drill must catch.
#[derive(Debug, Clone, Copy)]
pub enum Broken {
    Script(Variant),
    Program(BrokenProgram),
}

/// These are run only by hand: a run of 10 s on a busy machine does not always show their fault.
const BY_HAND: [&str; 3] = [
    "claim_ignores_limit",
    "refill_leaves_timer",
    "schedule_leaves_timer",
];

impl Broken {
    pub fn all() -> impl Iterator<Item = Self> {
        let scripts = VARIANTS.into_iter().chain(OF_SCHEDULES);
        let scripts = scripts.chain(OF_TOKENS).chain(OF_MAPS).chain(OF_MOVES);
        let programs = OF_HTTP.into_iter().chain(OF_WORKERS).map(Self::Program);
        programs.chain(scripts.map(Self::Script))
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Script(variant) => variant.name,
            Self::Program(broken) => broken.name,
        }
    }

    pub fn what(&self) -> &'static str {
        match self {
            Self::Script(variant) => variant.what,
            Self::Program(broken) => broken.what,
        }
    }

    /// The length of a run that catches the fault, in seconds.
    pub fn seconds(&self) -> u64 {
        match self {
            Self::Script(variant) => variant.seconds,
            Self::Program(broken) => broken.seconds,
        }
    }

    /// Whether it is run only if it is named, or if all are requested.
    pub fn is_by_hand(&self) -> bool {
        BY_HAND.contains(&self.name())
    }

    pub fn program(&self) -> Option<Program> {
        match self {
            Self::Script(_) => None,
            Self::Program(broken) => Some(broken.program),
        }
    }
}

/// A kind of fault, and a run in which all processes of that program have it.
#[derive(Debug, Clone, Copy)]
pub struct BrokenProgram {
    pub name: &'static str,
    pub what: &'static str,
    pub program: Program,
    /// The length of a run that catches the fault, in seconds.
    pub seconds: u64,
}

/// Broken programs over HTTP that a run on one server catches.
pub const OF_HTTP: [BrokenProgram; 4] = [
    BrokenProgram {
        name: "serve_keys_differ",
        what: "each server of HTTP signs claims with its own key",
        program: Program::KeysDiffer,
        seconds: LIMIT_SECONDS,
    },
    BrokenProgram {
        name: "consumer_forgets_claim_id",
        what: "a consumer repeats claims without claim_id",
        program: Program::ClaimIdForgotten,
        seconds: LIMIT_SECONDS,
    },
    BrokenProgram {
        name: "consumer_renews_claim_id",
        what: "a consumer repeats claims with another claim_id",
        program: Program::ClaimIdRenewed,
        seconds: LIMIT_SECONDS,
    },
    BrokenProgram {
        name: "consumer_handles_twice",
        what: "a consumer repeats an answered claim and handles both answers",
        program: Program::AnswersHandledTwice,
        seconds: LIMIT_SECONDS,
    },
];

/// Broken workers that a run on one server catches.
pub const OF_WORKERS: [BrokenProgram; 2] = [
    BrokenProgram {
        name: "worker_starves_last",
        what: "a worker gives the last queues a handler only while nothing waits in the others",
        program: Program::OrderWithoutTurns,
        seconds: SECONDS,
    },
    BrokenProgram {
        name: "worker_forgets_lost_claims",
        what: "a worker does not look for what its claim without an answer was granted",
        program: Program::LostClaimsForgotten,
        seconds: SECONDS,
    },
];

/// Scripts that break claims with a token of the caller. Only servers of HTTP make such claims.
pub const OF_TOKENS: [Variant; 3] = [
    Variant {
        name: "held_finds_nothing",
        what: "held returns nothing",
        verb: "held",
        shipped: shipped!("held"),
        exchanges: &[(
            "if claim and string.find(claim, token, 1, true) == 1",
            "if false",
        )],
        seconds: LIMIT_SECONDS,
    },
    Variant {
        name: "held_leaves_some_out",
        what: "held returns every second delivery of a claim",
        verb: "held",
        shipped: shipped!("held"),
        exchanges: &[(
            "if claim and string.find(claim, token, 1, true) == 1",
            "if i % 2 == 0 and claim and string.find(claim, token, 1, true) == 1",
        )],
        seconds: LIMIT_SECONDS,
    },
    Variant {
        name: "claim_grants_twice",
        what: "claim grants others to a claim whose token has a lease",
        verb: "claim",
        shipped: shipped!("claim"),
        exchanges: &[(
            "if count > 0 and redis.call('HEXISTS'",
            "if false and redis.call('HEXISTS'",
        )],
        seconds: LIMIT_SECONDS,
    },
];
