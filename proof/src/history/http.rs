//! The calls of a consumer over HTTP, and the answers it gets.

use serde::{Deserialize, Serialize};

use super::Verb;

/// A call of a consumer, or the answer to one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Http {
    /// The consumer sends a claim to this server. All tries of a claim have one number.
    ///
    /// Concurrent claims of one queue ask for different leases: so the lease of a grant identifies
    /// its claim.
    Claim {
        claim: u64,
        queue: String,
        server: String,
        max: u32,
        lease_ms: u64,
        /// Whether the claim has a `claim_id`.
        repeatable: bool,
    },
    /// The answer to the last try of the claim. `more`: the number of deliveries that follow.
    Claimed {
        claim: u64,
        status: u16,
        more: u64,
        deliveries: Vec<Handed>,
    },
    /// The last try of the claim got no complete answer.
    Unanswered { claim: u64, error: String },
    /// The consumer asks for a settlement, from one server after the other until one answers.
    Settle {
        op: u64,
        queue: String,
        verb: Verb,
        id: String,
        token: String,
    },
    /// The outcome of a settlement, in the words of the script; `?` begins one that may have taken
    /// effect.
    Settled { op: u64, outcome: String },
}

/// A delivery in an answer: id, token (the last 8 bytes, hexadecimal), version of the payload, due
/// ms, attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Handed(pub String, pub String, pub u32, pub u64, pub u32);
