//! The batchers of what producers and operators do to single messages: one set for each durability that they ask for.

use std::sync::{Arc, Mutex, PoisonError};

use crate::batch::{Batcher, Prefix};
use crate::durability::Durability;
use crate::metrics::Meters;
use crate::protocol::keys::Keys;
use crate::protocol::lane::Lane;
use crate::protocol::scripts::Verb;

/// How many durabilities besides `Memory` a queue keeps ready: each has a connection. The one that was asked for longest ago
/// makes room, after what is under way.
const DURABLE: usize = 4;

/// One batcher for each verb.
pub(crate) struct Producing {
    pub(crate) push: Batcher,
    pub(crate) cancel: Batcher,
    pub(crate) cancel_dead: Batcher,
    pub(crate) reschedule: Batcher,
    pub(crate) run_now: Batcher,
    pub(crate) requeue: Batcher,
}

impl Producing {
    fn new(keys: &Arc<Keys>, lane: &Arc<Lane>, meters: &Arc<Meters>, durability: Durability) -> Self {
        let batcher = |verb, prefix| {
            Batcher::new(verb, prefix, Arc::clone(keys), Arc::clone(lane), Arc::clone(meters))
                .with_durability(durability)
        };
        Self {
            push: batcher(Verb::Push, Prefix::Until),
            cancel: batcher(Verb::Cancel, Prefix::Word("")),
            cancel_dead: batcher(Verb::Cancel, Prefix::Word("1")),
            reschedule: batcher(Verb::Reschedule, Prefix::Nothing),
            run_now: batcher(Verb::RunNow, Prefix::Nothing),
            requeue: batcher(Verb::Requeue, Prefix::Word("ids")),
        }
    }
}

/// The sets of a queue. What waits for replicas stands in nobody's way but its own kind's: one call, and one WAIT, for all that
/// ask for the same.
pub(crate) struct Sets {
    keys: Arc<Keys>,
    lane: Arc<Lane>,
    meters: Arc<Meters>,
    memory: Arc<Producing>,
    durable: Mutex<Vec<(Durability, Arc<Producing>)>>,
}

impl Sets {
    pub(crate) fn new(keys: &Arc<Keys>, lane: &Arc<Lane>, meters: &Arc<Meters>) -> Self {
        let memory = Arc::new(Producing::new(keys, lane, meters, Durability::Memory));
        let (keys, lane, meters) = (Arc::clone(keys), Arc::clone(lane), Arc::clone(meters));
        Self { keys, lane, meters, memory, durable: Mutex::new(Vec::new()) }
    }

    pub(crate) fn get(&self, durability: Durability) -> Arc<Producing> {
        if durability == Durability::Memory {
            return Arc::clone(&self.memory);
        }
        let mut durable = self.durable.lock().unwrap_or_else(PoisonError::into_inner);
        let set = match durable.iter().position(|(known, _)| *known == durability) {
            Some(place) => durable.remove(place).1,
            None => {
                let lane = Lane::apart(Arc::clone(self.lane.connector()), Arc::clone(self.lane.clock()));
                Arc::new(Producing::new(&self.keys, &Arc::new(lane), &self.meters, durability))
            }
        };
        durable.push((durability, Arc::clone(&set)));
        if durable.len() > DURABLE {
            durable.remove(0);
        }
        set
    }
}
