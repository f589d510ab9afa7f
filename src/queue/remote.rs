//! Settles a delivery by its handle, from any process. Also forwards a delivery to another queue.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::delivery::{Delivery, DeliveryHandle, LeaseCalls};
use crate::error::Error;
use crate::model::codec::Codec;
use crate::model::due::Due;
use crate::model::message::Message;
use crate::model::outcomes::{
    AckPushOutcome, ExtendOutcome, RetryOutcome, SettleOutcome, SnoozeOutcome, ThrottleOutcome,
};
use crate::model::receipt::Receipt;
use crate::partition::Partition;
use crate::queue::Queue;
use crate::router::Router;
use crate::server::patience::patiently;

/// A delivery of this queue that is known by its [handle](DeliveryHandle): the right to settle it
/// from any process.
///
/// It has every settlement of a [`Delivery`](crate::Delivery), with the same outcomes and errors. A
/// settlement acts only while the claim of the handle is the message's current one. Otherwise it
/// returns `Lost` or `Gone` and changes nothing. Settlements of many handles share calls, as those
/// of deliveries do. This process keeps no state: the handle also works in any other process.
///
/// Only [`extend`](RemoteDelivery::extend) extends the lease. Cheap to clone.
///
/// ```
/// # dueq_testkit::doctest!(|orders, delivery| {
/// use dueq::outcomes::RetryOutcome;
/// use std::time::Duration;
///
/// let handle = delivery.into_handle();
/// let retried = orders.delivery(handle).retry(Duration::from_secs(60), "the bank is closed").await?;
/// assert!(matches!(retried, RetryOutcome::Scheduled(_)));
/// # });
/// ```
#[derive(Clone)]
pub struct RemoteDelivery {
    router: Arc<Router>,
    handle: DeliveryHandle,
}

impl<C: Codec> Queue<C> {
    /// Returns the delivery of this queue with this handle. Makes no call. If the handle belongs to
    /// another queue or was forged, the settlement returns `Gone` or `Lost`.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// use dueq::claims::DeliveryHandle;
    /// use dueq::outcomes::SettleOutcome;
    ///
    /// let text = delivery.handle().to_string();
    /// let remote = orders.delivery(text.parse()?);
    /// assert_eq!(remote.ack().await?, SettleOutcome::Done);
    /// # });
    /// ```
    pub fn delivery(&self, handle: DeliveryHandle) -> RemoteDelivery {
        RemoteDelivery {
            router: Arc::clone(self.router()),
            handle,
        }
    }
}

impl RemoteDelivery {
    /// The handle of the delivery.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// let remote = orders.delivery(delivery.handle());
    /// assert_eq!(remote.handle(), &delivery.handle());
    /// # });
    /// ```
    pub fn handle(&self) -> &DeliveryHandle {
        &self.handle
    }

    /// Acks the message: removes it from the queue. See [`Delivery::ack`](crate::Delivery::ack).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// use dueq::outcomes::SettleOutcome;
    ///
    /// let remote = orders.delivery(delivery.into_handle());
    /// assert_eq!(remote.ack().await?, SettleOutcome::Done);
    /// assert_eq!(remote.ack().await?, SettleOutcome::Gone);
    /// # });
    /// ```
    pub async fn ack(&self) -> Result<SettleOutcome, Error> {
        self.calls(&*self.partition().await?).ack().await
    }

