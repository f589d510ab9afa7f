//! Calls that change one message: cancel, reschedule, run now, requeue, end its lease.

use crate::batch::{BatchVerb, Batcher, Item};
use crate::error::Error;
use crate::model::codec::Codec;
use crate::model::due::Due;
use crate::model::outcomes::{
    BuryOutcome, CancelOutcome, RequeueOutcome, RescheduleOutcome, RetryOutcome, RunNowOutcome,
};
use crate::partition::Producers;
use crate::protocol::limits;
use crate::queue::Queue;
use crate::queue::submit;
use crate::router::Routing;
use crate::server::patience::Repeat;

impl<C: Codec> Queue<C> {
    /// Cancels a message that waits. After `Cancelled` it is never delivered: of a cancel and a
    /// claim exactly one wins.
    ///
    /// The queue remembers a cancelled id for 12 s after each cancel. Within that time a repeated
    /// cancel returns `Cancelled` again, and if the first one failed with
    /// [`ErrorKind::Unconfirmed`](crate::ErrorKind::Unconfirmed), the repeated one waits for
    /// replicas again. Later a cancel returns `Absent`, which says nothing about the replicas: a
    /// failover to one that lags may bring the message back.
    ///
    /// If the reply is lost, the library repeats the call; the repetition does not cancel a message
    /// that was pushed under the id meanwhile.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::outcomes::CancelOutcome;
    ///
    /// orders.push("rate it").id("order:42").delay(std::time::Duration::from_secs(60)).await?;
    /// match orders.cancel("order:42").await? {
    ///     CancelOutcome::Cancelled => println!("no rating for order 42"),
    ///     CancelOutcome::Leased => println!("too late: a handler has it"),
    ///     other => println!("nothing to cancel: {other:?}"),
    /// }
    /// # assert_eq!(orders.stats().await?.cancelled, 1);
    /// # });
    /// ```
    pub async fn cancel(&self, id: impl AsRef<[u8]>) -> Result<CancelOutcome, Error> {
        self.cancel_to_undo(id).await.map(|(outcome, _)| outcome)
    }

    /// Cancels a message as [`cancel`](Queue::cancel) does, and returns the server's time of the
    /// cancel in Unix milliseconds. With that time, [`Message::undo`](crate::Message::undo) can
    /// restore the message for 12 s, as long as nothing else happens to its id. The undo is refused
    /// if the cancel's reply was lost and the library repeated it, or if the message was cancelled
    /// before.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::Message;
    /// use dueq::outcomes::PushOutcome;
    /// use std::time::Duration;
    ///
    /// let rating = Message::new("rate it").id("order:42").due(Duration::from_secs(60));
    /// assert!(orders.push_message(rating.clone()).await?.is_created());
    /// let (_cancelled, ms) = orders.cancel_to_undo("order:42").await?;
    /// // Another caller cancels it as well, and relies on that.
    /// let _ = orders.cancel("order:42").await?;
    /// let undo = orders.push_message(rating.undo(ms)).await?;
    /// assert_eq!(undo.outcome(), PushOutcome::Finished);
    /// # });
    /// ```
    pub async fn cancel_to_undo(
        &self,
        id: impl AsRef<[u8]>,
    ) -> Result<(CancelOutcome, u64), Error> {
        self.change(
            |producers| &producers.cancel,
            id.as_ref(),
            [],
            Repeat::Harmless,
        )
        .await
    }

    /// Cancels a message as [`cancel`](Queue::cancel) does, and removes it even if it is dead.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// use dueq::outcomes::CancelOutcome;
    ///
    /// delivery.bury("the order does not exist").await?;
    /// assert_eq!(orders.cancel("order:42").await?, CancelOutcome::Dead);
    /// assert_eq!(orders.cancel_dead("order:42").await?, CancelOutcome::Cancelled);
    /// # });
    /// ```
    pub async fn cancel_dead(&self, id: impl AsRef<[u8]>) -> Result<CancelOutcome, Error> {
        self.change(
            |producers| &producers.cancel_dead,
            id.as_ref(),
            [],
            Repeat::Harmless,
        )
        .await
        .map(|(outcome, _)| outcome)
    }

