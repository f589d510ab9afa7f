//! Drains nodes of a queue, and lets them take messages again.

use crate::error::Error;
use crate::model::codec::Codec;
use crate::outcomes::DrainOutcome;
use crate::protocol::counts::MAX_DRAINED;
use crate::protocol::results::nodes;
use crate::protocol::verbs::Verb;
use crate::queue::Queue;
use crate::server::patience::Repeat;

impl<C: Codec> Queue<C> {
    /// Drains nodes of the queue, by their ids: [`NodeInfo::id`](crate::inspect::NodeInfo::id). A
    /// drained node claims nothing more of this queue, and pulls of it end without messages. It
    /// goes on with what it has, extends and settles it, beats, and may lead. Other nodes get the
    /// messages; if there is no other, they wait.
    ///
    /// The reply to its next beat tells a node: within a second, or, if it has
    /// [parked](crate::Worker::parking) the queue, before it claims again. The drain ends with
    /// [`resume_nodes`](Queue::resume_nodes), and with the node: a process that starts anew is not
    /// drained. It also ends if a failover undoes the call, or if the queue moves to another store.
    /// A node of a release before 0.2 does not obey it: its
    /// [`NodeInfo::process`](crate::inspect::NodeInfo::process) is `None`.
    ///
    /// The call can be repeated. The caller needs the rights of an operator.
    ///
    /// # Errors
    /// If the home of the queue cannot be reached, or if the server has an older Functions library.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// let nodes = orders.nodes().await?;
    /// let here = |node: &&dueq::inspect::NodeInfo| {
    ///     node.process.as_ref().is_some_and(|process| process.pid == std::process::id())
    /// };
    /// let ids: Vec<_> = nodes.iter().filter(here).map(|node| &node.id).collect();
    /// orders.drain_nodes(&ids).await?;
    /// // ... deploy, profile, debug ...
    /// orders.resume_nodes(&ids).await?;
    /// # });
    /// ```
    pub async fn drain_nodes<N: AsRef<str>>(&self, ids: &[N]) -> Result<Vec<DrainOutcome>, Error> {
        self.set_drained(Verb::Pause, ids).await
    }

    /// Lets drained nodes take messages of the queue again: [`drain_nodes`](Queue::drain_nodes).
    /// They claim after their next beat.
    pub async fn resume_nodes<N: AsRef<str>>(&self, ids: &[N]) -> Result<Vec<DrainOutcome>, Error> {
        self.set_drained(Verb::Resume, ids).await
    }

    async fn set_drained<N: AsRef<str>>(
        &self,
        verb: Verb,
        ids: &[N],
    ) -> Result<Vec<DrainOutcome>, Error> {
        let mut outcomes = Vec::new();
        for some in ids.chunks(MAX_DRAINED) {
            let args = |_| {
                let ids = some.iter().map(|id| id.as_ref().as_bytes().to_vec());
                std::iter::once(b"nodes".to_vec()).chain(ids).collect()
            };
            let (_, reply) = self.call_home(verb, &args, Repeat::Harmless).await?;
            outcomes.extend(nodes::drained(reply)?);
        }
        Ok(outcomes)
    }
}
