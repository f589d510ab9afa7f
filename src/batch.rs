//! Group commit: while one script call is in flight, what arrives meanwhile is gathered and sent as the next one.
//!
//! A second call joins the first in flight once enough is gathered for it to be worth its while, so that Redis works while we
//! do. A lone caller waits for nobody. Each caller gets its own answer, and only after Redis has answered. A caller that goes
//! away neither loses nor repeats anybody else's item; its own is sent all the same.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

use crate::durability::Durability;
use crate::error::{Applied, Error, ErrorKind};
use crate::protocol::keys::Keys;
use crate::protocol::lane::{Lane, PATIENCE, Patience, Repeat};
use crate::protocol::limits::MAX_ITEMS;
use crate::protocol::replies::ItemReply;
use crate::protocol::scripts::Verb;

/// A script call takes at most so many items and bytes, so that none holds Redis for more than a few milliseconds.
const BATCH_ITEMS: usize = 256;
const BATCH_BYTES: usize = 1024 * 1024;
const _: () = assert!(BATCH_ITEMS <= MAX_ITEMS);
/// How much may wait for an answer, in bytes; callers beyond it wait for room: memory is bounded.
const BACKLOG_BYTES: u32 = 16 * 1024 * 1024;
/// What an item counts for at least: so no more than 4,096 wait.
const LEAST_BYTES: u32 = 4_096;
/// How many items make a second call in flight worth its while: a call costs Redis as much as eight of them. For settles,
/// which hold nobody up, more.
const ENOUGH: usize = 32;
const ENOUGH_SETTLES: usize = 128;

/// What one caller wants done.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    /// Its share of the script's ARGV.
    pub(crate) args: Vec<Vec<u8>>,
    /// What may be done about it if the reply is lost.
    pub(crate) repeat: Repeat,
}

struct Pending {
    item: Item,
    /// When its caller began to wait.
    since: Instant,
    answer: oneshot::Sender<Result<ItemReply, Error>>,
    /// Its share of the backlog, given back when it has been answered.
    _room: OwnedSemaphorePermit,
}

/// What stands before the items in ARGV (after `now`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prefix {
    Nothing,
    Word(&'static str),
    /// The server's time until which a repetition is recognised: counted from the first attempt.
    Until,
}

/// Gathers the items of one verb, and one durability, of one queue. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Batcher(Arc<Shared>, Durability);

struct Shared {
    verb: Verb,
    prefix: Prefix,
    keys: Arc<Keys>,
    lane: Arc<Lane>,
    line: Mutex<Option<Line>>,
    room: Arc<Semaphore>,
}

/// Where the items wait for the task that sends them.
#[derive(Clone)]
struct Line {
    sender: mpsc::UnboundedSender<Pending>,
    gauge: Arc<Gauge>,
}

/// How many items wait.
#[derive(Default)]
struct Gauge {
    waiting: AtomicUsize,
    /// So many that a second call is worth its while.
    enough: Notify,
}

impl Batcher {
    pub(crate) fn new(verb: Verb, prefix: Prefix, keys: Arc<Keys>, lane: Arc<Lane>) -> Self {
        let room = Arc::new(Semaphore::new(BACKLOG_BYTES as usize));
        Self(Arc::new(Shared { verb, prefix, keys, lane, line: Mutex::new(None), room }), Durability::Memory)
    }

    /// The same, not used yet, for items that must be so durable before they are answered.
    pub(crate) fn with_durability(self, durability: Durability) -> Self {
        Self(self.0, durability)
    }

    /// Sends one item along with whatever else is waiting, and gives back its own answer.
    pub(crate) async fn submit(&self, item: Item) -> Result<ItemReply, Error> {
        let answer = self.enqueue(item).await?;
        self.answer(answer).await
    }

    /// Puts an item in line; its answer comes by the receiver.
    pub(crate) async fn enqueue(&self, item: Item) -> Result<oneshot::Receiver<Result<ItemReply, Error>>, Error> {
        let (answer, receiver) = oneshot::channel();
        let bytes = u32::try_from(size(&item)).unwrap_or(u32::MAX).clamp(LEAST_BYTES, BACKLOG_BYTES);
        // Nobody closes the semaphore.
        let room = Arc::clone(&self.0.room).acquire_many_owned(bytes).await.map_err(|_| gone(Applied::No))?;
        let mut pending = Pending { item, since: Instant::now(), answer, _room: room };
        // A task ends with the runtime that it was started on: then the next caller starts another.
        for _ in 0..2 {
            let Line { sender, gauge } = self.line();
            let waiting = gauge.waiting.fetch_add(1, Ordering::AcqRel) + 1;
            match sender.send(pending) {
                Ok(()) => {
                    if waiting == enough(self.0.verb) {
                        gauge.enough.notify_one();
                    }
                    return Ok(receiver);
                }
                Err(mpsc::error::SendError(back)) => pending = back,
            }
        }
        Err(gone(Applied::No))
    }

