//! The methods that settle a delivery, and the one that extends its lease.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Delivery;
use super::calls::LeaseCalls;
use crate::error::Error;
use crate::model::due::Due;
use crate::model::outcomes::{
    ExtendOutcome, RetryOutcome, SettleOutcome, SnoozeOutcome, ThrottleOutcome,
};

impl Delivery {
    /// Acks the message: removes it from the queue.
    ///
    /// Like every settlement, the library repeats it for up to 10 s while Redis is away. A dropped
    /// future may or may not have acted.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|delivery| {
    /// use dueq::outcomes::SettleOutcome;
    ///
    /// assert_eq!(delivery.ack().await?, SettleOutcome::Done);
    /// assert_eq!(delivery.ack().await?, SettleOutcome::Gone);
    /// # });
    /// ```
    pub async fn ack(&self) -> Result<SettleOutcome, Error> {
        self.settle(self.calls().ack()).await
    }

    /// The ack of a worker: it waits up to 1 ms for other acks, to share a call with them.
    pub(crate) async fn ack_behind(&self) -> Result<SettleOutcome, Error> {
        self.settle(self.calls().ack_behind()).await
    }

    /// Makes the message due again at `due`, with its attempts reset: for recurring work that is
    /// done for this time.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// use std::time::Duration;
    ///
    /// // The same work tomorrow:
    /// delivery.again(Duration::from_secs(24 * 3600)).await?;
    /// assert_eq!(orders.stats().await?.scheduled, 1);
    /// # });
    /// ```
    pub async fn again(&self, due: impl Into<Due>) -> Result<SettleOutcome, Error> {
        let due = due.into();
        self.settle(self.calls().again(due)).await
    }

    /// Reports a failure: the message is due again after `after`, its failures grow by one, and the
    /// queue stores the first 1,024 bytes of `error`. After the last attempt the message is dead
    /// instead.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|delivery| {
    /// use dueq::outcomes::RetryOutcome;
    /// use std::time::Duration;
    ///
    /// match delivery.retry(Duration::from_secs(60), "the bank is closed").await? {
    ///     RetryOutcome::Scheduled(due_ms) => println!("due again at {due_ms}"),
    ///     RetryOutcome::Dead => println!("that was the last attempt"),
    ///     other => println!("the lease was lost: {other:?}"),
    /// }
    /// # });
    /// ```
    pub async fn retry(&self, after: Duration, error: &str) -> Result<RetryOutcome, Error> {
        let _settling = self.settling();
        let outcome = self.calls().retry(after, error).await?;
        self.close(outcome == RetryOutcome::Lost);
        Ok(outcome)
    }

    /// Gives the message back: it is due at once, and no attempt is counted.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// use std::time::Duration;
    ///
    /// delivery.release().await?;
    /// let next = orders.claim(1, Duration::from_secs(30)).await?;
    /// assert_eq!(next[0].attempt(), 1);
    /// # });
    /// ```
    pub async fn release(&self) -> Result<SettleOutcome, Error> {
        self.settle(self.calls().release()).await
    }

    /// Makes the message dead at once, until an operator requeues it. The queue stores the first
    /// 1,024 bytes of `reason`.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// delivery.bury("the order does not exist").await?;
    /// assert_eq!(orders.stats().await?.dead, 1);
    /// # });
    /// ```
    pub async fn bury(&self, reason: &str) -> Result<SettleOutcome, Error> {
        self.settle(self.calls().bury(reason)).await
    }

    /// Makes the message due again at `due`, without a failure or a change of its attempts: for
    /// work that must wait, for example for the confirmation of a payment.
    ///
    /// [`snoozes`](Delivery::snoozes) counts the snoozes. Unlike [`again`](Delivery::again), a
    /// snooze keeps the earlier failures. A message that expires before `due` is dead at once, or
    /// is dropped if its push asked for that.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|delivery| {
    /// use dueq::outcomes::SnoozeOutcome;
    /// use std::time::Duration;
    ///
    /// let snoozed = delivery.snooze(Duration::from_secs(600)).await?;
    /// assert!(matches!(snoozed, SnoozeOutcome::Scheduled(due_ms) if due_ms > delivery.due_ms()));
    /// # });
    /// ```
    pub async fn snooze(&self, due: impl Into<Due>) -> Result<SnoozeOutcome, Error> {
        let _settling = self.settling();
        let outcome = self.calls().snooze(due.into()).await?;
        self.close(outcome == SnoozeOutcome::Lost);
        Ok(outcome)
    }

