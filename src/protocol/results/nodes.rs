//! Decodes the reply to nodes.

use crate::error::Error;
use crate::model::process::{DrainOutcome, ProcessInfo};
use crate::model::stats::NodeInfo;
use crate::protocol::replies::Reply;

/// The nodes that attend the partition, those of its roster, and nodes that fell silent.
pub(crate) fn holders(mut reply: Reply) -> Result<Vec<NodeInfo>, Error> {
    let now_ms = u64::try_from(reply.header.now_us / 1_000).unwrap_or_default();
    let mut nodes = live_nodes(&mut reply)?;
    let (_leader, _leader_until) = (reply.body.text()?, reply.body.count()?);
    let mut gone = reply.body.parts()?;
    while !gone.is_empty() {
        let mut item = gone.parts()?;
        let (id, told) = (item.text()?, item.text()?);
        if !nodes.iter().any(|node| node.id == id) {
            nodes.push(NodeInfo::silent(id, ProcessInfo::parse(&told), now_ms));
        }
    }
    Ok(nodes)
}

/// The nodes that attend the partition, then those of its roster.
pub(crate) fn nodes(mut reply: Reply) -> Result<Vec<NodeInfo>, Error> {
    live_nodes(&mut reply)
}

fn live_nodes(reply: &mut Reply) -> Result<Vec<NodeInfo>, Error> {
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
                process: None,
                is_drained: false,
            };
            if attends > 0 {
                node.parked_ms = item.count()?;
                node.leads = usize::from(item.integer()? == 1);
                if !item.is_empty() {
                    node.process = ProcessInfo::parse(&item.text()?);
                }
            }
            // Missing in the reply of an older Functions library.
            node.is_drained = !item.is_empty() && item.integer()? == 1;
            nodes.push(node);
        }
    }
    Ok(nodes)
}

/// The results of a pause or resume of nodes.
pub(crate) fn drained(mut reply: Reply) -> Result<Vec<DrainOutcome>, Error> {
    let texts = reply.body.texts()?;
    let outcome = |text: &String| match text.as_str() {
        "OK" => Ok(DrainOutcome::Done),
        "GONE" => Ok(DrainOutcome::Gone),
        "FULL" => Ok(DrainOutcome::Full),
        _ => Err(reply.body.unexpected(&format!("{text:?}"))),
    };
    texts.iter().map(outcome).collect()
}
