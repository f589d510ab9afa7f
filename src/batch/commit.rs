//! One batch on its way: sent, repeated where that does no harm, and everybody in it answered.

use std::sync::Arc;
use std::time::Instant;

use uuid::Uuid;

use crate::batch::claims::ByClaim;
use crate::batch::work::Work;
use crate::batch::{Pending, Prefix, tally};
use crate::error::{Applied, Error, ErrorKind};
use crate::model::id::compact;
use crate::protocol::replies::ItemReply;
use crate::protocol::verbs::Verb;
use crate::server::connector::RESPONSE_LIMIT;
use crate::server::durable::Waited;
use crate::server::lane::{PATIENCE, Patience, Repeat};

/// The first attempt of a call of pushes.
struct FirstPush {
    /// `<until> <nonce>` as the script takes it, the same in each attempt.
    argument: String,
    /// The latest time, by the server's clock in microseconds, at which the first attempt may have begun.
    latest_us: i64,
}

/// The items of a call that have no answer yet.
pub(crate) struct Commit {
    work: Arc<Work>,
    batch: Vec<Pending>,
    patience: Patience,
    /// When the first attempt began.
    first: Instant,
    /// What makes the attempts of this call recognisable as one, from its first attempt on.
    first_push: Option<FirstPush>,
    /// Whether an earlier attempt may have been applied.
    repeated: bool,
}

impl Commit {
    pub(crate) fn new(work: Arc<Work>, batch: Vec<Pending>) -> Self {
        // Each caller's patience begins with its own waiting, not when those before it have given up; it gets one try.
        let newest = batch.iter().map(|pending| pending.since).max();
        let patience = Patience::since(newest.unwrap_or_else(Instant::now));
        if batch
            .iter()
            .any(|pending| pending.item.repeat == Repeat::Unsafe)
        {
            work.lane.distrust_idle();
        }
        Self {
            work,
            batch,
            patience,
            first: Instant::now(),
            first_push: None,
            repeated: false,
        }
    }

    /// Attempts until everybody has an answer.
    pub(crate) async fn finish(mut self) {
        self.attempt().await;
        while !self.batch.is_empty() {
            self.patience.pause().await;
            self.attempt().await;
        }
    }

    /// Sends what has no answer; what may be sent again is left.
    async fn attempt(&mut self) {
        let prefix = match self.prefix().await {
            Ok(prefix) => prefix,
            Err(error) if self.patience.allows(&error, Repeat::Harmless) => return,
            Err(error) => return self.fail(&error),
        };
        match self.call(prefix.as_deref()).await {
            Ok((replies, unwaited)) => {
                let (replies, again) = match unwaited {
                    Some(error) => self.part_unwaited(replies, &error),
                    None => (replies, Vec::new()),
                };
                // Then the next attempt is one of this call, and none of it may be sent as a new one.
                self.repeated |= !again.is_empty();
                self.distribute(replies);
                if !again.is_empty() {
                    self.batch.extend(again);
                    return;
                }
                // At its first attempt what is left was refused as too late, or taken for the repetition of an older call: our
                // idea of the server's time was wrong, and the reply has corrected it.
                self.first_push = None;
                let error = unsteady(self.work.verb);
                if !self.batch.is_empty() && !self.patience.allows(&error, Repeat::Harmless) {
                    self.fail(&error);
                }
            }
            Err(error) => {
                self.work.meters.call_failed(&error);
                let [harmless, any] = [Repeat::Harmless, Repeat::Unsafe]
                    .map(|repeat| self.patience.allows(&error, repeat));
                let (again, lost) =
                    std::mem::take(&mut self.batch)
                        .into_iter()
                        .partition(|pending| {
                            any || harmless && pending.item.repeat == Repeat::Harmless
                        });
                let unknown = error.was_applied() != Applied::No;
                self.batch = lost;
                self.fail(&error);
                self.repeated |= unknown;
                self.batch = again;
            }
        }
    }

