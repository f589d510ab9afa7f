//! The replies to a node's calls: beat, promote, reap.

use crate::error::Error;
use crate::protocol::replies::{Header, Reply};

/// The reply to a beat.
pub(crate) struct Beat {
    pub(crate) header: Header,
    /// Whether this node is the leader.
    pub(crate) leader: bool,
    /// How many nodes are alive.
    pub(crate) nodes: u64,
    /// How many messages are ready to be claimed.
    pub(crate) ready: u64,
    /// How many lists of fires need more; `None` of a queue without schedules, or of an older
    /// Functions library.
    pub(crate) low_lists: Option<u64>,
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
}

impl Watched {
    pub(crate) fn decode(reply: Reply) -> Result<Self, Error> {
        let Reply { header, mut body } = reply;
        let roster = body.count()?;
        Ok(Self {
            roster,
            nodes: body.texts()?,
            help: body.texts()?,
            header,
        })
    }
}

/// The reply to a promote or a reap.
pub(crate) struct Moved {
    pub(crate) header: Header,
    /// How many messages it moved.
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
