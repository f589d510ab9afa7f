//! The calls of a node that keep a queue going: beat, promote, reap.

use std::time::Duration;

use crate::error::Error;
use crate::partition::Partition;
use crate::protocol::limits;
use crate::protocol::results::roles::{Beat, Moved};
use crate::protocol::verbs::Verb;
use crate::telemetry::events;
use crate::telemetry::metrics::Count;

/// How many messages one promote or reap moves at most, so that it occupies Redis for about 1 ms.
const STEP: &[u8] = b"256";

/// What a beat says of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The node is alive.
    Stay,
    /// The node is alive, and beats again after this time at the latest (1 s to 60 s). Until then it
    /// waits for notices.
    Park(Duration),
    /// The node stops.
    Leave,
}

impl Partition {
    /// Records that a node is alive or stops. Sent once, without a repetition.
    pub(crate) async fn beat(&self, node: &str, presence: Presence) -> Result<Beat, Error> {
        let node = node.as_bytes();
        let reply = match presence {
            Presence::Stay => self.call_once(Verb::Beat, &[node, b"stay"]).await,
            Presence::Leave => self.call_once(Verb::Beat, &[node, b"leave"]).await,
            Presence::Park(time) => {
                let ms = limits::park_ms(time).to_string();
                self.call_once(Verb::Beat, &[node, b"stay", ms.as_bytes()])
                    .await
            }
        }?;
        Beat::decode(reply)
    }

    /// Moves up to 256 due messages to the ready list. Sent once, without a repetition.
    pub(crate) async fn promote(&self) -> Result<Moved, Error> {
        let moved = self.step(Verb::Promote, &[STEP]).await?;
        self.meters().add_many(Count::Promoted, moved.count);
        Ok(moved)
    }

    /// Takes back up to 256 expired leases. Sent once, without a repetition.
    pub(crate) async fn reap(&self) -> Result<Moved, Error> {
        let moved = self.step(Verb::Reap, &[STEP]).await?;
        if moved.count > 0 {
            self.meters().add_many(Count::Reaped, moved.count);
            events::reaped(self.queue_name(), moved.count);
        }
        Ok(moved)
    }

    async fn step(&self, verb: Verb, args: &[&[u8]]) -> Result<Moved, Error> {
        Moved::decode(self.call_once(verb, args).await?)
    }
}