    async fn prefix(&mut self) -> Result<Option<String>, Error> {
        match (self.work.prefix, self.repeated) {
            (Prefix::Nothing, _) => Ok(None),
            (Prefix::Word(word), _) | (Prefix::Since(word), false) => Ok(Some(word.to_owned())),
            (Prefix::Since(word), true) => {
                // What is known of the server's clock may be old.
                self.ask(self.work.lane.time()).await?;
                let since_us = self
                    .work
                    .lane
                    .clock()
                    .earliest_us(self.first)
                    .unwrap_or_default();
                Ok(Some(
                    format!("{word} since={}", since_us / 1_000)
                        .trim_start()
                        .to_owned(),
                ))
            }
            (Prefix::Attempt, _) => {
                if self.first_push.is_none() {
                    self.first_push = Some(self.first_push().await?);
                }
                Ok(self.first_push.as_ref().map(|first| first.argument.clone()))
            }
        }
    }

    /// `until` counts from the earliest time at which the first attempt may begin: what ended before this call is then never
    /// taken for its own message, if this client has seen a reply from after that end.
    async fn first_push(&self) -> Result<FirstPush, Error> {
        let lane = &self.work.lane;
        let clock = lane.clock();
        if clock.server_us(Instant::now()).is_none() {
            self.ask(lane.time()).await?;
        }
        let now = Instant::now();
        let patience_us = i64::try_from(PATIENCE.as_micros()).unwrap_or(i64::MAX);
        let until_us = clock
            .earliest_us(now)
            .unwrap_or_default()
            .saturating_add(patience_us);
        let (ms, fraction, nonce) = (until_us / 1_000, until_us % 1_000, compact(Uuid::new_v4()));
        let argument = format!("{ms}.{fraction:03} {nonce}");
        Ok(FirstPush {
            argument,
            latest_us: clock.latest_us(now).unwrap_or(i64::MAX),
        })
    }

    /// What `question` comes to, asked behind nobody's wait for replicas: a lane apart has no time limit of its own.
    async fn ask<T>(&self, question: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let _turn = self.work.lane.turn.lock().await;
        let answer = tokio::time::timeout(RESPONSE_LIMIT, question)
            .await
            .unwrap_or_else(|_| {
                let message = format!("the server did not tell its time within {RESPONSE_LIMIT:?}");
                Err(Error::new(ErrorKind::Timeout, Applied::No, message))
            });
        answer.inspect_err(|error| self.work.meters.call_failed(error))
    }

    /// The master has answered and the wait for replicas failed. Parts the items that are sent again, as the new master may
    /// lack them, from those that get their answers now: of these a change is unconfirmed.
    fn part_unwaited(
        &mut self,
        replies: Vec<ItemReply>,
        error: &Error,
    ) -> (Vec<ItemReply>, Vec<Pending>) {
        self.work.meters.call_failed(error);
        let allowed = self.patience.allows(error, Repeat::Harmless);
        let shortfall = format!("the wait for replicas or disks failed: {error}");
        let (mut told, mut again) = (Vec::with_capacity(replies.len()), Vec::new());
        for (pending, mut reply) in std::mem::take(&mut self.batch).into_iter().zip(replies) {
            reply.shortfall = Some(shortfall.clone());
            if allowed && pending.item.repeat == Repeat::Harmless && reply.is_unconfirmed() {
                again.push(pending);
            } else {
                self.batch.push(pending);
                told.push(reply);
            }
        }
        (told, again)
    }

