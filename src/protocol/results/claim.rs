//! The reply to a claim.

use crate::error::Error;
use crate::protocol::replies::{Header, Reply};

/// One message that a claim granted.
pub(crate) struct Granted {
    pub(crate) id: Vec<u8>,
    pub(crate) payload: Vec<u8>,
    pub(crate) due_ms: u64,
    pub(crate) attempt: u32,
    pub(crate) token: [u8; 16],
    pub(crate) deadline_ms: u64,
    /// Redis's time at the claim.
    pub(crate) claimed_us: i64,
    pub(crate) trace_parent: Option<String>,
}

/// The reply to a claim.
pub(crate) struct Claim {
    pub(crate) header: Header,
    /// How many ready messages it left.
    pub(crate) left: u64,
    pub(crate) granted: Vec<Granted>,
}

impl Claim {
    pub(crate) fn decode(mut reply: Reply, token: [u8; 16]) -> Result<Self, Error> {
        let left = reply.body.count()?;
        let deadline_ms = u64::try_from(reply.body.integer()?).unwrap_or(0);
        let (mut ids, mut payloads, mut details) = (
            reply.body.parts()?,
            reply.body.parts()?,
            reply.body.parts()?,
        );
        // One detail may be shared by all messages.
        let shared = details.len() == 1;
        if payloads.len() != ids.len() || details.len() != ids.len() && !shared {
            let lengths = format!(
                "{} ids, {} payloads and {} details",
                ids.len(),
                payloads.len(),
                details.len()
            );
            return Err(reply.body.unexpected(&lengths));
        }
        let mut granted = Vec::with_capacity(ids.len());
        let ([mut due_ms, mut attempt], mut options) = Default::default();
        while !ids.is_empty() {
            if !details.is_empty() {
                ([due_ms, attempt], options) = details.counts_and_options()?;
            }
            granted.push(Granted {
                id: ids.bytes()?,
                payload: payloads.bytes()?,
                due_ms,
                attempt: u32::try_from(attempt).unwrap_or(u32::MAX),
                token,
                deadline_ms,
                claimed_us: reply.header.now_us,
                trace_parent: options.trace_parent.clone(),
            });
        }
        Ok(Self {
            header: reply.header,
            left,
            granted,
        })
    }
}
