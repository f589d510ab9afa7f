//! One batch that was sent: its tries, the repetition of items that are safe to repeat, and the
//! result of each item.

use std::sync::Arc;
use std::time::Instant;

use uuid::Uuid;

use crate::batch::by_claim::ByClaim;
use crate::batch::call::CallSpec;
use crate::batch::item::{Answered, Item, Pending};
use crate::batch::replied::Replied;
use crate::batch::verb::{BatchVerb, Prefix, Tries, Verdict};
use crate::error::{Applied, Error, ErrorKind};
use crate::model::message::compact;
use crate::server::durable::Waited;
use crate::server::lane::Lane;
use crate::server::patience::{PATIENCE, RESPONSE_LIMIT};
use crate::server::patience::{Patience, Repeat};
use crate::server::rounds::Turn;
use crate::telemetry::metrics::Counter;

/// The first try of a call, for calls whose repetitions the server recognises.
struct FirstTry {
    /// The argument `<until> <nonce>` of the script. All tries of the call have the same one.
    argument: String,
    /// The latest time at which the first try may have begun, in Unix microseconds of the server.
    latest_start_us: i64,
}

/// The replies of a call, in the order of the batch.
type Results<T> = Vec<Replied<T>>;

/// The items of a call that have no result yet.
pub(crate) struct InFlightBatch<V: BatchVerb> {
    spec: Arc<CallSpec>,
    batch: Vec<Pending<V::Output>>,
    patience: Patience,
    /// When the first try began.
    began: Instant,
    first_try: Option<FirstTry>,
    /// Whether a try before the current one may have been applied.
    repeated: bool,
}

impl<V: BatchVerb> InFlightBatch<V> {
    pub(crate) fn new(spec: Arc<CallSpec>, batch: Vec<Pending<V::Output>>) -> Self {
        // The time limit counts from the arrival of the newest item, not from when earlier calls
        // failed. So every item gets at least one try.
        let newest = batch.iter().map(|pending| pending.since).max();
        let patience = Patience::since(newest.unwrap_or_else(Instant::now));
        if batch
            .iter()
            .any(|pending| pending.item.repeat == Repeat::Unsafe)
        {
            spec.lane.distrust_idle();
        }
        Self {
            spec,
            batch,
            patience,
            began: Instant::now(),
            first_try: None,
            repeated: false,
        }
    }

    /// Sends until every item has a result. `turn` is the turn of the first try in a round.
    pub(crate) async fn finish(mut self, turn: Option<Turn>) {
        self.send().await;
        drop(turn);
        while !self.batch.is_empty() {
            self.patience.pause().await;
            self.send().await;
        }
    }

    /// Sends the items that have no result. Items that must be sent again stay in the batch.
    async fn send(&mut self) {
        let prefix = match self.prefix().await {
            Ok(prefix) => prefix,
            Err(error) if self.patience.allows(&error, Repeat::Harmless) => return,
            Err(error) => return self.fail(&error),
        };
        match self.call(prefix.as_deref()).await {
            Ok((results, waited)) => self.replied(results, waited),
            Err(error) => self.not_replied(&error),
        }
    }

    /// Handles a reply of the script. The wait for replicas or disks after the script may still
    /// have failed.
    fn replied(&mut self, mut results: Results<V::Output>, waited: Waited) {
        let mut again = Vec::new();
        let shortfall = match waited {
            Waited::Confirmed => None,
            Waited::Short(shortfall) => Some(shortfall),
            Waited::Failed(error) => {
                again = self.take_unconfirmed(&mut results, &error);
                Some(format!("the wait for replicas or disks failed: {error}"))
            }
        };
        // The next try repeats this call, so none of its items may count as new.
        self.repeated |= !again.is_empty();
        let moving = self.distribute(results, shortfall.as_deref());
        if !moving.is_empty() {
            again.extend(self.wait_for_moving(moving));
        }
        if !again.is_empty() {
            self.batch.extend(again);
            return;
        }
        // At their first try the server refused these items as too late, or took them for a
        // repetition of an older call. The estimate of the server's clock was wrong, and this reply
        // has corrected it.
        self.first_try = None;
        let error = too_late::<V>();
        if !self.batch.is_empty() && !self.patience.allows(&error, Repeat::Harmless) {
            self.fail(&error);
        }
    }