    /// The answer to each item; and the error of the wait for replicas, if that failed.
    async fn call(&self, prefix: Option<&str>) -> Result<(Vec<ItemReply>, Option<Error>), Error> {
        let (
            Work {
                verb,
                keys,
                lane,
                durability,
                ..
            },
            batch,
        ) = (&*self.work, &self.batch);
        let mut args: Vec<&[u8]> = vec![b""];
        args.extend(prefix.map(str::as_bytes));
        let by_claim = (*verb == Verb::Ack).then(|| ByClaim::of(batch));
        match &by_claim {
            Some(by_claim) => args.extend(by_claim.args(batch)),
            None => args.extend(batch.iter().flat_map(|pending| pending.item.args())),
        }
        let (mut reply, waited) = lane.call_durably(*verb, keys, &args, *durability).await?;
        let mut items = reply.body.parts()?;
        // One result may stand for all.
        let same = items.len() == 1 && matches!(verb, Verb::Push | Verb::Ack);
        if items.len() != batch.len() && !same {
            return Err(Error::new(
                ErrorKind::Server,
                Applied::Unknown,
                format!(
                    "{} answered {} items of {}",
                    verb.name(),
                    items.len(),
                    batch.len()
                ),
            ));
        }
        let (shortfall, unwaited) = match waited {
            Waited::Confirmed => (None, None),
            Waited::Short(shortfall) => (Some(shortfall), None),
            Waited::Failed(error) => (None, Some(error)),
        };
        let item = |text: &str| ItemReply {
            shortfall: shortfall.clone(),
            ..ItemReply::parse(*verb, text)
        };
        if same {
            return Ok((vec![item(&items.text()?); batch.len()], unwaited));
        }
        let told = batch
            .iter()
            .map(|_| Ok(item(&items.text()?)))
            .collect::<Result<_, Error>>()?;
        let told = match by_claim {
            Some(by_claim) => by_claim.answers(told),
            None => told,
        };
        Ok((told, unwaited))
    }

    /// Hands out the answers. Keeps what was refused as too late, or as the repetition of an older call, although no earlier
    /// attempt of it can have been applied.
    fn distribute(&mut self, replies: Vec<ItemReply>) {
        let latest_us = self
            .first_push
            .as_ref()
            .map_or(i64::MAX, |first| first.latest_us);
        for (pending, reply) in std::mem::take(&mut self.batch).into_iter().zip(replies) {
            let answer = match (&*reply.word, self.repeated) {
                ("EXPIRED" | "FINISHED", false) => {
                    self.batch.push(pending);
                    continue;
                }
                // The other message of this id may have ended before this call began: then this one is not stored.
                ("FINISHED", true)
                    if reply
                        .finished_us()
                        .is_some_and(|ended_us| ended_us <= latest_us) =>
                {
                    Err(Error::new(
                        ErrorKind::Timeout,
                        Applied::Unknown,
                        "the first reply was lost, and another message of this id ended as the call began",
                    ))
                }
                ("EXPIRED", true) => Err(Error::new(
                    ErrorKind::Timeout,
                    Applied::Unknown,
                    format!(
                        "{} was repeated for {PATIENCE:?} and its first reply was lost",
                        reply.verb.name()
                    ),
                )),
                // The queue's limits may have been others when an earlier attempt was judged, or may be when it will be.
                ("INVALID" | "FULL", true) => Err(reply.refusal().of_repeated()),
                _ => Ok(reply),
            };
            self.answer(pending, answer);
        }
    }

    /// Of a call of which an earlier attempt may have been applied nobody knows, whatever became of the last one.
    fn fail(&mut self, error: &Error) {
        let error = if self.repeated {
            error.clone().of_repeated()
        } else {
            error.clone()
        };
        for pending in std::mem::take(&mut self.batch) {
            self.answer(pending, Err(error.clone()));
        }
    }

    fn answer(&self, pending: Pending, answer: Result<ItemReply, Error>) {
        match &answer {
            Ok(reply) => tally::answered(&self.work.meters, reply),
            Err(error) => tally::failed(&self.work.meters, self.work.verb, error),
        }
        // The caller may have gone away; its item was sent all the same.
        let _ = pending.answer.send(answer);
    }
}

/// The server's clock is set again and again, faster than we can follow.
fn unsteady(verb: Verb) -> Error {
    let message = format!(
        "{} was refused as too late for {PATIENCE:?}: is the clock of the server steady?",
        verb.name()
    );
    Error::new(ErrorKind::Timeout, Applied::No, message)
}
