//! Pages of messages. The messages of several partitions are merged by their times.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::Error;
use crate::model::outcomes::MessageState;
use crate::model::stored::{MessageCursor, MessageEntry, MessagePage};
use crate::partition::Partition;
use crate::protocol::results::inspect;
use crate::protocol::verbs::Verb;
use crate::router::{Partitions, Router};
use crate::server::patience::Repeat;

/// The least number of messages that is read from a partition, so that few calls fill a page.
const MIN_READ: usize = 16;

/// The state, order and size of a page.
#[derive(Clone, Copy)]
pub(super) struct Listing {
    pub(super) state: MessageState,
    /// Whether the message with the latest time comes first.
    pub(super) newest: bool,
    pub(super) limit: usize,
}

/// Reads a page of the queue's messages in one state.
pub(super) async fn page(
    router: &Router,
    listing: Listing,
    cursor: Option<&MessageCursor>,
) -> Result<MessagePage, Error> {
    let mut partitions = Box::pin(router.learned()).await;
    loop {
        let result = merged(&partitions, listing, cursor).await;
        let epoch = match &result {
            Ok((_, epoch)) => *epoch,
            // The cursor belongs to another map, perhaps a newer one than this client knows.
            Err(_) => partitions
                .home()
                .stored_map()
                .await?
                .map
                .map(|map| map.epoch),
        };
        let newest = router.confirm(&partitions, epoch).await?;
        if Arc::ptr_eq(&newest, &partitions) {
            return result.map(|(page, _)| page);
        }
        partitions = newest;
    }
}

/// Reads and merges a page. Also returns the epoch of the home's map.
async fn merged(
    partitions: &Partitions,
    listing: Listing,
    cursor: Option<&MessageCursor>,
) -> Result<(MessagePage, Option<u64>), Error> {
    let (list, limit) = (partitions.list(), listing.limit);
    if let [only] = list {
        let cursor = cursor.map_or(&b""[..], |cursor| &cursor.0);
        let (read, epoch) = read(only, listing, cursor).await?;
        return Ok((read.page, epoch));
    }
    let mut sources = match cursor {
        Some(time) if time.is_time() => list
            .iter()
            .map(|partition| Source::from(partition, time.0.clone()))
            .collect(),
        Some(cursor) => Source::resume(partitions, cursor)?,
        None => list.iter().map(Source::new).collect(),
    };
    let reads = Listing {
        limit: MIN_READ.max(2 * limit / list.len()).min(limit),
        ..listing
    };
    let mut epoch = None;
    for source in &mut sources {
        let read = source.fill(reads).await?;
        if source.partition.index() == 0 {
            epoch = read.unwrap_or_else(|| partitions.epoch());
        }
    }
    let mut messages = Vec::with_capacity(limit);
    while messages.len() < limit {
        let left = sources.iter_mut().filter(|source| !source.read.is_empty());
        let first = match listing.newest {
            false => left.min_by(|one, other| one.first().cmp(&other.first())),
            true => left.max_by(|one, other| one.first().cmp(&other.first())),
        };
        let Some(source) = first else { break };
        messages.extend(source.take(listing));
        source.fill(reads).await?;
    }
    let ended = sources.iter().all(Source::has_ended);
    let next = (!ended).then(|| Source::cursor(partitions.epoch(), &sources));
    Ok((MessagePage { messages, next }, epoch))
}

/// Reads a page of one partition, and the epoch of the partition's map.
async fn read(
    partition: &Partition,
    listing: Listing,
    cursor: &[u8],
) -> Result<(inspect::ReadPage, Option<u64>), Error> {
    let (state, limit) = (listing.state.as_str(), listing.limit.to_string());
    let order = if listing.newest { "newest" } else { "" };
    let args = [state.as_bytes(), cursor, limit.as_bytes(), order.as_bytes()];
    let mut reply = partition.call(Verb::Peek, &args, Repeat::Harmless).await?;
    let page = inspect::page(&mut reply.body)?;
    Ok((page, reply.header.epoch))
}

