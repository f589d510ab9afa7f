//! One batch that was sent: its tries, the repetition of items that are safe to repeat, and the
//! result of each item.

use std::sync::Arc;
use std::time::Instant;

use crate::batch::by_claim::ByClaim;
use crate::batch::call::CallSpec;
use crate::batch::first_try::{FirstTry, ask_time};
use crate::batch::item::{Answered, Item, Pending};
use crate::batch::replied::Replied;
use crate::batch::verb::{BatchVerb, Prefix, Tries, Verdict};
use crate::error::{Applied, Error, ErrorKind};
use crate::server::durable::Waited;
use crate::server::patience::PATIENCE;
use crate::server::patience::{Patience, Repeat};
use crate::server::rounds::Turn;
use crate::telemetry::metrics::Counter;

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
        self.distribute(results, shortfall.as_deref());
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
                ask_time(&self.spec, &lane).await?;
                let since_us = lane.clock().earliest_us(self.began).unwrap_or_default();
                let prefix = format!("{word} since={}", since_us / 1_000);
                Ok(Some(prefix.trim_start().to_owned()))
            }
            (Prefix::Attempt, _) => {
                if self.first_try.is_none() {
                    self.first_try = Some(FirstTry::begin(&self.spec).await?);
                }
                let first = self.first_try.as_ref();
                Ok(first.map(|first| first.argument.clone()))
            }
        }
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

    /// Gives each caller its result. Items that must be sent again stay in the batch.
    fn distribute(&mut self, results: Results<V::Output>, shortfall: Option<&str>) {
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
                // The first try may have been applied. Only the partition that the message leaves
                // would recognise its repetition.
                Replied::Moving if self.repeated => {
                    let error = on_its_way(V::VERB.name()).of_repeated();
                    self.answer(pending, Err(error), None);
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

/// The error of a call whose first reply was lost, and whose message leaves the partition now.
fn on_its_way(call: &str) -> Error {
    let message = format!(
        "the reply to a {call} was lost, and now its message is on its way to another partition"
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
