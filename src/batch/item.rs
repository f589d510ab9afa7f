//! Items: what one caller wants done to one message, and where its result goes.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::batch::call::fits;
use crate::error::{Applied, Error, ErrorKind};
use crate::server::patience::Repeat;

/// What one caller wants done to one message.
pub(crate) struct Item {
    /// The claim of a settlement or an extension: its id and token come before `args`. The item
    /// keeps the delivery with its payload, which does not count towards the backlog: the handler's
    /// task usually keeps it as well.
    pub(crate) granted: Option<Arc<dyn OfClaim>>,
    /// Its share of the script's ARGV, or the rest of it.
    pub(crate) args: Vec<Vec<u8>>,
    /// Whether it may be sent again if the reply is lost.
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

    /// The id of the message: the first argument.
    pub(crate) fn id(&self) -> &[u8] {
        self.args().next().unwrap_or_default()
    }

    pub(crate) fn size(&self) -> usize {
        self.args().map(<[u8]>::len).sum()
    }
}

/// A message that a claim granted.
pub(crate) trait OfClaim: Send + Sync {
    fn id(&self) -> &[u8];
    fn token(&self) -> &[u8];
}

/// What became of an item.
pub(crate) enum Answered<T> {
    Result(Result<T, Error>),
    /// The partition has another map than the one that routed the item here. Nothing was applied;
    /// the caller routes the item by the newer map.
    Remapped(Item, Error),
}

impl<T> Answered<T> {
    /// The result, for a caller that has nowhere else to send the item.
    fn result(self) -> Result<T, Error> {
        match self {
            Self::Result(result) => result,
            Self::Remapped(_, error) => Err(error),
        }
    }
}

/// Where the result of one item goes. If a panic drops it, the result is an error that says so.
pub(crate) struct Sender<T>(Option<oneshot::Sender<Answered<T>>>);

impl<T> Sender<T> {
    pub(crate) fn send(self, result: Result<T, Error>) {
        self.answer(Answered::Result(result));
    }

    /// Hands the item back, because the partition has another map.
    pub(crate) fn hand_back(self, item: Item, error: Error) {
        self.answer(Answered::Remapped(item, error));
    }

    fn answer(mut self, answered: Answered<T>) {
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

/// The result of one item, once it is there.
pub(crate) struct Answer<T>(oneshot::Receiver<Answered<T>>);

impl<T> Answer<T> {
    pub(crate) fn channel() -> (Sender<T>, Self) {
        let (sender, receiver) = oneshot::channel();
        (Sender(Some(sender)), Self(receiver))
    }

    /// Waits for the result. Dropped, the item is sent all the same.
    pub(crate) async fn get(self) -> Result<T, Error> {
        self.answered().await.result()
    }

    /// Waits for the result, or for the item if its partition refused the map: the caller can send
    /// it to another one.
    pub(crate) async fn answered(self) -> Answered<T> {
        let gone = |_| Answered::Result(Err(gone(Applied::Unknown)));
        self.0.await.unwrap_or_else(gone)
    }
}

/// An item that has no result yet.
pub(crate) struct Pending<T> {
    pub(crate) item: Item,
    /// When the batcher took it.
    pub(crate) since: Instant,
    pub(crate) answer: Sender<T>,
    /// Its share of the backlog, given back with the result.
    pub(crate) _room: OwnedSemaphorePermit,
}

/// The items of one caller that go in one call: never more than a call takes.
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

    /// Fails all items: none is sent.
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
