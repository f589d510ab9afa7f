//! The reply to a claim.

use crate::error::Error;
use crate::protocol::replies::{Header, Reply};

/// One message that a claim granted.
pub(crate) struct Granted {
    pub(crate) id: Vec<u8>,
    pub(crate) payload: Vec<u8>,
    pub(crate) due_ms: u64,
    pub(crate) attempt: u32,
    /// How many earlier leases of this message expired.
    pub(crate) crashes: u32,
    /// Whether a failure of this attempt makes the message dead.
    pub(crate) is_last_attempt: bool,
    pub(crate) token: [u8; 16],
    pub(crate) deadline_ms: u64,
    /// Redis's time at the claim, in Unix microseconds.
    pub(crate) claimed_us: i64,
    pub(crate) trace_parent: Option<String>,
    pub(crate) expires_at_ms: Option<u64>,
    pub(crate) cost: u32,
    pub(crate) snoozes: u32,
    /// Whether the message is a tick of a schedule.
    pub(crate) is_tick: bool,
}

/// The reply to a claim.
pub(crate) struct Claim {
    pub(crate) header: Header,
    /// How many ready messages the claim left.
    pub(crate) left: u64,
    pub(crate) granted: Vec<Granted>,
}

impl Claim {
    pub(crate) fn decode(mut reply: Reply, token: [u8; 16]) -> Result<Self, Error> {
        Self::decode_from(&mut reply, token).map(|(left, granted)| Self {
            header: reply.header,
            left,
            granted,
        })
    }

    /// Decodes the reply to held: what a claim granted, and how many more messages its lease holds.
    pub(crate) fn decode_held(mut reply: Reply, token: [u8; 16]) -> Result<(Self, u64), Error> {
        let (left, granted) = Self::decode_from(&mut reply, token)?;
        let more = reply.body.count()?;
        let header = reply.header;
        let claim = Self {
            header,
            left,
            granted,
        };
        Ok((claim, more))
    }

    /// Decodes how many ready messages are left, and what was granted.
    fn decode_from(reply: &mut Reply, token: [u8; 16]) -> Result<(u64, Vec<Granted>), Error> {
        let left = reply.body.count()?;
        let deadline_ms = u64::try_from(reply.body.integer()?).unwrap_or(0);
        let (mut ids, mut payloads, mut details) = (
            reply.body.parts()?,
            reply.body.parts()?,
            reply.body.parts()?,
        );
        // A Functions library older than version 12 sends neither this limit nor the crashes.
        let queue_limit = match reply.body.is_empty() {
            true => None,
            false => Some(reply.body.count()?),
        };
        // If the details of all messages are equal, the reply has them once.
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
            let failures = attempt
                .saturating_sub(1)
                .saturating_sub(options.crashes.into());
            let limit = options.max_attempts.map(u64::from).or(queue_limit);
            granted.push(Granted {
                id: ids.bytes()?,
                payload: payloads.bytes()?,
                due_ms,
                attempt: u32::try_from(attempt).unwrap_or(u32::MAX),
                crashes: options.crashes,
                is_last_attempt: limit.is_some_and(|limit| failures.saturating_add(1) >= limit),
                token,
                deadline_ms,
                claimed_us: reply.header.now_us,
                trace_parent: options.trace_parent.clone(),
                expires_at_ms: options.expires_at_ms(due_ms),
                cost: options.cost.unwrap_or(1),
                snoozes: options.snoozes,
                is_tick: options.is_tick,
            });
        }
        Ok((left, granted))
    }
}