/// The messages of one partition, from a cursor on.
struct Source<'a> {
    partition: &'a Arc<Partition>,
    /// The cursor after the last message taken from the partition; empty at the start.
    taken: Vec<u8>,
    /// The messages that were read but not taken yet.
    read: VecDeque<MessageEntry>,
    /// Where the next read of the partition begins; `None` at its end.
    next: Option<Vec<u8>>,
}

impl<'a> Source<'a> {
    fn new(partition: &'a Arc<Partition>) -> Self {
        Self::from(partition, Vec::new())
    }

    fn from(partition: &'a Arc<Partition>, cursor: Vec<u8>) -> Self {
        Self {
            partition,
            taken: cursor.clone(),
            read: VecDeque::new(),
            next: Some(cursor),
        }
    }

    /// Reads more messages if none is left. Returns the epoch of the partition's map, if the
    /// partition was asked.
    async fn fill(&mut self, reads: Listing) -> Result<Option<Option<u64>>, Error> {
        let Some(next) = self.next.take_if(|_| self.read.is_empty()) else {
            return Ok(None);
        };
        let (read, epoch) = read(self.partition, reads, &next).await?;
        if let Some(place) = read.place {
            self.taken = inspect::cursor_at(place);
        }
        self.read = read.page.messages.into();
        self.next = read.page.next.map(|cursor| cursor.0);
        Ok(Some(epoch))
    }

    fn first(&self) -> Option<(u64, &[u8])> {
        let first = self.read.front()?;
        Some((first.time_ms, &first.id))
    }

    fn take(&mut self, listing: Listing) -> Option<MessageEntry> {
        let message = self.read.pop_front()?;
        let (state, newest) = (listing.state, listing.newest);
        self.taken = inspect::cursor_after(state, newest, &self.taken, &message);
        Some(message)
    }

    fn has_ended(&self) -> bool {
        self.read.is_empty() && self.next.is_none()
    }

    /// The cursor of a merged page: `EPOCH`, and then for each partition `/` if it is at its end,
    /// or `LENGTH:` and the partition's own cursor.
    fn cursor(epoch: Option<u64>, sources: &[Self]) -> MessageCursor {
        let mut bytes = epoch.unwrap_or(0).to_string().into_bytes();
        for source in sources {
            bytes.push(b'/');
            if !source.has_ended() {
                bytes.extend(format!("{}:", source.taken.len()).bytes());
                bytes.extend(&source.taken);
            }
        }
        MessageCursor(bytes)
    }

    fn resume(partitions: &'a Partitions, cursor: &MessageCursor) -> Result<Vec<Self>, Error> {
        let unread = || {
            Error::invalid(format!(
                "the cursor {:?} is not of this queue, or its partitions have changed: begin without one",
                String::from_utf8_lossy(&cursor.0)
            ))
        };
        let (epoch, mut rest) = number(&cursor.0).ok_or_else(unread)?;
        if Some(epoch) != partitions.epoch() {
            return Err(unread());
        }
        let mut sources = Vec::new();
        for partition in partitions.list() {
            rest = rest.strip_prefix(b"/").ok_or_else(unread)?;
            if rest.is_empty() || rest[0] == b'/' {
                sources.push(Self {
                    next: None,
                    ..Self::new(partition)
                });
                continue;
            }
            let (length, after) = number(rest).ok_or_else(unread)?;
            let length = usize::try_from(length).map_err(|_| unread())?;
            let after = after.strip_prefix(b":").ok_or_else(unread)?;
            let (own, after) = after.split_at_checked(length).ok_or_else(unread)?;
            sources.push(Self::from(partition, own.to_vec()));
            rest = after;
        }
        if rest.is_empty() {
            Ok(sources)
        } else {
            Err(unread())
        }
    }
}

/// Splits the bytes into the number at their start and the rest.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let digits = bytes
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let (digits, rest) = bytes.split_at(digits);
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((number, rest))
}
