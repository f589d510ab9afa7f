//! A partition: one set of ten keys on one server, and what this process needs to call scripts on
//! it.

mod ack_push;
mod closing;
mod elsewhere;
pub(crate) mod producers;
mod remap;
mod reports;
mod roles;
mod schedules;
mod transfer;
pub(crate) mod verbs;

use std::sync::Arc;
use std::time::Duration;

use crate::batch::{Batcher, CallSpec, Supervisor};
use crate::error::Error;
use crate::model::durability::Durability;
use crate::partition::producers::ProducerPool;
use crate::protocol::keys::Keys;
use crate::protocol::partition_map::{Tag, index_of};
use crate::protocol::replies::Reply;
use crate::protocol::verbs::Verb;
use crate::server::failure;
use crate::server::patience::REACH_LIMIT;
use crate::server::patience::Repeat;
use crate::server::route::{Route, RoutedLane};
use crate::server::servers::Servers;
#[cfg(test)]
use crate::server::stores::Stores;
use crate::telemetry::metrics::Meters;

pub(crate) use ack_push::FollowUps;
pub(crate) use closing::Siblings;
pub(crate) use elsewhere::{QueueLink, WholeCall, WholeQueue};
pub(crate) use producers::Producers;
pub(crate) use remap::StoredMap;
use reports::Reports;
pub(crate) use roles::{Presence, Standing};
pub(crate) use schedules::{Lists, list_length};
pub(crate) use transfer::{Carrier, Fate};

/// The place of a partition in its queue, according to one map.
#[derive(Clone)]
pub(crate) struct PlaceInQueue {
    pub(crate) tag: Tag,
    /// The epoch of the map; `None` for the partition of a queue without a map.
    pub(crate) epoch: Option<u64>,
    /// The index among all partitions of the map.
    pub(crate) index: usize,
    /// For each list of tags by which the map assigns ids: the index in it, and its length. Two
    /// lists while the map changes.
    pub(crate) lists: Vec<(Option<usize>, usize)>,
    /// Whether calls that name ids create nothing, because the ids belong to another partition.
    pub(crate) probes: bool,
    /// All partitions of the map.
    pub(crate) siblings: Arc<Siblings>,
}

impl PlaceInQueue {
    /// The first argument of calls that name ids: the epoch of the map, which the script compares
    /// with its own.
    fn fence(&self) -> Arc<str> {
        let form = if self.probes { 'p' } else { 'm' };
        let fence = self.epoch.map(|epoch| format!("{form}{epoch}"));
        fence.unwrap_or_default().into()
    }

    /// Whether the message of this id is in this partition or nowhere.
    fn holds(&self, id: &[u8]) -> bool {
        let mut lists = self.lists.iter();
        lists.all(|(index, partitions)| *index == Some(index_of(id, *partitions)))
    }
}

/// One set of ten keys, the way to the server that holds them, the batchers of its calls and its
/// meters.
pub(crate) struct Partition {
    queue_name: String,
    place: PlaceInQueue,
    fence: Arc<str>,
    keys: Arc<Keys>,
    route: Route,
    control: Arc<RoutedLane>,
    claims: RoutedLane,
    meters: Arc<Meters>,
    producers: Arc<ProducerPool>,
    settlers: Settlers,
    /// The times of messages that handlers took, until a beat reports them.
    reports: Reports,
}

/// The parts that a client's object of a partition and those of its nodes share.
struct Parts {
    queue_name: String,
    place: PlaceInQueue,
    keys: Arc<Keys>,
    meters: Arc<Meters>,
    producers: Arc<ProducerPool>,
}

/// The batchers of a consumer's calls: one for each verb that takes many items.
pub(crate) struct Settlers {
    pub(crate) ack: Batcher<verbs::Ack>,
    /// Acks of workers. Handlers do not wait for them, so they linger 1 ms to fill a batch.
    pub(crate) ack_lingering: Batcher<verbs::Ack>,
    /// Acks with follow-ups, one delivery per call.
    pub(crate) ack_push: Batcher<ack_push::AckPush>,
    pub(crate) again: Batcher<verbs::Again>,
    pub(crate) retry: Batcher<verbs::Retry>,
    pub(crate) release: Batcher<verbs::Release>,
    pub(crate) bury: Batcher<verbs::Bury>,
    pub(crate) snooze: Batcher<verbs::Snooze>,
    pub(crate) throttle: Batcher<verbs::Throttle>,
    pub(crate) extend: Batcher<verbs::Extend>,
}

