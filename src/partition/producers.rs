//! The batchers of what producers and operators do to single messages: one set for each durability that they ask for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::batch::{Batcher, Prefix};
use crate::error::{Applied, Error, ErrorKind};
use crate::model::durability::Durability;
use crate::protocol::keys::Keys;
use crate::protocol::verbs::Verb;
use crate::server::lane::{Lane, PATIENCE};
use crate::telemetry::metrics::Meters;

/// How many durabilities besides `Memory` a queue keeps ready: each has a connection. The one that was asked for longest ago
/// makes room, after what is under way.
const DURABLE: usize = 4;
/// How many connections it has for them at most: those that made room are in use until what is under way there is over.
const PLACES: usize = 16;

/// One batcher for each verb.
pub(crate) struct Producers {
    pub(crate) push: Batcher,
    pub(crate) cancel: Batcher,
    pub(crate) cancel_dead: Batcher,
    pub(crate) reschedule: Batcher,
    pub(crate) run_now: Batcher,
    pub(crate) requeue: Batcher,
}

impl Producers {
    fn new(
        keys: &Arc<Keys>,
        lane: &Arc<Lane>,
        meters: &Arc<Meters>,
        durability: Durability,
    ) -> Self {
        let batcher = |verb, prefix| {
            Batcher::new(
                verb,
                prefix,
                Arc::clone(keys),
                Arc::clone(lane),
                Arc::clone(meters),
            )
            .with_durability(durability)
        };
        Self {
            push: batcher(Verb::Push, Prefix::Attempt),
            cancel: batcher(Verb::Cancel, Prefix::Since("")),
            cancel_dead: batcher(Verb::Cancel, Prefix::Since("1")),
            reschedule: batcher(Verb::Reschedule, Prefix::Nothing),
            run_now: batcher(Verb::RunNow, Prefix::Nothing),
            requeue: batcher(Verb::Requeue, Prefix::Word("ids")),
        }
    }
}

/// The sets of a queue. What waits for replicas stands in nobody's way but its own kind's: one call, and one WAIT, for all that
/// ask for the same.
pub(crate) struct ProducerPool {
    keys: Arc<Keys>,
    lane: Arc<Lane>,
    meters: Arc<Meters>,
    memory: Arc<Producers>,
    durable: Mutex<Vec<(Durability, Arc<Producers>)>>,
    places: Arc<Semaphore>,
}

impl ProducerPool {
    pub(crate) fn new(keys: &Arc<Keys>, lane: &Arc<Lane>, meters: &Arc<Meters>) -> Self {
        let memory = Arc::new(Producers::new(keys, lane, meters, Durability::Memory));
        let (durable, places) = (Mutex::new(Vec::new()), Arc::new(Semaphore::new(PLACES)));
        let (keys, lane, meters) = (Arc::clone(keys), Arc::clone(lane), Arc::clone(meters));
        Self {
            keys,
            lane,
            meters,
            memory,
            durable,
            places,
        }
    }

    /// The set for this durability; a new one waits for a place.
    pub(crate) async fn get(&self, durability: Durability) -> Result<Arc<Producers>, Error> {
        if durability == Durability::Memory {
            return Ok(Arc::clone(&self.memory));
        }
        if let Some(known) = self.known(durability) {
            return Ok(known);
        }
        let place = tokio::time::timeout(PATIENCE, Arc::clone(&self.places).acquire_owned()).await;
        let place = place.ok().and_then(Result::ok).ok_or_else(crowded)?;
        // Somebody else may have made it meanwhile.
        Ok(self
            .known(durability)
            .unwrap_or_else(|| self.add(durability, place)))
    }

    /// The set for this durability; if there is none, the one that was asked for longest ago makes room.
    fn known(&self, durability: Durability) -> Option<Arc<Producers>> {
        let mut durable = self.lock();
        let Some(place) = durable.iter().position(|(known, _)| *known == durability) else {
            if durable.len() >= DURABLE {
                durable.remove(0);
            }
            return None;
        };
        let (_, set) = durable.remove(place);
        durable.push((durability, Arc::clone(&set)));
        Some(set)
    }

    fn add(&self, durability: Durability, place: OwnedSemaphorePermit) -> Arc<Producers> {
        let lane = Lane::apart(
            Arc::clone(self.lane.connector()),
            Arc::clone(self.lane.clock()),
            place,
        );
        let set = Arc::new(Producers::new(
            &self.keys,
            &Arc::new(lane),
            &self.meters,
            durability,
        ));
        self.lock().push((durability, Arc::clone(&set)));
        set
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Durability, Arc<Producers>)>> {
        self.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn crowded() -> Error {
    let message = format!(
        "{PLACES} different durabilities (their timeouts included) are being waited for in this queue, and none was confirmed \
         within {PATIENCE:?}: ask for fewer different ones"
    );
    Error::new(ErrorKind::Unavailable, Applied::No, message)
}
