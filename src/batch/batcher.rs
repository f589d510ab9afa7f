//! A batcher: callers hand items to it, and it bounds how many of them wait.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};

use crate::batch::call::CallSpec;
use crate::batch::gather;
use crate::batch::item::{Answer, Answered, Arrival, Group, Item, Pending, gone};
use crate::batch::verb::BatchVerb;
use crate::error::{Applied, Error};

/// How many bytes of items may be in a batcher without a result. A caller with more waits for room,
/// so that memory is bounded.
const BACKLOG_BYTES: u32 = 16 * 1024 * 1024;
/// The smallest number of bytes by which an item counts in the backlog, so that at most 4,096 items
/// wait.
const MIN_ITEM_BYTES: u32 = 4_096;

/// Collects the items of one verb and one durability of one partition, and sends them in batches.
pub(crate) struct Batcher<V: BatchVerb> {
    spec: Arc<CallSpec>,
    task: Mutex<Option<GatherTask<V::Output>>>,
    room: Arc<Semaphore>,
    verb: PhantomData<V>,
}

/// The task that gathers items into calls: its channel, and the number of items that it has not
/// sent.
struct GatherTask<T> {
    sender: mpsc::UnboundedSender<Arrival<T>>,
    waiting: Arc<WaitingItems>,
    /// Whether the task runs on the runtime of the batcher's supervisor, not on that of a caller.
    on_own_runtime: bool,
}

/// How many items wait to be sent.
#[derive(Default)]
pub(crate) struct WaitingItems {
    pub(crate) count: AtomicUsize,
    /// Notified when enough items wait to justify a second call in flight.
    pub(crate) enough: Notify,
}

impl<V: BatchVerb> Batcher<V> {
    pub(crate) fn new(spec: CallSpec) -> Self {
        Self {
            spec: Arc::new(spec),
            task: Mutex::new(None),
            room: Arc::new(Semaphore::new(BACKLOG_BYTES as usize)),
            verb: PhantomData,
        }
    }

    /// Sends one item in a call with other waiting items, and returns the result of this item.
    pub(crate) async fn submit(&self, item: Item) -> Result<V::Output, Error> {
        self.pending(item).await?.get().await
    }

    /// Sends one item, as [`submit`](Self::submit) does. If the partition refuses the map, the
    /// caller gets the item back and can send it to another partition.
    pub(crate) async fn submit_routed(&self, item: Item) -> Answered<V::Output> {
        match self.pending(item).await {
            Ok(answer) => answer.answered().await,
            Err(error) => Answered::Result(Err(error)),
        }
    }

    async fn pending(&self, item: Item) -> Result<Answer<V::Output>, Error> {
        let _room = self.room(share(item.size())).await?;
        let (sender, answer) = Answer::channel();
        self.send(Arrival::One(Pending {
            item,
            since: Instant::now(),
            answer: sender,
            _room,
        }));
        Ok(answer)
    }

    /// Queues the items of one caller as soon as there is room. They go in one call.
    pub(crate) async fn enqueue(&self, group: Group<V::Output>) {
        let shares = group.items.iter().map(|(item, _)| share(item.size())).sum();
        let mut room = match self.room(shares).await {
            Ok(room) => room,
            Err(error) => return group.fail(&error),
        };
        let since = Instant::now();
        let pending = group.items.into_iter().filter_map(|(item, answer)| {
            // The shares of all items add up to the permit, so every split succeeds.
            let _room = room.split(share(item.size()) as usize)?;
            Some(Pending {
                item,
                since,
                answer,
                _room,
            })
        });
        self.send(Arrival::Many(pending.collect()));
    }

    /// Waits for room in the backlog. The wait has no time limit: it ends when earlier calls end,
    /// and those have time limits. A limit here would fail callers only because many wait.
    async fn room(&self, bytes: u32) -> Result<OwnedSemaphorePermit, Error> {
        // The semaphore is never closed.
        Arc::clone(&self.room)
            .acquire_many_owned(bytes)
            .await
            .map_err(|_| gone(Applied::No))
    }

    fn send(&self, mut arrival: Arrival<V::Output>) {
        let count = arrival.items().len();
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        // The gathering task ends with the runtime that it was started on. Then this loop starts
        // another one.
        for _ in 0..2 {
            let GatherTask {
                sender, waiting, ..
            } = match &mut *task {
                Some(open) if !self.has_ended(open) => open,
                closed => closed.insert(self.open()),
            };
            let before = waiting.count.fetch_add(count, Ordering::AcqRel);
            match sender.send(arrival) {
                Ok(()) => {
                    if before < V::ENOUGH && before + count >= V::ENOUGH {
                        waiting.enough.notify_one();
                    }
                    return;
                }
                Err(mpsc::error::SendError(back)) => arrival = back,
            }
        }
        drop(task);
        arrival.fail(&gone(Applied::No));
    }

    fn open(&self) -> GatherTask<V::Output> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let waiting = Arc::<WaitingItems>::default();
        let spec = Arc::clone(&self.spec);
        let supervisor = self.spec.supervisor.as_ref();
        let gathering = Box::pin(gather::run::<V>(spec, receiver, Arc::clone(&waiting)));
        match supervisor {
            Some(supervisor) => supervisor.spawn(gathering),
            None => drop(tokio::spawn(
                gathering as Pin<Box<dyn Future<Output = ()> + Send>>,
            )),
        }
        GatherTask {
            sender,
            waiting,
            on_own_runtime: supervisor.is_some_and(|supervisor| !supervisor.has_ended()),
        }
    }

    /// Whether the gathering task has ended, or is about to end with the runtime of its supervisor.
    fn has_ended(&self, task: &GatherTask<V::Output>) -> bool {
        let supervisor = self.spec.supervisor.as_ref();
        task.sender.is_closed()
            || task.on_own_runtime && supervisor.is_some_and(|supervisor| supervisor.has_ended())
    }
}

/// How many bytes an item of this size counts in the backlog.
fn share(bytes: usize) -> u32 {
    u32::try_from(bytes)
        .unwrap_or(u32::MAX)
        .clamp(MIN_ITEM_BYTES, BACKLOG_BYTES)
}
