//! A named queue: pushing, and changing what waits.

mod administer;
mod claim;
pub(crate) mod inspect;

use std::fmt;
use std::sync::Arc;

use crate::batch::{Batcher, Group, Item};
use crate::error::Error;
use crate::model::due::Due;
use crate::model::durability::Durability;
use crate::model::message::Message;
use crate::model::outcomes::{Cancelled, Pushed, Requeued, Rescheduled, RunNow, State};
use crate::partition::{Partition, Producers};
use crate::protocol::limits;
use crate::protocol::replies::{ItemReply, Reply};
use crate::protocol::verbs::Verb;
use crate::router::Router;
use crate::server::lane::{Lane, Repeat};
use crate::server::link::ServerLink;
use crate::telemetry::metrics::{Count, Metrics};
use crate::worker::Worker;

/// A named delay queue. Cheap to clone; clones share their connections and send their calls together.
///
/// Calls that arrive while one is in flight are sent as one batch. While Redis is away, calls that can be repeated without
/// harm are, for 10 s, and each is tried once at least; the others report [`Applied::Unknown`](crate::Applied::Unknown). At
/// most 4,096 calls of a verb, or 16 MiB, wait for their answers at once: one beyond that waits for room first, however long
/// that takes, and its 10 s begin then. A dropped future may or may not have taken effect.
#[derive(Clone)]
pub struct Queue {
    router: Router,
    durability: Durability,
}

impl Queue {
    pub(crate) fn new(name: &str, link: Arc<ServerLink>) -> Result<Self, Error> {
        Ok(Self {
            router: Router::new(name, link)?,
            durability: Durability::Memory,
        })
    }

    /// The queue's name.
    pub fn name(&self) -> &str {
        self.partition().queue_name()
    }

    /// The same queue, asking for this [`Durability`] unless a message asks for another.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// What this handle, its clones and the workers on them have done and seen: see [`Metrics`]. Asks nothing of the server.
    pub fn metrics(&self) -> Metrics {
        self.partition().meters().snapshot()
    }

    /// The item of a push. One that is not even sent was refused all the same.
    fn push_item(&self, message: Message) -> Result<Item, Error> {
        push_item(message).inspect_err(|_| self.partition().meters().add(Count::PushRefused))
    }

    fn producers(
        &self,
        durability: Durability,
    ) -> impl Future<Output = Result<Arc<Producers>, Error>> {
        self.partition().producers(durability)
    }

    /// Stores a message, to be delivered when it is due.
    ///
    /// When this returns `Created`, Redis holds the message: it will be delivered, cancelled, buried, or trimmed by a limit
    /// that an operator set. While a message with this id is in the queue, a push changes nothing and answers `Exists`. Once
    /// that message is delivered or cancelled, a push of its id stores a new message.
    ///
    /// If the reply is lost, the library repeats the push for up to 10 s. The repetition never stores a second message: it
    /// answers `Exists`, or `Finished` if the message has been delivered or cancelled meanwhile.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if id, payload, due time or options are out of range; [`ErrorKind::Full`](crate::ErrorKind::Full) if the queue or
    /// the server's memory is; in both cases nothing is stored. [`Applied::Unknown`](crate::Applied::Unknown) if Redis went away for 10 s: then
    /// [`Error::message_id`] tells the id.
    pub async fn push(&self, message: Message) -> Result<Pushed, Error> {
        let (id, durability) = (
            message.id.clone(),
            message.durability.unwrap_or(self.durability),
        );
        let item = self.push_item(message)?;
        let reply = self.producers(durability).await?.push.submit(item).await;
        pushed(reply.map_err(|error| error.of_message(&id))?, &id)
    }

    /// Pushes many messages, in calls of up to 256 or 1 MiB; the results are in the order of the messages, and each stands for
    /// itself.
    ///
    /// Dropped halfway, some are stored and some are not.
    pub async fn push_many(
        &self,
        messages: impl IntoIterator<Item = Message>,
    ) -> Vec<Result<Pushed, Error>> {
        let (mut answers, mut group, mut durability) =
            (Vec::new(), Group::default(), self.durability);
        for message in messages {
            let (id, wanted) = (
                message.id.clone(),
                message.durability.unwrap_or(self.durability),
            );
            let answer = match self.push_item(message) {
                Ok(item) => {
                    if wanted != durability || !group.has_room_for(&item) {
                        self.enqueue(std::mem::take(&mut group), durability).await;
                    }
                    durability = wanted;
                    Ok(group.add(item))
                }
                Err(error) => Err(error),
            };
            answers.push((id, answer));
        }
        self.enqueue(group, durability).await;
        let mut results = Vec::with_capacity(answers.len());
        for (id, answer) in answers {
            results.push(match answer {
                Ok(answer) => {
                    let reply = Batcher::answer(answer).await;
                    reply
                        .map_err(|error| error.of_message(&id))
                        .and_then(|reply| pushed(reply, &id))
                }
                Err(error) => Err(error),
            });
        }
        results
    }

