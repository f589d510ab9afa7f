//! The replies to dues and nodes.

use crate::error::Error;
use crate::model::dues::Dues;
use crate::model::node_info::NodeInfo;
use crate::protocol::replies::Reply;

pub(crate) fn dues(mut reply: Reply) -> Result<Dues, Error> {
    let mut parts = reply.body.parts()?;
    let counts = (0..parts.len()).map(|_| parts.count());
    Ok(Dues {
        counts: counts.collect::<Result<_, _>>()?,
        // -1: none is scheduled.
        last_ms: u64::try_from(reply.body.integer()?).ok(),
        now_ms: u64::try_from(reply.header.now_us / 1_000).unwrap_or(0),
    })
}

/// The nodes that attend the partition, then those of its roster.
pub(crate) fn nodes(mut reply: Reply) -> Result<Vec<NodeInfo>, Error> {
    let mut nodes = Vec::new();
    for attends in [1, 0] {
        let _number = reply.body.count()?;
        let mut items = reply.body.parts()?;
        while !items.is_empty() {
            let mut item = items.parts()?;
            let mut node = NodeInfo {
                id: item.text()?,
                silent_ms: item.count()?,
                parked_ms: 0,
                leads: 0,
                attends,
            };
            if attends > 0 {
                node.parked_ms = item.count()?;
                node.leads = usize::from(item.integer()? == 1);
            }
            nodes.push(node);
        }
    }
    Ok(nodes)
}
