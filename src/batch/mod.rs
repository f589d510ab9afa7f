//! Group commit: while one script call is in flight, what arrives meanwhile is gathered and sent as the next one.
//!
//! A second call joins the first in flight once enough is gathered for it to be worth its while, so that Redis works while we
//! do. A lone caller waits for nobody. Each caller gets its own answer, and only after Redis has answered. A caller that goes
//! away neither loses nor repeats anybody else's item; its own is sent all the same.

mod claims;
mod commit;
mod tally;
mod work;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::error::{Applied, Error, ErrorKind};
use crate::model::durability::Durability;
use crate::protocol::keys::Keys;
use crate::protocol::limits::MAX_ITEMS;
use crate::protocol::replies::ItemReply;
use crate::protocol::verbs::Verb;
use crate::server::lane::{Lane, Repeat};
use crate::telemetry::metrics::Meters;
use work::Work;

/// A script call takes at most so many items and bytes, so that none holds Redis for more than a few milliseconds.
pub(crate) const BATCH_ITEMS: usize = 256;
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

/// Between two calls for which nobody waits: at full load a life costs Redis a twentieth less by that.
const LINGER: Duration = Duration::from_millis(1);

/// What one caller wants done.
pub(crate) struct Item {
    /// What a settle or an extension is about: id and token stand before the other arguments. It is kept until the answer, with
    /// its payload, which counts for nothing here: mostly its handler's task keeps it, too.
    pub(crate) granted: Option<Arc<dyn OfClaim>>,
    /// Its share of the script's ARGV, or the rest of it.
    pub(crate) args: Vec<Vec<u8>>,
    /// What may be done about it if the reply is lost.
    pub(crate) repeat: Repeat,
}

impl Item {
    /// All of its arguments.
    fn args(&self) -> impl Iterator<Item = &[u8]> {
        let granted = self
            .granted
            .iter()
            .flat_map(|granted| [granted.id(), granted.token()]);
        granted.chain(self.args.iter().map(Vec::as_slice))
    }
}

/// What a claim granted.
pub(crate) trait OfClaim: Send + Sync {
    fn id(&self) -> &[u8];
    fn token(&self) -> &[u8];
}

struct Pending {
    item: Item,
    /// When it came into line.
    since: Instant,
    answer: oneshot::Sender<Result<ItemReply, Error>>,
    /// Its share of the backlog, given back when it has been answered.
    _room: OwnedSemaphorePermit,
}

/// What one item comes to.
pub(crate) type Answer = oneshot::Receiver<Result<ItemReply, Error>>;

/// What one caller wants done in one call: never more than a call takes.
#[derive(Default)]
pub(crate) struct Group {
    items: Vec<(Item, oneshot::Sender<Result<ItemReply, Error>>)>,
    bytes: usize,
}

impl Group {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn has_room_for(&self, item: &Item) -> bool {
        fits(self.items.len() + 1, self.bytes + size(item))
    }

    pub(crate) fn add(&mut self, item: Item) -> Answer {
        let (answer, receiver) = oneshot::channel();
        self.bytes += size(&item);
        self.items.push((item, answer));
        receiver
    }

    /// Nothing of it is sent.
    pub(crate) fn fail(self, error: &Error) {
        self.items
            .into_iter()
            .for_each(|(_, answer)| drop(answer.send(Err(error.clone()))));
    }
}

/// What stands before the items in ARGV (after `now`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prefix {
    Nothing,
    Word(&'static str),
    /// A word; in a repetition also the server's time at the first attempt, at the latest.
    Since(&'static str),
    /// What makes a repetition of this call recognisable: the server's time until which it is, counted from the first attempt,
    /// and a nonce.
    Attempt,
}

/// Gathers the items of one verb, and one durability, of one queue. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Batcher {
    work: Arc<Work>,
    line: Arc<Mutex<Option<Line>>>,
    room: Arc<Semaphore>,
}

/// Where the items wait for the task that sends them.
struct Line {
    sender: mpsc::UnboundedSender<Arrival>,
    gauge: Arc<Gauge>,
}

/// What came together goes together.
enum Arrival {
    One(Pending),
    Many(Vec<Pending>),
}

impl Arrival {
    fn items(&self) -> &[Pending] {
        match self {
            Self::One(pending) => std::slice::from_ref(pending),
            Self::Many(group) => group,
        }
    }

    fn fail(self, error: &Error) {
        let fail = |pending: Pending| drop(pending.answer.send(Err(error.clone())));
        match self {
            Self::One(pending) => fail(pending),
            Self::Many(group) => group.into_iter().for_each(fail),
        }
    }
}

/// How many items wait.
#[derive(Default)]
struct Gauge {
    waiting: AtomicUsize,
    /// So many that a second call is worth its while.
    enough: Notify,
}