    async fn enqueue(&self, group: Group, durability: Durability) {
        if group.is_empty() {
            return;
        }
        // Not kept: one that nobody needs any more makes room for the next durability.
        match self.producers(durability).await {
            Ok(producers) => producers.push.enqueue(group).await,
            Err(error) => group.fail(&error),
        }
    }

    /// Takes back a message that waits. After `Cancelled` it is never delivered: of a cancel and a claim exactly one wins.
    ///
    /// An id that was cancelled is remembered for 12 s: within that, the same call again answers `Cancelled`, and if it failed
    /// with [`ErrorKind::Unconfirmed`](crate::ErrorKind::Unconfirmed), waits again. Later it answers `Absent`, which says that
    /// the master has no such message, and nothing of replicas: a failover to one that lags may bring the message back.
    /// Repeated by the library because the reply was lost, it leaves alone what was pushed under the id meanwhile.
    pub async fn cancel(&self, id: impl AsRef<[u8]>) -> Result<Cancelled, Error> {
        self.cancel_by(&self.producers(self.durability).await?.cancel, id.as_ref())
            .await
    }

    /// As [`cancel`](Queue::cancel), and removes a dead message too.
    pub async fn cancel_dead(&self, id: impl AsRef<[u8]>) -> Result<Cancelled, Error> {
        self.cancel_by(
            &self.producers(self.durability).await?.cancel_dead,
            id.as_ref(),
        )
        .await
    }

    async fn cancel_by(&self, batcher: &Batcher, id: &[u8]) -> Result<Cancelled, Error> {
        let reply = submit_id(batcher, id, [], Repeat::Harmless).await?;
        match &*reply.word {
            "CANCELLED" => Ok(Cancelled::Cancelled),
            "LEASED" => Ok(Cancelled::Leased),
            "DEAD" => Ok(Cancelled::Dead),
            "ABSENT" => Ok(Cancelled::Absent),
            _ => Err(reply.refusal()),
        }
    }

    /// Gives a message that waits another due time; from then on only that one counts.
    ///
    /// Not repeated when the reply is lost: then the error says [`Applied::Unknown`](crate::Applied::Unknown).
    pub async fn reschedule(
        &self,
        id: impl AsRef<[u8]>,
        due: impl Into<Due>,
    ) -> Result<Rescheduled, Error> {
        self.reschedule_by(id.as_ref(), due.into(), None).await
    }

    /// As [`reschedule`](Queue::reschedule), if the message is due at `expected_ms` as the caller believes.
    ///
    /// To a fixed time ([`Due::at_ms`]) it is repeated when the reply is lost. By a delay it is not, since each try would mean
    /// another time: who makes it again by himself reads `Conflict` if the first one took effect.
    pub async fn reschedule_if(
        &self,
        id: impl AsRef<[u8]>,
        due: impl Into<Due>,
        expected_ms: u64,
    ) -> Result<Rescheduled, Error> {
        self.reschedule_by(id.as_ref(), due.into(), Some(expected_ms))
            .await
    }

    async fn reschedule_by(
        &self,
        id: &[u8],
        due: Due,
        expected_ms: Option<u64>,
    ) -> Result<Rescheduled, Error> {
        let repeat = match (due, expected_ms) {
            (Due::AtMs(_), Some(_)) => Repeat::Harmless,
            _ => Repeat::Unsafe,
        };
        let expected = expected_ms.map(|ms| ms.to_string()).unwrap_or_default();
        let rest = [due.encode()?.into_bytes(), expected.into_bytes()];
        let reply = submit_id(
            &self.producers(self.durability).await?.reschedule,
            id,
            rest,
            repeat,
        )
        .await?;
        match &*reply.word {
            "MOVED" => Ok(Rescheduled::Moved(reply.time_ms()?)),
            "CONFLICT" => Ok(Rescheduled::Conflict(reply.time_ms()?)),
            "LEASED" => Ok(Rescheduled::Leased),
            "DEAD" => Ok(Rescheduled::Dead),
            "ABSENT" => Ok(Rescheduled::Absent),
            _ => Err(reply.refusal()),
        }
    }

