//! Decodes the replies to operators' calls (steps of a requeue or purge, the deletion of an unused
//! queue, a new map) and to the calls of nodes.

use crate::error::Error;
use crate::model::outcomes::{KeepReason, UnusedOutcome};
use crate::protocol::partition_map::Tag;
use crate::protocol::replies::{Header, Reply};

/// The reply to one step of a requeue of all dead messages, or of a purge.
pub(crate) struct Step {
    /// The server's clock at this step, in Unix milliseconds.
    pub(crate) now_ms: u64,
    /// The incarnation of the queue; empty without a queue.
    pub(crate) incarnation: String,
    /// The epoch of the partition's map.
    pub(crate) epoch: Option<u64>,
    /// How many messages the step dealt with.
    pub(crate) done: u64,
    /// How many selected messages are left.
    pub(crate) left: u64,
    /// How many timers of schedules a purge has skipped. The next step begins after them.
    pub(crate) passed: u64,
}

impl Step {
    pub(crate) fn decode(mut reply: Reply) -> Result<Self, Error> {
        Ok(Self {
            now_ms: u64::try_from(reply.header.now_us / 1_000).unwrap_or(0),
            incarnation: reply.header.incarnation,
            epoch: reply.header.epoch,
            done: reply.body.count()?,
            left: reply.body.count()?,
            passed: if reply.body.is_empty() {
                0
            } else {
                reply.body.count()?
            },
        })
    }

    /// Whether a purge has ended because the state has no further messages.
    pub(crate) fn found_none(&self) -> bool {
        self.done == 0 && self.passed == 0
    }
}

/// Decodes the reply of the script that looks for an unused queue.
pub(crate) fn unused(text: &str) -> Option<UnusedOutcome> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    match word {
        "ABSENT" => Some(UnusedOutcome::Absent),
        "UNUSED" => rest.parse().ok().map(UnusedOutcome::Since),
        "KEPT" => {
            let mut all = KeepReason::ALL.into_iter();
            all.find(|why| why.as_str() == rest)
                .map(UnusedOutcome::Kept)
        }
        _ => None,
    }
}

/// What a call of remap did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remapped {
    /// The partition has the map now; after a `forward` it may have a newer one.
    Done,
    /// Nothing was changed: the partition holds this number of messages.
    Has(u64),
    /// Nothing was changed: the partition still remembers calls or messages for this number of
    /// milliseconds.
    Remembers(u64),
    /// Nothing was changed: the partition's map has this epoch, not the expected one; 0 without a
    /// map.
    Epoch(u64),
}

impl Remapped {
    pub(crate) fn decode(mut reply: Reply) -> Result<Self, Error> {
        let text = reply.body.text()?;
        let (word, number) = text.split_once(' ').unwrap_or((&text, ""));
        match (word, number.parse()) {
            ("DONE", _) => Ok(Self::Done),
            ("HAS", Ok(messages)) => Ok(Self::Has(messages)),
            ("REMEMBERS", Ok(ms)) => Ok(Self::Remembers(ms)),
            ("EPOCH", Ok(epoch)) => Ok(Self::Epoch(epoch)),
            _ => Err(reply.body.unexpected(&format!("{text:?}"))),
        }
    }
}

/// The batch that is on its way from a partition.
pub(crate) struct Departed {
    pub(crate) number: u64,
    /// The partition to which it goes.
    pub(crate) tag: Tag,
    pub(crate) messages: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Departed {
    /// Decodes the reply to depart; `None` if no batch is on its way.
    pub(crate) fn decode(mut reply: Reply) -> Result<Option<Self>, Error> {
        let body = &mut reply.body;
        let (number, text) = (body.count()?, body.text()?);
        let (messages, bytes) = (body.count()?, body.bytes()?);
        if number == 0 {
            return Ok(None);
        }
        let tag = Tag::parse(&text).ok_or_else(|| body.unexpected(&format!("the tag {text:?}")))?;
        Ok(Some(Self {
            number,
            tag,
            messages,
            bytes,
        }))
    }
}

/// The number of the batch that the field `moving` of meta describes.
pub(crate) fn batch_number(moving: &str) -> Option<u64> {
    moving.split(' ').next()?.parse().ok()
}

/// What a partition did with a batch from another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// It has stored this number of messages; none if it had the batch already.
    Applied(u64),
    /// It never will. This is the largest number that it knows of batches from that partition.
    Void(u64),
}