    /// Closes the queue for this length of time, and gives the message back without a failure: for
    /// a receiver that asks for a break, such as by `429 Too Many Requests` with `Retry-After`. No
    /// message of the queue starts during that time. Afterwards this message starts, behind at most
    /// 1,000 ready ones.
    ///
    /// Handlers that already run go on. If many of them throttle, the latest end counts. Less than
    /// 1 ms counts as 1 ms; [`QueueLimits::max_throttle`](crate::QueueLimits::max_throttle), 15
    /// minutes unless set, limits it. [`Queue::resume`](crate::Queue::resume) opens the queue
    /// earlier.
    ///
    /// In a queue with several partitions, the settlement closes the delivery's own partition.
    /// After it, the library makes one call for each other partition to close it.
    ///
    /// # Errors
    /// If another partition cannot be reached for 10 s, the error names it; the delivery is settled
    /// nevertheless. Such an error says [`Applied::Yes`](crate::Applied::Yes). A worker that settles
    /// for its handler emits the event `dueq.call_failed` instead.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// use dueq::outcomes::ThrottleOutcome;
    /// use std::time::Duration;
    ///
    /// let throttled = delivery.throttle(Duration::from_secs(3)).await?;
    /// assert!(matches!(throttled, ThrottleOutcome::Until(_)));
    /// assert!(orders.claim(1, Duration::from_secs(30)).await?.is_empty());
    /// # });
    /// ```
    pub async fn throttle(&self, duration: Duration) -> Result<ThrottleOutcome, Error> {
        let (outcome, closed) = self.throttle_each(duration).await?;
        closed.map(|()| outcome)
    }

    /// Throttles as [`throttle`](Delivery::throttle) does, and returns beside the outcome whether
    /// the other partitions of the queue were closed.
    pub(crate) async fn throttle_each(
        &self,
        duration: Duration,
    ) -> Result<(ThrottleOutcome, Result<(), Error>), Error> {
        let _settling = self.settling();
        let (outcome, wait_ms) = self.calls().throttle(duration).await?;
        self.close(outcome == ThrottleOutcome::Lost);
        let closed = match outcome {
            ThrottleOutcome::Until(_) => self.0.partition.close_others(wait_ms).await,
            _ => Ok(()),
        };
        Ok((outcome, closed))
    }

    /// Extends the lease: it then ends `lease` (1 ms to a day) from now, or later, if its end is
    /// later already. Returns the end.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|delivery| {
    /// use dueq::outcomes::ExtendOutcome;
    /// use std::time::Duration;
    ///
    /// let extended = delivery.extend(Duration::from_secs(600)).await?;
    /// assert!(matches!(extended, ExtendOutcome::Until(end_ms) if end_ms > delivery.deadline_ms()));
    /// # });
    /// ```
    pub async fn extend(&self, lease: Duration) -> Result<ExtendOutcome, Error> {
        self.calls().extend(lease).await
    }

    async fn settle(
        &self,
        call: impl Future<Output = Result<SettleOutcome, Error>>,
    ) -> Result<SettleOutcome, Error> {
        let _settling = self.settling();
        let outcome = call.await?;
        self.close(outcome == SettleOutcome::Lost);
        Ok(outcome)
    }

    pub(super) fn calls(&self) -> LeaseCalls<'_> {
        LeaseCalls {
            partition: &self.0.partition,
            granted: Arc::clone(&self.0) as _,
        }
    }

    pub(super) fn close(&self, lost: bool) {
        self.0.settled.store(true, Ordering::SeqCst);
        if lost {
            self.lose("a settlement found it gone");
        }
    }
}