    pub(crate) async fn answer(
        &self,
        receiver: oneshot::Receiver<Result<ItemReply, Error>>,
    ) -> Result<ItemReply, Error> {
        receiver.await.unwrap_or_else(|_| Err(gone(Applied::Unknown)))
    }

    fn line(&self) -> Line {
        let mut line = self.0.line.lock().unwrap_or_else(PoisonError::into_inner);
        match &*line {
            Some(open) if !open.sender.is_closed() => open.clone(),
            _ => {
                let (sender, receiver) = mpsc::unbounded_channel();
                let new = Line { sender, gauge: Arc::default() };
                let work = Work {
                    verb: self.0.verb,
                    prefix: self.0.prefix,
                    keys: Arc::clone(&self.0.keys),
                    lane: Arc::clone(&self.0.lane),
                    durability: self.1,
                };
                tokio::spawn(Arc::new(work).run(receiver, Arc::clone(&new.gauge)));
                *line = Some(new.clone());
                new
            }
        }
    }
}

fn is_settle(verb: Verb) -> bool {
    matches!(verb, Verb::Ack | Verb::Again | Verb::Retry | Verb::Release | Verb::Bury)
}

fn enough(verb: Verb) -> usize {
    if is_settle(verb) { ENOUGH_SETTLES } else { ENOUGH }
}

fn gone(applied: Applied) -> Error {
    Error::new(ErrorKind::Unavailable, applied, "the runtime that the queue was used on has shut down")
}

/// The items of one script call.
struct Batch {
    items: Vec<Pending>,
    bytes: usize,
    /// Whether some of them must not be repeated.
    ordered: bool,
}

impl Batch {
    fn of(first: Pending) -> Self {
        let (bytes, ordered) = (size(&first.item), first.item.repeat == Repeat::Unsafe);
        Self { items: vec![first], bytes, ordered }
    }

    fn has_room(&self) -> bool {
        self.items.len() < BATCH_ITEMS
    }

    /// Takes an item in; gives it back if it would be too much.
    fn add(&mut self, pending: Pending) -> Option<Pending> {
        let bytes = self.bytes + size(&pending.item);
        if bytes > BATCH_BYTES {
            return Some(pending);
        }
        self.bytes = bytes;
        self.ordered |= pending.item.repeat == Repeat::Unsafe;
        self.items.push(pending);
        None
    }
}

/// The task behind a batcher; it ends when the batcher is dropped.
struct Work {
    verb: Verb,
    prefix: Prefix,
    keys: Arc<Keys>,
    lane: Arc<Lane>,
    durability: Durability,
}

impl Work {
    async fn run(self: Arc<Self>, mut receiver: mpsc::UnboundedReceiver<Pending>, gauge: Arc<Gauge>) {
        let (mut next, mut flying, mut ordered) = (None, JoinSet::new(), false);
        loop {
            let first = match next.take() {
                Some(pending) => pending,
                None => match receiver.recv().await {
                    Some(pending) => pending,
                    None => break,
                },
            };
            if is_settle(self.verb) {
                // Handlers end together, often: those that are about to come along.
                tokio::task::yield_now().await;
            }
            let mut batch = Batch::of(first);
            loop {
                while next.is_none()
                    && batch.has_room()
                    && let Ok(pending) = receiver.try_recv()
                {
                    next = batch.add(pending);
                }
                while flying.try_join_next().is_some() {}
                // Calls that must not be repeated keep to their order, and so does what comes after them.
                let joins = flying.len() == 1 && batch.items.len() >= enough(self.verb) && !ordered && !batch.ordered;
                if flying.is_empty() || joins {
                    break;
                }
                tokio::select! {
                    _ = flying.join_next() => {}
                    () = gauge.enough.notified(), if flying.len() == 1 => {}
                }
            }
            gauge.waiting.fetch_sub(batch.items.len(), Ordering::AcqRel);
            ordered = batch.ordered;
            let work = Arc::clone(&self);
            flying.spawn(async move { work.commit(batch.items).await });
        }
        while flying.join_next().await.is_some() {}
    }

