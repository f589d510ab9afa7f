//! The task behind a batcher: it gathers, sends, repeats, and answers everybody.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::batch::claims::ByClaim;
use crate::batch::{Arrival, BATCH_ITEMS, Gauge, Pending, Prefix, enough, fits, is_settle, size, tally};
use crate::durability::Durability;
use crate::error::{Applied, Error, ErrorKind};
use crate::metrics::Meters;
use crate::protocol::connect::RESPONSE_LIMIT;
use crate::protocol::keys::Keys;
use crate::protocol::lane::{Lane, PATIENCE, Patience, Repeat};
use crate::protocol::replies::ItemReply;
use crate::protocol::scripts::Verb;

/// The items of one script call.
struct Batch {
    items: Vec<Pending>,
    bytes: usize,
    /// Whether some of them must not be repeated.
    ordered: bool,
}

impl Batch {
    fn of(arrival: Arrival) -> Self {
        let mut batch = Self { items: Vec::new(), bytes: 0, ordered: false };
        batch.take(arrival);
        batch
    }

    fn has_room(&self) -> bool {
        self.items.len() < BATCH_ITEMS
    }

    /// Takes a caller's items in; gives them back if they would be too much. They are not parted: who pushes a hundred would
    /// else wait for two calls.
    fn add(&mut self, arrival: Arrival) -> Option<Arrival> {
        let items = arrival.items();
        if !fits(self.items.len() + items.len(), self.bytes + bytes(items)) {
            return Some(arrival);
        }
        self.take(arrival);
        None
    }

    fn take(&mut self, arrival: Arrival) {
        self.bytes += bytes(arrival.items());
        self.ordered |= arrival.items().iter().any(|pending| pending.item.repeat == Repeat::Unsafe);
        match arrival {
            Arrival::One(pending) => self.items.push(pending),
            Arrival::Many(group) if self.items.is_empty() => self.items = group,
            Arrival::Many(group) => self.items.extend(group),
        }
    }
}

fn bytes(group: &[Pending]) -> usize {
    group.iter().map(|pending| size(&pending.item)).sum()
}

/// It ends when the batcher is dropped.
pub(super) struct Work {
    pub(super) verb: Verb,
    pub(super) prefix: Prefix,
    /// How long after a call the next one goes, unless enough has gathered.
    pub(super) pace: Duration,
    pub(super) keys: Arc<Keys>,
    pub(super) lane: Arc<Lane>,
    pub(super) meters: Arc<Meters>,
    pub(super) durability: Durability,
}

