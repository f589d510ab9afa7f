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
use crate::server::patience::Repeat;
use crate::server::route::{Route, RoutedLane};
use crate::server::servers::Servers;
use crate::telemetry::metrics::Meters;

pub(crate) use producers::Producers;
pub(crate) use roles::Presence;

/// One set of ten keys, the way to the server that holds them, the batchers of its calls and its
/// meters. A queue has one partition today.
pub(crate) struct Partition {
    queue_name: String,
    keys: Arc<Keys>,
    route: Route,
    control: Arc<RoutedLane>,
    claims: RoutedLane,
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
        route: &Route,
        control: &Arc<RoutedLane>,
        meters: &Arc<Meters>,
        supervisor: Option<Arc<dyn Supervisor>>,
    ) -> Self {
        let spec = |lane| CallSpec::new(keys, lane, meters).with_supervisor(supervisor.clone());
        let lane = Arc::new(RoutedLane::settles(route));
        let settles = || spec(&lane);
        Self {
            ack: Batcher::new(settles()),
            ack_lingering: Batcher::new(settles().with_linger()),
            again: Batcher::new(settles()),
            retry: Batcher::new(settles()),
            release: Batcher::new(settles()),
            bury: Batcher::new(settles()),
            // On another connection, so that stalled settlements do not delay lease extensions.
            extend: Batcher::new(spec(control)),
        }
    }
}

impl Partition {
    /// The partition of the queue of this name.
    ///
    /// # Errors
    /// `InvalidInput` if the name is not valid.
    pub(crate) fn new(queue_name: &str, servers: &Arc<Servers>) -> Result<Self, Error> {
        let keys = Arc::new(Keys::of_queue(queue_name)?);
        let route = servers.route(&keys);
        let meters = Arc::new(Meters::new());
        let pushes = Arc::new(RoutedLane::pushes(&route));
        let producers = Arc::new(ProducerPool::new(&keys, &pushes, &meters));
        Ok(Self::of(queue_name, keys, route, meters, producers, None))
    }

    /// The same partition for a node: the calls of consumers use the node's servers, and
    /// `supervisor` runs their batchers. Keys, meters and producers are shared with `self`.
    pub(crate) fn on_servers(
        &self,
        servers: &Arc<Servers>,
        supervisor: Arc<dyn Supervisor>,
    ) -> Self {
        Self::of(
            &self.queue_name,
            Arc::clone(&self.keys),
            servers.route(&self.keys),
            Arc::clone(&self.meters),
            Arc::clone(&self.producers),
            Some(supervisor),
        )
    }

    fn of(
        queue_name: &str,
        keys: Arc<Keys>,
        route: Route,
        meters: Arc<Meters>,
        producers: Arc<ProducerPool>,
        supervisor: Option<Arc<dyn Supervisor>>,
    ) -> Self {
        let control = Arc::new(RoutedLane::control(&route));
        let settlers = Settlers::new(&keys, &route, &control, &meters, supervisor);
        Self {
            queue_name: queue_name.to_owned(),
            keys,
            claims: RoutedLane::claims(&route),
            control,
            route,
            meters,
            producers,
            settlers,
        }
    }

    /// A partition whose server does not exist.
    #[cfg(test)]
    pub(crate) fn unconnected() -> Arc<Self> {
        Arc::new(Self::new("unconnected", &Servers::unconnected()).expect("a name"))
    }

    pub(crate) fn queue_name(&self) -> &str {
        &self.queue_name
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The way to the server that holds the keys.
    pub(crate) fn route(&self) -> &Route {
        &self.route
    }

    /// The connection for calls that are not batched.
    pub(crate) fn control(&self) -> &RoutedLane {
        &self.control
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