    /// Makes a scheduled message due now. Not repeated when the reply is lost.
    pub async fn run_now(&self, id: impl AsRef<[u8]>) -> Result<RunNow, Error> {
        let reply = submit_id(
            &self.producers(self.durability).await?.run_now,
            id.as_ref(),
            [],
            Repeat::Unsafe,
        )
        .await?;
        match &*reply.word {
            "MOVED" => Ok(RunNow::Moved),
            "ALREADY" => Ok(RunNow::Already),
            "LEASED" => Ok(RunNow::Leased),
            "DEAD" => Ok(RunNow::Dead),
            "ABSENT" => Ok(RunNow::Absent),
            _ => Err(reply.refusal()),
        }
    }

    /// Revives a dead message: due now, its attempts counted from none. Not repeated when the reply is lost.
    pub async fn requeue(&self, id: impl AsRef<[u8]>) -> Result<Requeued, Error> {
        let reply = submit_id(
            &self.producers(self.durability).await?.requeue,
            id.as_ref(),
            [],
            Repeat::Unsafe,
        )
        .await?;
        match &*reply.word {
            "REQUEUED" => Ok(Requeued::Requeued),
            "NOT_DEAD" => State::parse(&reply.detail)
                .map(Requeued::NotDead)
                .ok_or_else(|| reply.refusal()),
            "ABSENT" => Ok(Requeued::Absent),
            _ => Err(reply.refusal()),
        }
    }

    /// The names of the ten keys that every script of this queue takes, in that order: for calling them from elsewhere.
    pub fn keys(&self) -> &[String; 10] {
        &self.partition().keys().vector
    }

    /// A worker of this queue, to be configured and run.
    pub fn worker(&self) -> Worker {
        Worker::new(Arc::clone(self.partition()))
    }

    /// Calls a script that takes no batch; `now` is put in front.
    pub(crate) fn call(
        &self,
        verb: Verb,
        args: &[&[u8]],
        repeat: Repeat,
    ) -> impl Future<Output = Result<Reply, Error>> {
        self.partition().call(verb, args, repeat)
    }

    pub(crate) fn partition(&self) -> &Arc<Partition> {
        self.router.partition()
    }

    /// The connection for calls that are not batched.
    pub(crate) fn control(&self) -> &Arc<Lane> {
        self.partition().control()
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

fn push_item(message: Message) -> Result<Item, Error> {
    limits::check_id(&message.id)?;
    limits::check_payload(&message.payload)?;
    message
        .max_attempts
        .map_or(Ok(()), limits::check_max_attempts)?;
    message
        .trace_parent
        .as_deref()
        .map_or(Ok(()), limits::check_trace_parent)?;
    let (due, options) = (
        message.due.encode()?.into_bytes(),
        message.options().into_bytes(),
    );
    let repeat = if message.is_repeatable() {
        Repeat::Harmless
    } else {
        Repeat::Unsafe
    };
    Ok(Item {
        granted: None,
        args: vec![message.id, due, message.payload, options],
        repeat,
    })
}

pub(crate) fn pushed(reply: ItemReply, id: &[u8]) -> Result<Pushed, Error> {
    let reply = reply.confirmed(id)?;
    match &*reply.word {
        "CREATED" => Ok(Pushed::Created),
        "EXISTS" => State::parse(&reply.detail)
            .map(Pushed::Exists)
            .ok_or_else(|| reply.refusal()),
        "MOVED" => Ok(Pushed::Moved),
        "FINISHED" => Ok(Pushed::Finished),
        _ => Err(reply.refusal()),
    }
}

async fn submit_id<const N: usize>(
    batcher: &Batcher,
    id: &[u8],
    rest: [Vec<u8>; N],
    repeat: Repeat,
) -> Result<ItemReply, Error> {
    limits::check_id(id)?;
    let args = [id.to_vec()].into_iter().chain(rest).collect();
    let reply = batcher
        .submit(Item {
            granted: None,
            args,
            repeat,
        })
        .await;
    reply.map_err(|error| error.of_message(id))?.confirmed(id)
}