    /// Gives a waiting message a new due time, which replaces the old one.
    ///
    /// The library does not repeat the call when its reply is lost: the error then says
    /// [`Applied::Unknown`](crate::Applied::Unknown).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::outcomes::RescheduleOutcome;
    /// use std::time::Duration;
    ///
    /// orders.push("rate it").id("order:42").delay(Duration::from_secs(60)).await?;
    /// let outcome = orders.reschedule("order:42", Duration::from_secs(3600)).await?;
    /// assert!(matches!(outcome, RescheduleOutcome::Moved(_due_ms)));
    /// # });
    /// ```
    pub async fn reschedule(
        &self,
        id: impl AsRef<[u8]>,
        due: impl Into<Due>,
    ) -> Result<RescheduleOutcome, Error> {
        self.reschedule_by(id.as_ref(), due.into(), None).await
    }

    /// Gives a waiting message a new due time as [`reschedule`](Queue::reschedule) does, but only
    /// if its present due time is `expected_ms`, in Unix milliseconds.
    ///
    /// If the reply is lost, the library repeats the call with a fixed time ([`Due::at_ms`]). With
    /// a delay it does not, because each try would set another due time. A caller that repeats such
    /// a call gets `Conflict` if the first try took effect.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::Due;
    /// use dueq::outcomes::RescheduleOutcome;
    ///
    /// let due_ms = 2_000_000_000_000;
    /// orders.push("rate it").id("order:42").due(Due::at_ms(due_ms)).await?;
    /// let later = Due::at_ms(due_ms + 60_000);
    /// let outcome = orders.reschedule_if("order:42", later, due_ms).await?;
    /// assert_eq!(outcome, RescheduleOutcome::Moved(due_ms + 60_000));
    /// // The message is no longer due at the expected time:
    /// let still_later = Due::at_ms(due_ms + 90_000);
    /// let outcome = orders.reschedule_if("order:42", still_later, due_ms).await?;
    /// assert_eq!(outcome, RescheduleOutcome::Conflict(due_ms + 60_000));
    /// # });
    /// ```
    pub async fn reschedule_if(
        &self,
        id: impl AsRef<[u8]>,
        due: impl Into<Due>,
        expected_ms: u64,
    ) -> Result<RescheduleOutcome, Error> {
        self.reschedule_by(id.as_ref(), due.into(), Some(expected_ms))
            .await
    }

    async fn reschedule_by(
        &self,
        id: &[u8],
        due: Due,
        expected_ms: Option<u64>,
    ) -> Result<RescheduleOutcome, Error> {
        let repeat = match (due, expected_ms) {
            (Due::AtMs(_), Some(_)) => Repeat::Harmless,
            _ => Repeat::Unsafe,
        };
        let expected = expected_ms.map(|ms| ms.to_string()).unwrap_or_default();
        let rest = [due.encode()?.into_bytes(), expected.into_bytes()];
        self.change(|producers| &producers.reschedule, id, rest, repeat)
            .await
    }

    /// Makes a scheduled message due now. The library does not repeat the call when its reply is
    /// lost.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::outcomes::RunNowOutcome;
    ///
    /// orders.push("rate it").id("order:42").delay(std::time::Duration::from_secs(60)).await?;
    /// assert_eq!(orders.run_now("order:42").await?, RunNowOutcome::Moved);
    /// assert_eq!(orders.run_now("order:43").await?, RunNowOutcome::Absent);
    /// # });
    /// ```
    pub async fn run_now(&self, id: impl AsRef<[u8]>) -> Result<RunNowOutcome, Error> {
        self.change(
            |producers| &producers.run_now,
            id.as_ref(),
            [],
            Repeat::Unsafe,
        )
        .await
    }

    /// Revives a dead message: it is due now. The library does not repeat the call when its reply
    /// is lost.
    ///
    /// The message keeps its id, its payload, its trace and its own limit of attempts. Its failures
    /// and crashes count from zero again, and [`StoredMessage::error`](crate::StoredMessage::error)
    /// becomes empty.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// use dueq::outcomes::RequeueOutcome;
    ///
    /// delivery.bury("the bank is closed").await?;
    /// assert_eq!(orders.requeue("order:42").await?, RequeueOutcome::Requeued);
    /// # });
    /// ```
    pub async fn requeue(&self, id: impl AsRef<[u8]>) -> Result<RequeueOutcome, Error> {
        self.change(
            |producers| &producers.requeue,
            id.as_ref(),
            [],
            Repeat::Unsafe,
        )
        .await
    }