    /// Returns the items whose message is on its way, to be sent again; none after 10 s.
    fn wait_for_moving(&mut self, moving: Vec<Pending<V::Output>>) -> Vec<Pending<V::Output>> {
        let error = on_its_way::<V>();
        if self.patience.allows(&error, Repeat::Harmless) {
            return moving;
        }
        let error = self.of_all_tries(&error);
        for pending in moving {
            self.answer(pending, Err(error.clone()), None);
        }
        Vec::new()
    }

    /// Handles a call that ended with an error: keeps the items that may be sent again, and fails
    /// the others.
    fn not_replied(&mut self, error: &Error) {
        if error.is_remapped() {
            return self.hand_back(error);
        }
        self.spec.meters.call_failed(error);
        let if_harmless = self.patience.allows(error, Repeat::Harmless);
        let if_unsafe = self.patience.allows(error, Repeat::Unsafe);
        let (again, failed) = std::mem::take(&mut self.batch)
            .into_iter()
            .partition(|pending| {
                if_unsafe || if_harmless && pending.item.repeat == Repeat::Harmless
            });
        self.batch = failed;
        self.fail(error);
        self.repeated |= error.was_applied() != Applied::No;
        self.batch = again;
    }

    /// Gives all items back to their callers, which route them by the newer map. The error of each
    /// says whether an earlier try may have been applied.
    fn hand_back(&mut self, error: &Error) {
        let error = self.of_all_tries(error);
        for pending in std::mem::take(&mut self.batch) {
            let answered = Answered::Remapped(pending.item, error.clone());
            pending.answer.answer(answered);
        }
    }

    async fn prefix(&mut self) -> Result<Option<String>, Error> {
        match (V::PREFIX, self.repeated) {
            (Prefix::Nothing, _) => Ok(None),
            (Prefix::Word(word), _) | (Prefix::Since(word), false) => Ok(Some(word.to_owned())),
            (Prefix::Since(word), true) => {
                // The estimate of the server's clock may be old.
                let lane = self.spec.lane.lane().await?;
                self.ask_time(&lane).await?;
                let since_us = lane.clock().earliest_us(self.began).unwrap_or_default();
                let prefix = format!("{word} since={}", since_us / 1_000);
                Ok(Some(prefix.trim_start().to_owned()))
            }
            (Prefix::Attempt, _) => {
                if self.first_try.is_none() {
                    self.first_try = Some(self.first_try().await?);
                }
                let first = self.first_try.as_ref();
                Ok(first.map(|first| first.argument.clone()))
            }
        }
    }

    /// Makes the argument that identifies the tries of this call. `until` counts from the earliest
    /// time at which the first try may begin. So a message that ended before this call is never
    /// taken for one of this call's, if this client has seen a later reply.
    async fn first_try(&self) -> Result<FirstTry, Error> {
        let lane = self.spec.lane.lane().await?;
        let clock = lane.clock();
        if clock.server_us(Instant::now()).is_none() {
            self.ask_time(&lane).await?;
        }
        let now = Instant::now();
        let patience_us = i64::try_from(PATIENCE.as_micros()).unwrap_or(i64::MAX);
        let until_us = clock
            .earliest_us(now)
            .unwrap_or_default()
            .saturating_add(patience_us);
        let nonce = compact(Uuid::new_v4());
        Ok(FirstTry {
            argument: format!("{}.{:03} {nonce}", until_us / 1_000, until_us % 1_000),
            latest_start_us: clock.latest_us(now).unwrap_or(i64::MAX),
        })
    }

