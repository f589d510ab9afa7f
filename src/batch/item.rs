//! Items: what one caller wants done to one message, and where its result goes.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::batch::call::fits;
use crate::error::{Applied, Error, ErrorKind};
use crate::server::patience::Repeat;

/// What one caller wants done to one message.
pub(crate) struct Item {
    /// The claim of a settlement or an extension: its id and token precede `args` in ARGV. The item
    /// keeps the delivery and its payload alive. That payload does not count in the backlog,
    /// because the handler's task usually holds it as well.
    pub(crate) granted: Option<Arc<dyn OfClaim>>,
    /// The arguments of this item in the script's ARGV; after those of `granted` if that is set.
    pub(crate) args: Vec<Vec<u8>>,
    /// Whether the item may be sent again if the reply is lost.
    pub(crate) repeat: Repeat,
}

impl Item {
    pub(crate) fn args(&self) -> impl Iterator<Item = &[u8]> {
        let granted = self
            .granted
            .iter()
            .flat_map(|granted| [granted.id(), granted.token()]);
        granted.chain(self.args.iter().map(Vec::as_slice))
    }

    /// The id of the message, which is the item's first argument.
    pub(crate) fn id(&self) -> &[u8] {
        self.args().next().unwrap_or_default()
    }

    pub(crate) fn size(&self) -> usize {
        self.args().map(<[u8]>::len).sum()
    }
}

/// The claim that granted a message: what a settlement of it needs.
pub(crate) trait OfClaim: Send + Sync {
    fn id(&self) -> &[u8];
    fn token(&self) -> &[u8];
}

/// What an item's caller gets.
pub(crate) enum Answered<T> {
    Result(Result<T, Error>),
    /// The partition has another map than the one that routed the item here. Nothing was applied;
    /// the caller routes the item by the newer map.
    Remapped(Item, Error),
    /// The message is on its way to another partition, and nothing was applied.
    Moving(Item),
    /// The partition does not have the message, which belongs to another partition. Nothing was
    /// applied. If the partition remembers the id, that is the result unless the other partition
    /// has the message.
    Away(Item, Option<Result<T, Error>>),
}

/// Whether an item that was refused because of the map may be sent as a new one: no earlier try of it
/// was applied. If the partition's map is older than that of the call, a failover has undone what
/// the partition did since.
pub(crate) fn allows_new_try(refusal: &Error) -> bool {
    refusal.was_applied() == Applied::No || refusal.is_behind()
}

impl<T> Answered<T> {
    /// The result of the item, for a caller that cannot send the item to another partition.
    pub(crate) fn result(self) -> Result<T, Error> {
        match self {
            Self::Result(result) => result,
            Self::Remapped(_, error) => Err(error),
            Self::Moving(_) | Self::Away(..) => {
                let message = "the message is at another partition of the queue: repeat the call";
                Err(Error::new(ErrorKind::Unavailable, Applied::No, message))
            }
        }
    }
}

/// Sends the result of one item to its caller. If a panic drops the sender, the result is an error
/// that says so.
pub(crate) struct Sender<T>(Option<oneshot::Sender<Answered<T>>>);

impl<T> Sender<T> {
    pub(crate) fn send(self, result: Result<T, Error>) {
        self.answer(Answered::Result(result));
    }

    pub(crate) fn answer(mut self, answered: Answered<T>) {
        if let Some(sender) = self.0.take() {
            // A caller that dropped its future needs no result.
            let _ = sender.send(answered);
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(sender) = self.0.take()
        {
            let _ = sender.send(Answered::Result(Err(panicked())));
        }
    }
}

/// The future result of one item.
pub(crate) struct Answer<T>(oneshot::Receiver<Answered<T>>);

impl<T> Answer<T> {
    pub(crate) fn channel() -> (Sender<T>, Self) {
        let (sender, receiver) = oneshot::channel();
        (Sender(Some(sender)), Self(receiver))
    }

    /// Waits for the result. The item is sent even if this future is dropped.
    pub(crate) async fn get(self) -> Result<T, Error> {
        self.answered().await.result()
    }

    /// Waits for the result. If the partition refused the map, returns the item instead, and the
    /// caller can send it to another partition.
    pub(crate) async fn answered(self) -> Answered<T> {
        let gone = |_| Answered::Result(Err(gone(Applied::Unknown)));
        self.0.await.unwrap_or_else(gone)
    }
}

/// An item that has no result yet.
pub(crate) struct Pending<T> {
    pub(crate) item: Item,
    /// When the batcher received the item.
    pub(crate) since: Instant,
    pub(crate) answer: Sender<T>,
    /// The item's room in the backlog, which is free again when the item has its result.
    pub(crate) _room: OwnedSemaphorePermit,
}

/// The items of one caller that go in one call: never more than one call takes.
pub(crate) struct Group<T> {
    pub(crate) items: Vec<(Item, Sender<T>)>,
    bytes: usize,
}

impl<T> Default for Group<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            bytes: 0,
        }
    }
}

impl<T> Group<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn has_room_for(&self, item: &Item, most: usize) -> bool {
        fits(self.items.len() + 1, self.bytes + item.size(), most)
    }

    pub(crate) fn add(&mut self, item: Item) -> Answer<T> {
        let (sender, answer) = Answer::channel();
        self.bytes += item.size();
        self.items.push((item, sender));
        answer
    }

    /// Fails all items of the group before any was sent.
    pub(crate) fn fail(self, error: &Error) {
        for (_, sender) in self.items {
            sender.send(Err(error.clone()));
        }
    }
}

/// Items that arrived together and are sent in one call.
pub(crate) enum Arrival<T> {
    One(Pending<T>),
    Many(Vec<Pending<T>>),
}

impl<T> Arrival<T> {
    pub(crate) fn items(&self) -> &[Pending<T>] {
        match self {
            Self::One(pending) => std::slice::from_ref(pending),
            Self::Many(group) => group,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.items().iter().map(|pending| pending.item.size()).sum()
    }

    pub(crate) fn fail(self, error: &Error) {
        let fail = |pending: Pending<T>| pending.answer.send(Err(error.clone()));
        match self {
            Self::One(pending) => fail(pending),
            Self::Many(group) => group.into_iter().for_each(fail),
        }
    }
}

fn panicked() -> Error {
    Error::new(
        ErrorKind::Internal,
        Applied::Unknown,
        "a task of the library panicked before it had a result",
    )
}

pub(crate) fn gone(applied: Applied) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        applied,
        "the runtime that the queue was used on has shut down",
    )
}