    /// Sends a batch and answers everybody in it, whatever happens.
    async fn commit(&self, mut batch: Vec<Pending>) {
        // Each caller's patience begins with its own waiting, not when those before it have given up; it gets one try.
        let newest = batch.iter().map(|pending| pending.since).max();
        let mut patience = Patience::since(newest.unwrap_or_else(Instant::now));
        if batch.iter().any(|pending| pending.item.repeat == Repeat::Unsafe) {
            self.lane.distrust_idle();
        }
        let mut until = None;
        let mut repeated = false;
        while !batch.is_empty() {
            let prefix = match self.prefix(&mut until).await {
                Ok(prefix) => prefix,
                Err(error) if patience.allows(&error, Repeat::Harmless) => {
                    patience.pause().await;
                    continue;
                }
                Err(error) => return fail(batch, &of(error, repeated)),
            };
            match self.call(prefix.as_deref(), &batch).await {
                Ok(replies) => {
                    batch = distribute(batch, replies, repeated);
                    // What is left was refused as too late at its first attempt: our idea of the server's time was wrong,
                    // and the reply has put it right.
                    until = None;
                    let error = unsteady(self.verb);
                    if !batch.is_empty() && !patience.allows(&error, Repeat::Harmless) {
                        return fail(batch, &error);
                    }
                    if !batch.is_empty() {
                        patience.pause().await;
                    }
                }
                Err(error) => {
                    let (again, lost): (Vec<_>, Vec<_>) =
                        batch.into_iter().partition(|pending| patience.allows(&error, pending.item.repeat));
                    let unknown = error.was_applied() != Applied::No;
                    fail(lost, &of(error, repeated));
                    repeated |= unknown;
                    batch = again;
                    if !batch.is_empty() {
                        patience.pause().await;
                    }
                }
            }
        }
    }

    async fn prefix(&self, until: &mut Option<String>) -> Result<Option<String>, Error> {
        match self.prefix {
            Prefix::Nothing => Ok(None),
            Prefix::Word(word) => Ok(Some(word.to_owned())),
            Prefix::Until => {
                if until.is_none() {
                    *until = Some(self.until_ms().await?.to_string());
                }
                Ok(until.clone())
            }
        }
    }

    async fn until_ms(&self) -> Result<i64, Error> {
        if self.lane.clock().server_us(Instant::now()).is_none() {
            self.lane.call(Verb::Stats, &self.keys, &[b""]).await?;
        }
        let now_us = self.lane.clock().server_us(Instant::now()).unwrap_or_default();
        Ok(now_us / 1_000 + i64::try_from(PATIENCE.as_millis()).unwrap_or(i64::MAX))
    }

    async fn call(&self, prefix: Option<&str>, batch: &[Pending]) -> Result<Vec<ItemReply>, Error> {
        let mut args: Vec<&[u8]> = vec![b""];
        args.extend(prefix.map(str::as_bytes));
        args.extend(batch.iter().flat_map(|pending| pending.item.args.iter().map(Vec::as_slice)));
        let (mut reply, shortfall) = self.lane.call_durably(self.verb, &self.keys, &args, self.durability).await?;
        let mut items = reply.body.parts()?;
        let same = items.len() == 1;
        if items.len() != batch.len() && !same {
            return Err(Error::new(
                ErrorKind::Server,
                Applied::Unknown,
                format!("{} answered {} items of {}", self.verb.name(), items.len(), batch.len()),
            ));
        }
        let item = |text: &str| ItemReply { shortfall: shortfall.clone(), ..ItemReply::parse(self.verb, text) };
        if same {
            // One result stands for all.
            return Ok(vec![item(&items.text()?); batch.len()]);
        }
        batch.iter().map(|_| Ok(item(&items.text()?))).collect()
    }
}

/// Hands out the answers; gives back what was refused as too late although it was sent for the first time.
fn distribute(batch: Vec<Pending>, replies: Vec<ItemReply>, repeated: bool) -> Vec<Pending> {
    let mut early = Vec::new();
    for (pending, reply) in batch.into_iter().zip(replies) {
        let answer = match (reply.word.as_str(), repeated) {
            ("EXPIRED", false) => {
                early.push(pending);
                continue;
            }
            ("EXPIRED", true) => Err(Error::new(
                ErrorKind::Timeout,
                Applied::Unknown,
                format!("{} was repeated for {PATIENCE:?} and its first reply was lost", reply.verb.name()),
            )),
            // The queue's limits may have been others when an earlier attempt was judged.
            ("INVALID", true) => Err(reply.refusal().of_repeated()),
            _ => Ok(reply),
        };
        // The caller may have gone away; its item was sent all the same.
        let _ = pending.answer.send(answer);
    }
    early
}

/// The server's clock is set again and again, faster than we can follow.
fn unsteady(verb: Verb) -> Error {
    let message =
        format!("{} was refused as too late for {PATIENCE:?}: is the clock of the server steady?", verb.name());
    Error::new(ErrorKind::Timeout, Applied::No, message)
}

/// Of a call of which an earlier attempt may have been applied nobody knows, whatever became of the last one.
fn of(error: Error, repeated: bool) -> Error {
    if repeated { error.of_repeated() } else { error }
}

fn fail(batch: Vec<Pending>, error: &Error) {
    for pending in batch {
        let _ = pending.answer.send(Err(error.clone()));
    }
}

fn size(item: &Item) -> usize {
    item.args.iter().map(Vec::len).sum()
}