impl Settlers {
    fn new(
        keys: &Arc<Keys>,
        route: &Route,
        control: &Arc<RoutedLane>,
        meters: &Arc<Meters>,
        fence: Arc<str>,
        supervisor: Option<Arc<dyn Supervisor>>,
    ) -> Self {
        let spec = |lane| CallSpec::new(keys, lane, meters).with_supervisor(supervisor.clone());
        let lane = Arc::new(RoutedLane::settles(route));
        let settles = || spec(&lane);
        Self {
            ack: Batcher::new(settles()),
            ack_lingering: Batcher::new(settles().with_linger()),
            // Fenced by the epoch of the map, because the follow-ups have ids that the map routed
            // here.
            ack_push: Batcher::new(CallSpec { fence, ..settles() }),
            again: Batcher::new(settles()),
            retry: Batcher::new(settles()),
            release: Batcher::new(settles()),
            bury: Batcher::new(settles()),
            snooze: Batcher::new(settles()),
            throttle: Batcher::new(settles()),
            // Extensions have another connection, so that stalled settlements do not delay them.
            extend: Batcher::new(spec(control)),
        }
    }
}

impl Partition {
    /// Makes a partition of the queue of this name. `meters` counts its calls.
    ///
    /// # Errors
    /// `InvalidInput` if the name is not valid.
    pub(crate) fn new(
        queue_name: &str,
        place: PlaceInQueue,
        servers: &Arc<Servers>,
        meters: &Arc<Meters>,
    ) -> Result<Self, Error> {
        let keys = Arc::new(Keys::of_partition(queue_name, place.tag)?);
        let route = servers.route(&keys);
        let pushes = Arc::new(RoutedLane::pushes(&route));
        let mut spec = CallSpec::new(&keys, &pushes, meters);
        if place.epoch.is_some() {
            spec = spec.of_many(place.fence());
        }
        let parts = Parts {
            queue_name: queue_name.to_owned(),
            place,
            keys,
            meters: Arc::clone(meters),
            producers: Arc::new(ProducerPool::new(spec)),
        };
        Ok(Self::of(parts, route, None))
    }

    /// Makes this partition for a node: consumers' calls use the node's servers, and `supervisor`
    /// runs their batchers. It shares keys, meters and producers with `self`.
    pub(crate) fn on_servers(
        &self,
        servers: &Arc<Servers>,
        supervisor: Arc<dyn Supervisor>,
    ) -> Self {
        let parts = Parts {
            queue_name: self.queue_name.clone(),
            place: self.place.clone(),
            keys: Arc::clone(&self.keys),
            meters: Arc::clone(&self.meters),
            producers: Arc::clone(&self.producers),
        };
        Self::of(parts, servers.route(&self.keys), Some(supervisor))
    }

    fn of(parts: Parts, route: Route, supervisor: Option<Arc<dyn Supervisor>>) -> Self {
        let Parts {
            queue_name,
            place,
            keys,
            meters,
            producers,
        } = parts;
        let control = Arc::new(RoutedLane::control(&route));
        let fence = place.fence();
        let settlers = Settlers::new(
            &keys,
            &route,
            &control,
            &meters,
            Arc::clone(&fence),
            supervisor,
        );
        Self {
            queue_name,
            fence,
            place,
            keys,
            claims: RoutedLane::claims(&route),
            control,
            route,
            meters,
            producers,
            settlers,
            reports: Reports::default(),
        }
    }

    /// Makes the only partition of the queue of this name.
    #[cfg(test)]
    pub(crate) fn only(queue_name: &str, servers: &Arc<Servers>) -> Result<Self, Error> {
        let stores = Stores {
            near: Arc::clone(servers),
            far: None,
        };
        let place = PlaceInQueue {
            tag: Tag::Home,
            epoch: None,
            index: 0,
            lists: vec![(Some(0), 1)],
            probes: false,
            siblings: Siblings::new(queue_name, &[Tag::Home], &stores, &Arc::default())?,
        };
        Self::new(queue_name, place, servers, &Arc::new(Meters::new()))
    }