    /// Asks the server for its time, but not on a connection that waits for replicas. A dedicated
    /// connection has no time limit of its own, so this call sets one.
    async fn ask_time(&self, lane: &Lane) -> Result<(), Error> {
        let _guard = lane.wait_lock.lock().await;
        // Boxed: keeps the futures of callers shallow, as rustc limits their depth.
        let answer = tokio::time::timeout(RESPONSE_LIMIT, Box::pin(lane.time()))
            .await
            .unwrap_or_else(|_| {
                let message =
                    format!("the server did not reply with its time within {RESPONSE_LIMIT:?}");
                Err(Error::new(ErrorKind::Timeout, Applied::No, message))
            });
        answer
            .map(drop)
            .inspect_err(|error| self.spec.meters.call_failed(error))
    }

    /// Removes and returns the items whose change is unconfirmed and that may be sent again: a new
    /// master may lack the change. The other items keep their results.
    fn take_unconfirmed(
        &mut self,
        results: &mut Results<V::Output>,
        error: &Error,
    ) -> Vec<Pending<V::Output>> {
        self.spec.meters.call_failed(error);
        if !self.patience.allows(error, Repeat::Harmless) {
            return Vec::new();
        }
        let mut again = Vec::new();
        let decided = std::mem::take(results);
        for (pending, result) in std::mem::take(&mut self.batch).into_iter().zip(decided) {
            if pending.item.repeat == Repeat::Harmless && result.is_change::<V>() {
                again.push(pending);
            } else {
                self.batch.push(pending);
                results.push(result);
            }
        }
        again
    }

    /// Sends one call. Returns the result of each item, and whether replicas or disks confirmed the
    /// change.
    async fn call(&self, prefix: Option<&str>) -> Result<(Results<V::Output>, Waited), Error> {
        let CallSpec {
            fence,
            keys,
            lane,
            durability,
            ..
        } = &*self.spec;
        let batch = &self.batch;
        let mut args: Vec<&[u8]> = vec![fence.as_bytes()];
        args.extend(prefix.map(str::as_bytes));
        let by_claim = V::GROUPED_BY_CLAIM.then(|| ByClaim::of(batch));
        match &by_claim {
            Some(by_claim) => args.extend(by_claim.args(batch)),
            None => args.extend(batch.iter().flat_map(|pending| pending.item.args())),
        }
        let (mut reply, waited) = lane.call_durably(V::VERB, keys, &args, *durability).await?;
        let now_us = reply.header.now_us;
        if V::ALONE {
            let only = Ok(V::decode_only(&mut reply.body, now_us)?);
            return Ok((vec![Replied::Result(only)], waited));
        }
        let mut items = reply.body.parts()?;
        if V::SHARES_RESULT && items.len() == 1 {
            let shared = Replied::decode::<V>(&items.text()?, now_us);
            return Ok((vec![shared; batch.len()], waited));
        }
        if items.len() != batch.len() {
            let (verb, found, sent) = (V::VERB.name(), items.len(), batch.len());
            let message = format!("{verb} replied with {found} results for {sent} items");
            return Err(Error::new(ErrorKind::Server, Applied::Unknown, message));
        }
        let results = batch
            .iter()
            .map(|_| Ok(Replied::decode::<V>(&items.text()?, now_us)))
            .collect::<Result<Vec<_>, Error>>()?;
        Ok(match by_claim {
            Some(by_claim) => (by_claim.in_batch_order(results), waited),
            None => (results, waited),
        })
    }

