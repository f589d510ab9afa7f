//! Producers' calls: turns a message into an item, and keeps a set of batchers for each durability.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::batch::{Batcher, CallSpec, Item};
use crate::error::{Applied, Error, ErrorKind};
use crate::model::due::Due;
use crate::model::durability::Durability;
use crate::model::message::{Message, new_id};
use crate::model::receipt::Receipt;
use crate::partition::verbs;
use crate::protocol::results::produce::PushResult;
use crate::protocol::spread::spread;
use crate::protocol::{limits, spread};
use crate::server::patience::{PATIENCE, Repeat};

/// How many durabilities besides `Memory` a partition keeps ready; each has a connection. A further
/// durability replaces the least recently used one, whose calls in flight complete first.
const KEPT_DURABILITIES: usize = 4;
/// How many connections a partition has at most for durabilities besides `Memory`, including
/// replaced ones with calls in flight.
const MAX_DURABLE_CONNECTIONS: usize = 16;

/// The batchers of one durability: one for each verb.
pub(crate) struct Producers {
    pub(crate) push: Batcher<verbs::Push>,
    pub(crate) upsert: Batcher<verbs::Upsert>,
    pub(crate) cancel: Batcher<verbs::Cancel>,
    pub(crate) cancel_dead: Batcher<verbs::CancelDead>,
    pub(crate) reschedule: Batcher<verbs::Reschedule>,
    pub(crate) run_now: Batcher<verbs::MakeDue>,
    pub(crate) requeue: Batcher<verbs::Requeue>,
    pub(crate) end_lease: Batcher<verbs::EndLease>,
    pub(crate) bury: Batcher<verbs::BuryAny>,
}

impl Producers {
    fn new(spec: &CallSpec) -> Self {
        Self {
            push: Batcher::new(spec.clone()),
            upsert: Batcher::new(spec.clone()),
            cancel: Batcher::new(spec.clone()),
            cancel_dead: Batcher::new(spec.clone()),
            reschedule: Batcher::new(spec.clone()),
            run_now: Batcher::new(spec.clone()),
            requeue: Batcher::new(spec.clone()),
            end_lease: Batcher::new(spec.clone()),
            bury: Batcher::new(spec.clone()),
        }
    }
}

/// The producers of a partition. Durable calls queue only behind calls of the same durability: one
/// script call and one WAIT serve all of them.
pub(crate) struct ProducerPool {
    spec: CallSpec,
    memory: Arc<Producers>,
    /// The durabilities with their producers; the least recently used comes first.
    durable: Mutex<Vec<(Durability, Arc<Producers>)>>,
    connections: Arc<Semaphore>,
}

impl ProducerPool {
    pub(crate) fn new(spec: CallSpec) -> Self {
        Self {
            memory: Arc::new(Producers::new(&spec)),
            spec,
            durable: Mutex::new(Vec::new()),
            connections: Arc::new(Semaphore::new(MAX_DURABLE_CONNECTIONS)),
        }
    }

    /// The producers of this durability. If they must be made, waits up to 10 s for a connection.
    pub(crate) async fn get(&self, durability: Durability) -> Result<Arc<Producers>, Error> {
        if durability == Durability::Memory {
            return Ok(Arc::clone(&self.memory));
        }
        if let Some(known) = self.known(durability) {
            return Ok(known);
        }
        let permit = Arc::clone(&self.connections).acquire_owned();
        let permit = tokio::time::timeout(PATIENCE, permit).await;
        let permit = permit.ok().and_then(Result::ok).ok_or_else(crowded)?;
        // Another caller may have made the producers meanwhile.
        Ok(self
            .known(durability)
            .unwrap_or_else(|| self.add(durability, permit)))
    }

    /// The producers of this durability if they exist. Otherwise makes room for them.
    fn known(&self, durability: Durability) -> Option<Arc<Producers>> {
        let mut durable = self.lock();
        let Some(index) = durable.iter().position(|(known, _)| *known == durability) else {
            if durable.len() >= KEPT_DURABILITIES {
                durable.remove(0);
            }
            return None;
        };
        let (_, producers) = durable.remove(index);
        durable.push((durability, Arc::clone(&producers)));
        Some(producers)
    }

    fn add(&self, durability: Durability, permit: OwnedSemaphorePermit) -> Arc<Producers> {
        let spec = CallSpec {
            lane: Arc::new(self.spec.lane.dedicated(permit)),
            ..self.spec.clone()
        };
        let producers = Arc::new(Producers::new(&spec.with_durability(durability)));
        self.lock().push((durability, Arc::clone(&producers)));
        producers
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Durability, Arc<Producers>)>> {
        self.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn crowded() -> Error {
    let message = format!(
        "{MAX_DURABLE_CONNECTIONS} different durabilities (their timeouts included) are in use in this queue, and none was \
         confirmed within {PATIENCE:?}: ask for fewer different ones"
    );
    Error::new(ErrorKind::Unavailable, Applied::No, message)
}

/// The id of the message. A message without an id gets a new one.
pub(crate) fn named(message: &mut Message) -> Vec<u8> {
    message.id.get_or_insert_with(new_id).clone()
}

/// When the message with this id is due: later than asked if its due time is spread.
pub(crate) fn due_of(message: &Message, id: &[u8]) -> Due {
    spread(message.due, message.spread_ms, id)
}

/// The receipt of a push of the message with this id and due time.
pub(crate) fn receipt(
    result: Result<PushResult, Error>,
    id: Vec<u8>,
    due: Due,
) -> Result<Receipt, Error> {
    let result = result.map_err(|error| error.of_message(&id))?;
    Ok(Receipt {
        outcome: result.outcome()?,
        due_ms: result.now_up_ms().map(|now_ms| due.unix_ms(now_ms)),
        id,
    })
}

/// The item of a push: id, due time, payload and options.
///
/// # Errors
/// `InvalidInput` if one of them is out of its range.
pub(crate) fn push_item(mut message: Message) -> Result<Item, Error> {
    let id = named(&mut message);
    limits::check_id(&id)?;
    limits::check_payload(&message.payload)?;
    message
        .max_attempts
        .map_or(Ok(()), limits::check_max_attempts)?;
    message
        .trace_parent
        .as_deref()
        .map_or(Ok(()), limits::check_trace_parent)?;
    limits::check_expiry(message.expires, message.on_expire)?;
    message.cost.map_or(Ok(()), limits::check_cost)?;
    spread::check(message.due, message.spread_ms)?;
    let due = due_of(&message, &id);
    limits::check_uniqueness(message.unique, message.on_conflict, due)?;
    let due = due.encode()?.into_bytes();
    let options = message.options().into_bytes();
    let repeat = if message.is_repeatable() {
        Repeat::Harmless
    } else {
        Repeat::Unsafe
    };
    Ok(Item {
        granted: None,
        args: vec![id, due, message.payload, options],
        repeat,
    })
}