    /// Acks the message and stores its follow-ups in one step. See
    /// [`Delivery::ack_push`](crate::Delivery::ack_push).
    ///
    /// # Errors
    /// The errors of [`Delivery::ack_push`](crate::Delivery::ack_push).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// use dueq::Message;
    /// use dueq::outcomes::AckPushOutcome;
    ///
    /// let remote = orders.delivery(delivery.into_handle());
    /// let followed = remote.ack_push([Message::new("ship")]).await?;
    /// assert!(matches!(followed, AckPushOutcome::Done(receipts) if receipts[0].id() == "{order:42}/1"));
    /// # });
    /// ```
    pub async fn ack_push(
        &self,
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<AckPushOutcome, Error> {
        let partition = self.partition().await?;
        self.calls(&partition).ack_push(messages).await
    }

    /// Makes the message due again at `due`, with its attempts reset. See
    /// [`Delivery::again`](crate::Delivery::again).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// use std::time::Duration;
    ///
    /// orders.delivery(delivery.into_handle()).again(Duration::from_secs(3_600)).await?;
    /// assert_eq!(orders.stats().await?.scheduled, 1);
    /// # });
    /// ```
    pub async fn again(&self, due: impl Into<Due>) -> Result<SettleOutcome, Error> {
        let due = due.into();
        self.calls(&*self.partition().await?).again(due).await
    }

    /// Reports a failure: the message is due again at `due`, a delay or a fixed time, and its
    /// failures grow by one. See [`Delivery::retry`](crate::Delivery::retry).
    ///
    /// A fixed time costs one more command, which reads the server's clock. The message may become
    /// due later than that time, by up to the time between the two calls, but never earlier. A time
    /// in the past means now.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client, orders, delivery| {
    /// use dueq::Due;
    /// use dueq::outcomes::RetryOutcome;
    ///
    /// let at_ms = client.server_time().await?.unix_us / 1_000 + 60_000;
    /// let remote = orders.delivery(delivery.into_handle());
    /// let retried = remote.retry(Due::at_ms(at_ms), "the bank is closed").await?;
    /// assert!(matches!(retried, RetryOutcome::Scheduled(due_ms) if due_ms >= at_ms));
    /// # });
    /// ```
    pub async fn retry(&self, due: impl Into<Due>, error: &str) -> Result<RetryOutcome, Error> {
        let (due, partition) = (due.into(), self.partition().await?);
        let after_ms = match due {
            Due::AfterMs(ms) => ms,
            Due::AtMs(ms) => ms.saturating_sub(server_ms(&partition).await?),
        };
        let after = Duration::from_millis(after_ms);
        self.calls(&partition).retry(after, error).await
    }

    /// Gives the message back: it is due at once, and no attempt is counted. See
    /// [`Delivery::release`](crate::Delivery::release).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// use dueq::outcomes::SettleOutcome;
    ///
    /// let remote = orders.delivery(delivery.into_handle());
    /// assert_eq!(remote.release().await?, SettleOutcome::Done);
    /// # });
    /// ```
    pub async fn release(&self) -> Result<SettleOutcome, Error> {
        self.calls(&*self.partition().await?).release().await
    }

    /// Makes the message dead at once. The queue stores `reason` with it. See
    /// [`Delivery::bury`](crate::Delivery::bury).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// orders.delivery(delivery.into_handle()).bury("the order does not exist").await?;
    /// assert_eq!(orders.stats().await?.dead, 1);
    /// # });
    /// ```
    pub async fn bury(&self, reason: &str) -> Result<SettleOutcome, Error> {
        self.calls(&*self.partition().await?).bury(reason).await
    }

    /// Makes the message due again at `due`, without a failure or a change of its attempts. See
    /// [`Delivery::snooze`](crate::Delivery::snooze).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// use dueq::outcomes::SnoozeOutcome;
    /// use std::time::Duration;
    ///
    /// let remote = orders.delivery(delivery.into_handle());
    /// let snoozed = remote.snooze(Duration::from_secs(600)).await?;
    /// assert!(matches!(snoozed, SnoozeOutcome::Scheduled(_)));
    /// # });
    /// ```
    pub async fn snooze(&self, due: impl Into<Due>) -> Result<SnoozeOutcome, Error> {
        let due = due.into();
        self.calls(&*self.partition().await?).snooze(due).await
    }

    /// Closes the queue for this time, and gives the message back without a failure. See
    /// [`Delivery::throttle`](crate::Delivery::throttle).
    ///
    /// # Errors
    /// The errors of [`Delivery::throttle`](crate::Delivery::throttle).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// use dueq::outcomes::ThrottleOutcome;
    /// use std::time::Duration;
    ///
    /// let remote = orders.delivery(delivery.into_handle());
    /// let throttled = remote.throttle(Duration::from_secs(3)).await?;
    /// assert!(matches!(throttled, ThrottleOutcome::Until(_)));
    /// # });
    /// ```
    pub async fn throttle(&self, duration: Duration) -> Result<ThrottleOutcome, Error> {
        let partition = self.partition().await?;
        let (outcome, wait_ms) = self.calls(&partition).throttle(duration).await?;
        if matches!(outcome, ThrottleOutcome::Until(_)) {
            partition.close_others(wait_ms).await?;
        }
        Ok(outcome)
    }

    /// Extends the lease: it then ends `lease` (1 ms to a day) from now, or later if it already
    /// did. See [`Delivery::extend`](crate::Delivery::extend).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// use dueq::outcomes::ExtendOutcome;
    /// use std::time::Duration;
    ///
    /// let remote = orders.delivery(delivery.into_handle());
    /// let extended = remote.extend(Duration::from_secs(600)).await?;
    /// assert!(matches!(extended, ExtendOutcome::Until(_)));
    /// # });
    /// ```
    pub async fn extend(&self, lease: Duration) -> Result<ExtendOutcome, Error> {
        self.calls(&*self.partition().await?).extend(lease).await
    }

    fn calls<'a>(&self, partition: &'a Partition) -> LeaseCalls<'a> {
        LeaseCalls {
            partition,
            granted: self.handle.granted(),
        }
    }

    /// The partition that granted the delivery.
    async fn partition(&self) -> Result<Arc<Partition>, Error> {
        let tag = self.handle.tag();
        let seen = self.router.current();
        if let Some(partition) = seen.of_tag(tag) {
            return Ok(Arc::clone(partition));
        }
        // The map that this process knows lacks the partition, so it reads the newest map.
        let now = patiently(|| self.router.refresh(&seen)).await?;
        // A partition that holds messages is never removed. So if the partition is gone, the
        // delivery is gone as well, and any partition gives that answer.
        Ok(Arc::clone(now.of_tag(tag).unwrap_or(now.home())))
    }
}