impl Arrived {
    pub(crate) fn decode(mut reply: Reply) -> Result<Self, Error> {
        let text = reply.body.text()?;
        let (word, number) = text.split_once(' ').unwrap_or((&text, ""));
        match (word, number.parse()) {
            ("APPLIED", Ok(messages)) => Ok(Self::Applied(messages)),
            ("VOID", Ok(last)) => Ok(Self::Void(last)),
            _ => Err(reply.body.unexpected(&format!("{text:?}"))),
        }
    }
}

/// The reply to a beat.
pub(crate) struct Beat {
    pub(crate) header: Header,
    /// Whether this node is the leader.
    pub(crate) leader: bool,
    /// How many nodes are alive.
    pub(crate) nodes: u64,
    /// How many messages are ready to be claimed.
    pub(crate) ready: u64,
    /// How many lists of fires need a refill; `None` for a queue without schedules, or from an
    /// older Functions library.
    pub(crate) low_lists: Option<u64>,
    /// The number of the batch that is on its way to another partition.
    pub(crate) moving: Option<u64>,
    /// Whether an operator drained this node; only the home of the queue says so.
    pub(crate) drained: bool,
}

impl Beat {
    pub(crate) fn decode(reply: Reply) -> Result<Self, Error> {
        let Reply { header, mut body } = reply;
        let leader = body.integer()? == 1;
        let nodes = body.count()?;
        let _leader_until_ms = body.integer()?;
        Ok(Self {
            header,
            leader,
            nodes,
            ready: body.count()?,
            low_lists: body.count().ok(),
            moving: body.text().ok().as_deref().and_then(batch_number),
            drained: body.integer().is_ok_and(|drained| drained == 1),
        })
    }
}

/// The reply to a beat that watches the home of a queue with a map.
pub(crate) struct Watched {
    pub(crate) header: Header,
    /// The number of the roster. It changes with each node that enters or leaves; 0 without a map.
    pub(crate) roster: u64,
    /// The nodes of the roster; empty if the caller has this roster.
    pub(crate) nodes: Vec<String>,
    /// The tags of the partitions that asked for help within 2 s.
    pub(crate) help: Vec<String>,
    /// Whether an operator drained this node; only the home of the queue says so.
    pub(crate) drained: bool,
}

impl Watched {
    pub(crate) fn decode(reply: Reply) -> Result<Self, Error> {
        let Reply { header, mut body } = reply;
        let roster = body.count()?;
        Ok(Self {
            roster,
            nodes: body.texts()?,
            help: body.texts()?,
            drained: body.integer().is_ok_and(|drained| drained == 1),
            header,
        })
    }
}

/// The reply to a promote or a reap.
pub(crate) struct Moved {
    pub(crate) header: Header,
    /// How many messages the call moved.
    pub(crate) count: u64,
}

impl Moved {
    pub(crate) fn decode(mut reply: Reply) -> Result<Self, Error> {
        Ok(Self {
            count: reply.body.count()?,
            header: reply.header,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use redis::Value;

    use super::*;
    use crate::protocol::verbs::Verb;

    #[test]
    fn each_word_is_decoded_with_its_number() {
        let decode = |text: &str| {
            let mut header = vec![Value::Int(0); 6];
            header[1] = Value::BulkString(Vec::new());
            let parts = vec![Value::Array(header), Value::BulkString(text.into())];
            let reply = Reply::decode(Verb::Remap, Value::Array(parts), Instant::now());
            Remapped::decode(reply.expect("a reply"))
        };
        for (text, remapped) in [
            ("DONE", Remapped::Done),
            ("HAS 3", Remapped::Has(3)),
            ("REMEMBERS 12000", Remapped::Remembers(12_000)),
            ("EPOCH 0", Remapped::Epoch(0)),
        ] {
            assert_eq!(decode(text).expect(text), remapped);
        }
        for text in ["", "HAS", "HAS x", "EPOCH -1", "OK"] {
            assert!(decode(text).is_err(), "{text:?}");
        }
    }
}
