//! A partition: one set of ten keys on one server, and what this process needs to call scripts on
//! it.

mod claim;
mod producers;
mod roles;
pub(crate) mod verbs;

use std::sync::Arc;

use crate::batch::{Batcher, CallSpec, Supervisor};
use crate::error::Error;
use crate::model::durability::Durability;
use crate::partition::producers::ProducerPool;
use crate::protocol::keys::Keys;
use crate::protocol::replies::Reply;
use crate::protocol::verbs::Verb;
use crate::server::lane::Lane;
use crate::server::link::ServerLink;
use crate::server::patience::Repeat;
use crate::telemetry::metrics::Meters;

pub(crate) use producers::Producers;
pub(crate) use roles::Presence;

/// One set of ten keys, the link to the server that holds them, the batchers of its calls and its
/// meters. A queue has one partition today.
pub(crate) struct Partition {
    queue_name: String,
    keys: Arc<Keys>,
    link: Arc<ServerLink>,
    meters: Arc<Meters>,
    producers: Arc<ProducerPool>,
    settlers: Settlers,
}

/// The batchers of a consumer's calls: one for each verb that takes many items.
pub(crate) struct Settlers {
    pub(crate) ack: Batcher<verbs::Ack>,
    /// Acks of workers. Handlers do not wait for them, so they linger 1 ms to fill a batch.
    pub(crate) ack_lingering: Batcher<verbs::Ack>,
    pub(crate) again: Batcher<verbs::Again>,
    pub(crate) retry: Batcher<verbs::Retry>,
    pub(crate) release: Batcher<verbs::Release>,
    pub(crate) bury: Batcher<verbs::Bury>,
    pub(crate) extend: Batcher<verbs::Extend>,
}

impl Settlers {
    fn new(
        keys: &Arc<Keys>,
        link: &ServerLink,
        meters: &Arc<Meters>,
        supervisor: Option<Arc<dyn Supervisor>>,
    ) -> Self {
        let spec = |lane| CallSpec::new(keys, lane, meters).with_supervisor(supervisor.clone());
        let settles = || spec(&link.settles);
        Self {
            ack: Batcher::new(settles()),
            ack_lingering: Batcher::new(settles().with_linger()),
            again: Batcher::new(settles()),
            retry: Batcher::new(settles()),
            release: Batcher::new(settles()),
            bury: Batcher::new(settles()),
            // On another connection, so that stalled settlements do not delay lease extensions.
            extend: Batcher::new(spec(&link.control)),
        }
    }
}

impl Partition {
    /// The partition of the queue of this name.
    ///
    /// # Errors
    /// `InvalidInput` if the name is not valid.
    pub(crate) fn new(queue_name: &str, link: Arc<ServerLink>) -> Result<Self, Error> {
        let keys = Arc::new(Keys::of_queue(queue_name)?);
        let meters = Arc::new(Meters::new());
        let settlers = Settlers::new(&keys, &link, &meters, None);
        let producers = Arc::new(ProducerPool::new(&keys, &link.pushes, &meters));
        Ok(Self {
            queue_name: queue_name.to_owned(),
            keys,
            link,
            meters,
            producers,
            settlers,
        })
    }

    /// The same partition for a node: the calls of consumers use the node's link, and `supervisor`
    /// runs their batchers. Keys, meters and producers are shared with `self`.
    pub(crate) fn on_link(&self, link: Arc<ServerLink>, supervisor: Arc<dyn Supervisor>) -> Self {
        let settlers = Settlers::new(&self.keys, &link, &self.meters, Some(supervisor));
        Self {
            queue_name: self.queue_name.clone(),
            keys: Arc::clone(&self.keys),
            link,
            meters: Arc::clone(&self.meters),
            producers: Arc::clone(&self.producers),
            settlers,
        }
    }

    /// A partition whose server does not exist.
    #[cfg(test)]
    pub(crate) fn unconnected() -> Arc<Self> {
        use crate::server::connector::Connector;
        let options = crate::server::options::ClientOptions::new();
        let connector = Connector::new("redis://127.0.0.1:1", &options).expect("a URL");
        let link = Arc::new(ServerLink::new(&Arc::new(connector)));
        Arc::new(Self::new("unconnected", link).expect("a name"))
    }

    pub(crate) fn queue_name(&self) -> &str {
        &self.queue_name
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(crate) fn link(&self) -> &Arc<ServerLink> {
        &self.link
    }

    /// The connection for calls that are not batched.
    pub(crate) fn control(&self) -> &Arc<Lane> {
        &self.link.control
    }

    pub(crate) fn meters(&self) -> &Meters {
        &self.meters
    }

    pub(crate) fn settlers(&self) -> &Settlers {
        &self.settlers
    }

    /// The producers' batchers for this durability. Waits up to 10 s if too many durabilities are
    /// in use.
    pub(crate) async fn producers(&self, durability: Durability) -> Result<Arc<Producers>, Error> {
        durability.check()?;
        self.producers.get(durability).await
    }

    /// Calls a script that takes no batch, with an empty `now` before `args`. Repeats it for up to
    /// 10 s where `repeat` allows.
    pub(crate) async fn call(
        &self,
        verb: Verb,
        args: &[&[u8]],
        repeat: Repeat,
    ) -> Result<Reply, Error> {
        let args: Vec<&[u8]> = [&b""[..]].into_iter().chain(args.iter().copied()).collect();
        let failed = |error: &Error| self.meters.call_failed(error);
        let call = self
            .control()
            .call_patiently(verb, &self.keys, &args, repeat, failed);
        // Boxed: keeps the futures of callers shallow, as rustc limits their depth.
        Box::pin(call).await
    }

    /// The same once, without a repetition.
    pub(crate) async fn call_once(&self, verb: Verb, args: &[&[u8]]) -> Result<Reply, Error> {
        let args: Vec<&[u8]> = [&b""[..]].into_iter().chain(args.iter().copied()).collect();
        let reply = self.control().call(verb, &self.keys, &args).await;
        reply.inspect_err(|error| self.meters.call_failed(error))
    }
}