    /// A partition for tests, whose server does not exist.
    #[cfg(test)]
    pub(crate) fn unconnected() -> Arc<Self> {
        let partition = Self::only("unconnected", &Servers::unconnected());
        Arc::new(partition.expect("a name"))
    }

    pub(crate) fn queue_name(&self) -> &str {
        &self.queue_name
    }

    pub(crate) fn tag(&self) -> Tag {
        self.place.tag
    }

    /// The index of the partition in its queue's map.
    pub(crate) fn index(&self) -> usize {
        self.place.index
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The way to the server that holds the keys of the partition.
    pub(crate) fn route(&self) -> &Route {
        &self.route
    }

    /// The connection for calls that are not batched.
    pub(crate) fn control(&self) -> &Arc<RoutedLane> {
        &self.control
    }

    /// Awaits the result of a call to this partition; after the limit it returns an error.
    pub(crate) async fn within<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let called = tokio::time::timeout(limit, call).await;
        called.unwrap_or_else(|_| Err(self.silent(limit)))
    }

    /// Awaits a read as [`within`](Self::within) does, for reads that return what other partitions
    /// reply. Fails at once if this partition's master has left such a read without a reply within
    /// the last 2 s.
    pub(crate) async fn reach<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let link = self.route.known_link();
        if link.as_ref().is_some_and(|link| link.is_silent()) {
            return Err(self.silent(REACH_LIMIT));
        }
        let called = tokio::time::timeout(limit, call).await;
        called.unwrap_or_else(|_| {
            // With a shorter limit even a working master may not have replied, so that says
            // nothing.
            link.filter(|_| 2 * limit >= REACH_LIMIT)
                .inspect(|link| link.was_silent());
            Err(self.silent(REACH_LIMIT))
        })
    }

    /// The error of a master that did not reply in this time.
    fn silent(&self, limit: Duration) -> Error {
        let link = self.route.known_link();
        let address = link.map(|link| link.connector().address());
        failure::silent(address.as_deref().unwrap_or("the master"), limit)
    }

    pub(crate) fn meters(&self) -> &Meters {
        &self.meters
    }

    /// Records that a handler of a worker starts `lateness` after the due time.
    pub(crate) fn late(&self, lateness: Duration) {
        self.meters.late(lateness);
        self.reports.late(lateness);
    }

    /// Records that a handler of a worker ran for this time.
    pub(crate) fn handled(&self, took: Duration) {
        self.meters.handled(took);
        self.reports.handled(took);
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
        self.call_with("", verb, args, repeat).await
    }

    /// Calls a script that names an id, as [`call`](Self::call) does, with the epoch of the map
    /// before `args`. The partition refuses the call if its map has another epoch.
    pub(crate) async fn call_fenced(
        &self,
        verb: Verb,
        args: &[&[u8]],
        repeat: Repeat,
    ) -> Result<Reply, Error> {
        self.call_with(&self.fence, verb, args, repeat).await
    }

    async fn call_with(
        &self,
        first: &str,
        verb: Verb,
        args: &[&[u8]],
        repeat: Repeat,
    ) -> Result<Reply, Error> {
        let first = [first.as_bytes()].into_iter();
        let args: Vec<&[u8]> = first.chain(args.iter().copied()).collect();
        let failed = |error: &Error| self.meters.call_failed(error);
        let call = self
            .control()
            .call_patiently(verb, &self.keys, &args, repeat, failed);
        // Boxed: keeps the futures of callers shallow, as rustc limits their depth.
        Box::pin(call).await
    }

    /// Calls a script that takes no batch, and does not repeat the call.
    pub(crate) async fn call_once(&self, verb: Verb, args: &[&[u8]]) -> Result<Reply, Error> {
        let args: Vec<&[u8]> = [&b""[..]].into_iter().chain(args.iter().copied()).collect();
        let reply = self.control().call(verb, &self.keys, &args).await;
        reply.inspect_err(|error| self.meters.call_failed(error))
    }
}