impl Batcher {
    pub(crate) fn new(
        verb: Verb,
        prefix: Prefix,
        keys: Arc<Keys>,
        lane: Arc<Lane>,
        meters: Arc<Meters>,
    ) -> Self {
        let (pace, durability) = (Duration::ZERO, Durability::Memory);
        let work = Arc::new(Work {
            verb,
            prefix,
            pace,
            keys,
            lane,
            meters,
            durability,
        });
        Self {
            work,
            line: Arc::default(),
            room: Arc::new(Semaphore::new(BACKLOG_BYTES as usize)),
        }
    }

    /// The same, not used yet, for items whose answers nobody waits for: the next call goes a millisecond after the last one
    /// did, or when enough has gathered.
    pub(crate) fn with_linger(self) -> Self {
        Self {
            work: Arc::new(Work {
                pace: LINGER,
                ..Work::clone(&self.work)
            }),
            ..self
        }
    }

    /// The same, not used yet, for items that must be so durable before they are answered.
    pub(crate) fn with_durability(self, durability: Durability) -> Self {
        Self {
            work: Arc::new(Work {
                durability,
                ..Work::clone(&self.work)
            }),
            ..self
        }
    }

    /// Sends one item along with whatever else is waiting, and gives back its own answer.
    pub(crate) async fn submit(&self, item: Item) -> Result<ItemReply, Error> {
        let _room = self.room(share(size(&item))).await?;
        let (answer, receiver) = oneshot::channel();
        self.send(Arrival::One(Pending {
            item,
            since: Instant::now(),
            answer,
            _room,
        }));
        Self::answer(receiver).await
    }

    /// Puts a caller's items in line, as soon as there is room; they go in one call.
    pub(crate) async fn enqueue(&self, group: Group) {
        let mut room = match self
            .room(group.items.iter().map(|(item, _)| share(size(item))).sum())
            .await
        {
            Ok(room) => room,
            Err(error) => return group.fail(&error),
        };
        let since = Instant::now();
        let line = group.items.into_iter().filter_map(|(item, answer)| {
            let _room = room.split(share(size(&item)) as usize)?; // the shares add up
            Some(Pending {
                item,
                since,
                answer,
                _room,
            })
        });
        self.send(Arrival::Many(line.collect()));
    }

    /// The wait for room has no limit of its own: it ends as the calls before it do, and those have theirs. An error after so
    /// long would make failures of what is only a queue of callers.
    async fn room(&self, bytes: u32) -> Result<OwnedSemaphorePermit, Error> {
        // Nobody closes the semaphore.
        Arc::clone(&self.room)
            .acquire_many_owned(bytes)
            .await
            .map_err(|_| gone(Applied::No))
    }

    fn send(&self, mut arrival: Arrival) {
        let (count, enough) = (arrival.items().len(), enough(self.work.verb));
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        // A task ends with the runtime that it was started on: then the next caller starts another.
        for _ in 0..2 {
            let Line { sender, gauge } = match &mut *line {
                Some(open) if !open.sender.is_closed() => open,
                closed => closed.insert(self.open()),
            };
            let before = gauge.waiting.fetch_add(count, Ordering::AcqRel);
            match sender.send(arrival) {
                Ok(()) => {
                    if before < enough && before + count >= enough {
                        gauge.enough.notify_one();
                    }
                    return;
                }
                Err(mpsc::error::SendError(back)) => arrival = back,
            }
        }
        drop(line);
        arrival.fail(&gone(Applied::No));
    }

    pub(crate) async fn answer(receiver: Answer) -> Result<ItemReply, Error> {
        receiver
            .await
            .unwrap_or_else(|_| Err(gone(Applied::Unknown)))
    }

    fn open(&self) -> Line {
        let (sender, receiver) = mpsc::unbounded_channel();
        let gauge = Arc::<Gauge>::default();
        tokio::spawn(Arc::clone(&self.work).run(receiver, Arc::clone(&gauge)));
        Line { sender, gauge }
    }
}

fn is_settle(verb: Verb) -> bool {
    matches!(
        verb,
        Verb::Ack | Verb::Again | Verb::Retry | Verb::Release | Verb::Bury
    )
}

fn enough(verb: Verb) -> usize {
    if is_settle(verb) {
        ENOUGH_SETTLES
    } else {
        ENOUGH
    }
}

fn gone(applied: Applied) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        applied,
        "the runtime that the queue was used on has shut down",
    )
}

fn size(item: &Item) -> usize {
    item.args().map(<[u8]>::len).sum()
}

/// Whether so much may go in one call; one item may, whatever its size.
fn fits(items: usize, bytes: usize) -> bool {
    items <= 1 || items <= BATCH_ITEMS && bytes <= BATCH_BYTES
}

/// An item's share of the backlog.
fn share(bytes: usize) -> u32 {
    u32::try_from(bytes)
        .unwrap_or(u32::MAX)
        .clamp(LEAST_BYTES, BACKLOG_BYTES)
}