    /// Ends the lease of a message now, as if the lease had expired: for a message whose worker is
    /// gone, or whose handler hangs. This counts as a crash; after the limit of crashes the message
    /// is dead, otherwise it waits as [`RetryOutcome::Scheduled`] says. The worker that has the
    /// message learns of it at its next extension, and its later settlement returns
    /// [`SettleOutcome::Lost`](crate::outcomes::SettleOutcome::Lost). The caller needs the rights
    /// of an operator.
    ///
    /// `lease` is the [name of the lease](crate::inspect::LeaseInfo::name), so that a repetition
    /// does not end a later lease. The call returns [`RetryOutcome::Lost`] if the message has no
    /// lease of this name; an earlier try of this call may have ended it. It returns
    /// [`RetryOutcome::Gone`] if the queue has no message of this id.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// use dueq::outcomes::RetryOutcome;
    ///
    /// let stored = orders.get("order:42").await?;
    /// if let Some(lease) = stored.and_then(|stored| stored.lease) {
    ///     let ended = orders.end_lease("order:42", &lease.name).await?;
    ///     assert!(matches!(ended, RetryOutcome::Scheduled(_)));
    ///     assert_eq!(orders.end_lease("order:42", &lease.name).await?, RetryOutcome::Lost);
    /// }
    /// # assert_eq!(delivery.ack().await?, dueq::outcomes::SettleOutcome::Lost);
    /// # assert_eq!(orders.stats().await?.crashed, 1);
    /// # });
    /// ```
    pub async fn end_lease(
        &self,
        id: impl AsRef<[u8]>,
        lease: &str,
    ) -> Result<RetryOutcome, Error> {
        self.change(
            |producers| &producers.end_lease,
            id.as_ref(),
            [lease.as_bytes().to_vec()],
            Repeat::Harmless,
        )
        .await
    }

    /// Takes a message out of service: it is dead, with this reason, of which the first 1,024 bytes
    /// are kept. For a message that breaks its handlers or kills its workers, without a pause of
    /// the queue. The caller needs the rights of an operator.
    ///
    /// A message that waits is dead at once. A leased one is marked: however its lease ends, it is
    /// dead then, with the error `buried when its lease ended` and its last error. Only an ack
    /// ends it as usual, and [`again`](crate::Delivery::again) schedules it. The mark ends with
    /// the lease; also if a next message takes over, which
    /// [`OnConflict::Next`](crate::OnConflict::Next) left. [`end_lease`](Queue::end_lease) ends
    /// the lease at once. [`requeue`](Queue::requeue) brings a dead message back.
    ///
    /// The library repeats the call when its reply is lost. A repetition acts on the message that
    /// has the id then.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// use dueq::MessageState;
    /// use dueq::outcomes::BuryOutcome;
    ///
    /// assert_eq!(orders.bury("order:42", "it kills workers").await?, BuryOutcome::Marked);
    /// delivery.release().await?; // or its lease runs out
    /// let stored = orders.get("order:42").await?.expect("a message");
    /// assert_eq!(stored.state, MessageState::Dead);
    /// # });
    /// ```
    pub async fn bury(&self, id: impl AsRef<[u8]>, reason: &str) -> Result<BuryOutcome, Error> {
        self.change(
            |producers| &producers.bury,
            id.as_ref(),
            [b"any".to_vec(), reason.as_bytes().to_vec()],
            Repeat::Harmless,
        )
        .await
    }

    async fn change<V: BatchVerb, const N: usize>(
        &self,
        batcher: impl Fn(&Producers) -> &Batcher<V>,
        id: &[u8],
        rest: [Vec<u8>; N],
        repeat: Repeat,
    ) -> Result<V::Output, Error> {
        limits::check_id(id)?;
        let args = [id.to_vec()].into_iter().chain(rest).collect();
        let item = Item {
            granted: None,
            args,
            repeat,
        };
        let mut routing = Routing::new(&self.router);
        let result = submit(&mut routing, self.durability, &batcher, item).await;
        result.map_err(|error| error.of_message(id))
    }
}