impl Work {
    pub(super) async fn run(self: Arc<Self>, mut receiver: mpsc::UnboundedReceiver<Arrival>, gauge: Arc<Gauge>) {
        let (mut next, mut flying, mut ordered) = (None, JoinSet::new(), false);
        let mut free_at = Instant::now();
        loop {
            let first = match next.take() {
                Some(group) => group,
                None => match receiver.recv().await {
                    Some(group) => group,
                    None => break,
                },
            };
            if free_at > Instant::now() {
                tokio::select! {
                    () = tokio::time::sleep_until(free_at.into()) => {}
                    () = gauge.enough.notified() => {}
                }
            }
            if is_settle(self.verb) {
                // Handlers end together, often: those that are about to come along.
                tokio::task::yield_now().await;
            }
            let mut batch = Batch::of(first);
            loop {
                while next.is_none()
                    && batch.has_room()
                    && let Ok(group) = receiver.try_recv()
                {
                    next = batch.add(group);
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
            free_at = Instant::now() + self.pace;
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
        let (first, mut until, mut repeated) = (Instant::now(), None, false);
        while !batch.is_empty() {
            let prefix = match self.prefix(&mut until, Some(first).filter(|_| repeated)).await {
                Ok(prefix) => prefix,
                Err(error) if patience.allows(&error, Repeat::Harmless) => {
                    patience.pause().await;
                    continue;
                }
                Err(error) => return self.fail(batch, &of(error, repeated)),
            };
            match self.call(prefix.as_deref(), &batch).await {
                Ok(replies) => {
                    batch = self.distribute(batch, replies, repeated);
                    // What is left was refused as too late at its first attempt: our idea of the server's time was wrong,
                    // and the reply has put it right.
                    until = None;
                    let error = unsteady(self.verb);
                    if !batch.is_empty() && !patience.allows(&error, Repeat::Harmless) {
                        return self.fail(batch, &error);
                    }
                    if !batch.is_empty() {
                        patience.pause().await;
                    }
                }
                Err(error) => {
                    self.meters.call_failed(&error);
                    let (again, lost): (Vec<_>, Vec<_>) =
                        batch.into_iter().partition(|pending| patience.allows(&error, pending.item.repeat));
                    let unknown = error.was_applied() != Applied::No;
                    self.fail(lost, &of(error, repeated));
                    repeated |= unknown;
                    batch = again;
                    if !batch.is_empty() {
                        patience.pause().await;
                    }
                }
            }
        }
    }

    /// `first` is when a call that is repeated was first made.
    async fn prefix(&self, until: &mut Option<String>, first: Option<Instant>) -> Result<Option<String>, Error> {
        match (self.prefix, first) {
            (Prefix::Nothing, _) => Ok(None),
            (Prefix::Word(word), _) | (Prefix::Since(word), None) => Ok(Some(word.to_owned())),
            (Prefix::Since(word), Some(first)) => {
                // What is known of the server's clock may be old.
                self.ask(self.lane.time()).await?;
                let since_us = self.lane.clock().earliest_us(first).unwrap_or_default();
                Ok(Some(format!("{word} since={}", since_us / 1_000).trim_start().to_owned()))
            }
            (Prefix::Until, _) => {
                if until.is_none() {
                    *until = Some(self.until_ms().await?.to_string());
                }
                Ok(until.clone())
            }
        }
    }

    async fn until_ms(&self) -> Result<i64, Error> {
        if self.lane.clock().server_us(Instant::now()).is_none() {
            self.ask(self.lane.call(Verb::Stats, &self.keys, &[b""])).await?;
        }
        let now_us = self.lane.clock().server_us(Instant::now()).unwrap_or_default();
        Ok(now_us / 1_000 + i64::try_from(PATIENCE.as_millis()).unwrap_or(i64::MAX))
    }

    /// What `question` comes to, asked behind nobody's wait for replicas: a lane apart has no time limit of its own.
    async fn ask<T>(&self, question: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let _turn = self.lane.turn.lock().await;
        let answer = tokio::time::timeout(RESPONSE_LIMIT, question).await.unwrap_or_else(|_| {
            let message = format!("the server did not tell its time within {RESPONSE_LIMIT:?}");
            Err(Error::new(ErrorKind::Timeout, Applied::No, message))
        });
        answer.inspect_err(|error| self.meters.call_failed(error))
    }

    async fn call(&self, prefix: Option<&str>, batch: &[Pending]) -> Result<Vec<ItemReply>, Error> {
        let mut args: Vec<&[u8]> = vec![b""];
        args.extend(prefix.map(str::as_bytes));
        let by_claim = (self.verb == Verb::Ack).then(|| ByClaim::of(batch));
        match &by_claim {
            Some(by_claim) => args.extend(by_claim.args(batch)),
            None => args.extend(batch.iter().flat_map(|pending| pending.item.args())),
        }
        let (mut reply, shortfall) = self.lane.call_durably(self.verb, &self.keys, &args, self.durability).await?;
        let mut items = reply.body.parts()?;
        // One result may stand for all.
        let same = items.len() == 1 && matches!(self.verb, Verb::Push | Verb::Ack);
        if items.len() != batch.len() && !same {
            return Err(Error::new(
                ErrorKind::Server,
                Applied::Unknown,
                format!("{} answered {} items of {}", self.verb.name(), items.len(), batch.len()),
            ));
        }
        let item = |text: &str| ItemReply { shortfall: shortfall.clone(), ..ItemReply::parse(self.verb, text) };
        if same {
            return Ok(vec![item(&items.text()?); batch.len()]);
        }
        let told = batch.iter().map(|_| Ok(item(&items.text()?))).collect::<Result<_, Error>>()?;
        Ok(match by_claim {
            Some(by_claim) => by_claim.answers(told),
            None => told,
        })
    }

    /// Hands out the answers; gives back what was refused as too late although it was sent for the first time.
    fn distribute(&self, batch: Vec<Pending>, replies: Vec<ItemReply>, repeated: bool) -> Vec<Pending> {
        let mut early = Vec::new();
        for (pending, reply) in batch.into_iter().zip(replies) {
            let answer = match (&*reply.word, repeated) {
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
            self.answer(pending, answer);
        }
        early
    }

    fn fail(&self, batch: Vec<Pending>, error: &Error) {
        for pending in batch {
            self.answer(pending, Err(error.clone()));
        }
    }

    fn answer(&self, pending: Pending, answer: Result<ItemReply, Error>) {
        match &answer {
            Ok(reply) => tally::answered(&self.meters, reply),
            Err(error) => tally::failed(&self.meters, self.verb, error),
        }
        // The caller may have gone away; its item was sent all the same.
        let _ = pending.answer.send(answer);
    }
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

#[cfg(test)]
mod tests {
    use tokio::sync::{Semaphore, oneshot};

    use super::*;
    use crate::batch::{BATCH_BYTES, Item};

    fn group(items: usize, bytes: usize) -> Arrival {
        let room = Arc::new(Semaphore::new(items));
        let pending = |_| Pending {
            item: Item { granted: None, args: vec![vec![b'x'; bytes]], repeat: Repeat::Harmless },
            since: Instant::now(),
            answer: oneshot::channel().0,
            _room: Arc::clone(&room).try_acquire_owned().expect("room"),
        };
        Arrival::Many((0..items).map(pending).collect())
    }

    #[test]
    fn what_one_caller_brings_is_not_parted() {
        let mut batch = Batch::of(group(100, 10));
        assert!(batch.add(group(100, 10)).is_none());
        assert_eq!(batch.add(group(100, 10)).map(|back| back.items().len()), Some(100));
        assert!(batch.add(group(56, 10)).is_none());
        assert!(!batch.has_room());
        assert_eq!((batch.items.len(), batch.bytes), (BATCH_ITEMS, 10 * BATCH_ITEMS));
    }

    #[test]
    fn a_call_takes_so_many_bytes_and_one_item_whatever_its_size() {
        let mut batch = Batch::of(group(1, 2 * BATCH_BYTES));
        assert!(batch.add(group(1, 1)).is_some());
        batch = Batch::of(group(2, BATCH_BYTES / 4));
        assert!(batch.add(group(3, BATCH_BYTES / 4)).is_some());
        assert!(batch.add(group(2, BATCH_BYTES / 4)).is_none());
    }
}
