//! Finds live nodes of older releases, by their ids.

use crate::error::Error;
use crate::partition::Partition;
use crate::protocol::node_id::obeys_limits;
use crate::protocol::verbs::Verb;
use crate::server::patience::Repeat;

/// How many nodes are looked at.
const MOST_NODES: usize = 100;
/// How long after its last beat a node counts as alive.
const ALIVE_MS: i64 = 3_000;

impl Partition {
    /// The ids of live nodes that may be of an older release.
    pub(crate) async fn older_nodes(&self) -> Result<Vec<String>, Error> {
        let reply = self.call(Verb::Stats, &[], Repeat::Harmless).await?;
        let since_ms = reply.header.now_us / 1_000 - ALIVE_MS;
        let nodes = self
            .control()
            .members_above(self.keys().nodes(), since_ms, MOST_NODES)
            .await?;
        Ok(nodes.into_iter().filter(|id| !obeys_limits(id)).collect())
    }
}