    /// Gives each caller its result. Items that must be sent as a new call stay in the batch. Returns
    /// those whose message is on its way to another partition, and which an earlier try may have
    /// changed: only this partition recognises their repetition.
    fn distribute(
        &mut self,
        results: Results<V::Output>,
        shortfall: Option<&str>,
    ) -> Vec<Pending<V::Output>> {
        let mut moving = Vec::new();
        let first = self.first_try.as_ref();
        let tries = Tries {
            repeated: self.repeated,
            latest_start_us: first.map_or(i64::MAX, |first| first.latest_start_us),
        };
        for (pending, replied) in std::mem::take(&mut self.batch).into_iter().zip(results) {
            let (result, is_away) = match replied {
                Replied::Result(result) => (result, false),
                Replied::Away(Some(result)) => (result, true),
                Replied::Away(None) => {
                    pending.answer.answer(Answered::Away(pending.item, None));
                    continue;
                }
                Replied::Moving if self.repeated => {
                    moving.push(pending);
                    continue;
                }
                Replied::Moving => {
                    pending.answer.answer(Answered::Moving(pending.item));
                    continue;
                }
            };
            let result = match result {
                Ok(output) => match V::verdict(&output, &tries) {
                    Verdict::Final => Ok(output),
                    Verdict::Fail(error) => Err(error),
                    Verdict::SendAgain => {
                        self.batch.push(pending);
                        continue;
                    }
                },
                // The queue's limits may have changed since an earlier try was judged, so that
                // try may have been applied.
                Err(refusal)
                    if self.repeated
                        && matches!(refusal.kind(), ErrorKind::InvalidInput | ErrorKind::Full) =>
                {
                    Err(refusal.of_repeated())
                }
                Err(refusal) => Err(refusal),
            };
            // An earlier try of this call made the change that the partition remembers.
            let is_own = self.repeated && result.as_ref().is_ok_and(V::is_change);
            if is_away && !is_own {
                let result = Self::confirmed(&pending.item, result, shortfall);
                let answered = Answered::Away(pending.item, Some(result));
                pending.answer.answer(answered);
            } else {
                self.answer(pending, result, shortfall);
            }
        }
        moving
    }

    /// The error of the last try, for the caller of an item. It says so if an earlier try may have
    /// been applied.
    fn of_all_tries(&self, error: &Error) -> Error {
        if self.repeated {
            error.clone().of_repeated()
        } else {
            error.clone()
        }
    }

    /// Fails all items with this error.
    fn fail(&mut self, error: &Error) {
        let error = self.of_all_tries(error);
        for pending in std::mem::take(&mut self.batch) {
            self.answer(pending, Err(error.clone()), None);
        }
    }

    fn answer(
        &self,
        pending: Pending<V::Output>,
        result: Result<V::Output, Error>,
        shortfall: Option<&str>,
    ) {
        if let Some(count) = V::count(&result) {
            self.spec.meters.add(count);
        }
        let was_ok = result.is_ok();
        let result = Self::confirmed(&pending.item, result, shortfall);
        if was_ok && result.is_err() {
            self.spec.meters.add(Counter::Unconfirmed);
        }
        pending.answer.send(result);
    }

    /// The result for the caller of an item: an error if replicas or disks did not confirm a change.
    fn confirmed(
        item: &Item,
        result: Result<V::Output, Error>,
        shortfall: Option<&str>,
    ) -> Result<V::Output, Error> {
        match shortfall {
            Some(shortfall) if result.as_ref().is_ok_and(V::is_change) => {
                Err(Error::unconfirmed(V::VERB.name(), item.id(), shortfall))
            }
            _ => result,
        }
    }
}

/// The error of a message that is on its way to another partition all the time.
fn on_its_way<V: BatchVerb>() -> Error {
    let message = format!(
        "the message of a {} is on its way to another partition for {PATIENCE:?}: does a process still change \
         the partitions?",
        V::VERB.name()
    );
    Error::new(ErrorKind::Unavailable, Applied::No, message)
}

/// The error after several refusals as too late: the server's clock was set again and again, faster
/// than replies correct the estimate of it.
fn too_late<V: BatchVerb>() -> Error {
    let message = format!(
        "{} was refused as too late for {PATIENCE:?}: is the clock of the server steady?",
        V::VERB.name()
    );
    Error::new(ErrorKind::Timeout, Applied::No, message)
}
