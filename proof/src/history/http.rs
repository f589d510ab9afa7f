//! The calls of a consumer over HTTP, and what it is told.

use serde::{Deserialize, Serialize};

use super::Verb;

/// A call of a consumer, or the answer to one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Http {
    /// It sends a claim to this server. Each repetition has the number of the first one.
    ///
    /// Claims of a queue at about the same time ask for different leases: the lease of a grant tells
    /// which of them it is for.
    Claim {
        claim: u64,
        queue: String,
        server: String,
        max: u32,
        lease_ms: u64,
        /// It has a `claim_id`.
        repeatable: bool,
    },
    /// The answer to the last sending of the claim. `more` is how many deliveries follow.
    Claimed {
        claim: u64,
        status: u16,
        more: u64,
        deliveries: Vec<Handed>,
    },
    /// The last sending of the claim got no whole answer.
    Unanswered { claim: u64, error: String },
    /// It asks for a settlement, from one server after the other until it gets an answer.
    Settle {
        op: u64,
        queue: String,
        verb: Verb,
        id: String,
        token: String,
    },
    /// The outcome in the words of the script: `?` begins one that may have taken effect.
    Settled { op: u64, outcome: String },
}

/// A delivery in an answer: id, token (the last 8 bytes, hexadecimal), version of the payload, due
/// ms, attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Handed(pub String, pub String, pub u32, pub u64, pub u32);