/// The time of the server that holds the partition, in Unix milliseconds.
async fn server_ms(partition: &Partition) -> Result<u64, Error> {
    let read = || async { partition.control().lane().await?.time().await };
    let (now_us, ..) = patiently(read).await?;
    Ok(u64::try_from(now_us / 1_000).unwrap_or(0))
}

impl fmt::Debug for RemoteDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteDelivery")
            .field("queue", &self.router.queue_name())
            .field("handle", &self.handle)
            .finish_non_exhaustive()
    }
}

/// For how long a queue remembers the id of a forwarded message, unless the message has its own
/// window.
const WINDOW: Duration = Duration::from_secs(24 * 3_600);

impl<C: Codec> Queue<C> {
    /// Pushes `message` to this queue, and then acks `delivery`, which belongs to another queue. It
    /// is a method of the receiving queue because a delivery knows its own queue only.
    ///
    /// The two steps are not atomic, since the queues may be on different servers: within one queue
    /// use the atomic [`Delivery::ack_push`]. Forwarding still takes effect once. If the process
    /// dies between the steps, or the lease is lost, a later execution pushes the same id again,
    /// and this queue remembers it: for 24 h, unless the message has a [`window`](Message::window)
    /// of its own. Then the push stores nothing, and the receipt says
    /// [`Exists`](crate::outcomes::PushOutcome::Exists) or
    /// [`Remembered`](crate::outcomes::PushOutcome::Remembered).
    ///
    /// A message without an id gets one from the delivery's queue and id, such as
    /// `orders/order:42`. So set an id if a handler forwards two messages, or if the delivery's id
    /// comes again within the window, as after [`Delivery::again`]: otherwise the second message is
    /// not stored. The window counts towards this queue's
    /// [`QueueLimits::max_remembered`](crate::QueueLimits::max_remembered).
    ///
    /// A dropped future may have pushed the message without the ack: then the delivery is executed
    /// again.
    ///
    /// # Errors
    /// The errors of [`push_message`](Queue::push_message), after which the delivery is still
    /// leased. If the message was pushed and the ack failed, the error says
    /// [`Applied::Yes`](crate::Applied::Yes) or `Unknown`; repeating the call completes it.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client, orders, delivery| {
    /// use dueq::Message;
    /// use dueq::outcomes::SettleOutcome;
    ///
    /// let invoices = client.queue("invoices")?;
    /// let (receipt, settled) = invoices.forward(&delivery, Message::new("order 42")).await?;
    /// assert_eq!(receipt.id(), "orders/order:42");
    /// assert_eq!(settled, SettleOutcome::Done);
    /// # });
    /// ```
    pub async fn forward(
        &self,
        delivery: &Delivery,
        mut message: Message,
    ) -> Result<(Receipt, SettleOutcome), Error> {
        if message.id.is_none() {
            let source = delivery.partition().queue_name().as_bytes();
            message = message.id([source, b"/", delivery.id_bytes()].concat());
        }
        if message.unique.window_ms.is_none() {
            message = message.window(WINDOW);
        }
        let receipt = self.push_message(message).await?;
        let settled = delivery.ack().await.map_err(|error| {
            error.after(&format!("the message was pushed to queue {}", self.name()))
        })?;
        Ok((receipt, settled))
    }
}
