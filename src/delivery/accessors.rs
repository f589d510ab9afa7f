//! The methods by which a delivery describes its message and its claim.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use super::Delivery;
use crate::error::Error;
use crate::model::lease_token::LeaseToken;
use crate::model::schedule::Tick;

impl Delivery {
    /// The name of the message's queue.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|delivery| {
    /// assert_eq!(delivery.queue(), "orders");
    /// # });
    /// ```
    pub fn queue(&self) -> &str {
        self.0.partition.queue_name()
    }

    /// The message's id as text; bytes that are no UTF-8 are replaced.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|delivery| {
    /// assert_eq!(delivery.id(), "order:42");
    /// # });
    /// ```
    pub fn id(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0.id)
    }

    /// The message's id as it was pushed.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|delivery| {
    /// assert_eq!(delivery.id_bytes(), b"order:42");
    /// # });
    /// ```
    pub fn id_bytes(&self) -> &[u8] {
        &self.0.id
    }

    /// The payload, byte for byte as it was pushed.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|delivery| {
    /// assert_eq!(delivery.payload(), b"42");
    /// # });
    /// ```
    pub fn payload(&self) -> &[u8] {
        &self.0.payload
    }

    /// The payload, parsed as JSON.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if it is not the JSON of a `T`:
    /// usually a reason to [`bury`](Delivery::bury) the message.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|delivery| {
    /// match delivery.json::<u64>() {
    ///     Ok(order) => println!("five stars for order {order}"),
    ///     Err(error) => drop(delivery.bury(&error.to_string()).await?),
    /// }
    /// # assert_eq!(delivery.json::<u64>()?, 42);
    /// # });
    /// ```
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(&self.0.payload).map_err(|error| {
            Error::invalid(format!(
                "the payload of {:?} is not the expected JSON: {error}",
                self.id()
            ))
        })
    }

    /// Which attempt this is: 1 plus the number of earlier failures and crashes.
    ///
    /// The delivery does not contain the limit of attempts; see
    /// [`is_last_attempt`](Delivery::is_last_attempt).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|delivery| {
    /// println!("{}: attempt {}", delivery.id(), delivery.attempt());
    /// # assert_eq!(delivery.attempt(), 1);
    /// # });
    /// ```
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// Whether the message is dead if this attempt fails.
    ///
    /// Do not compare [`attempt`](Delivery::attempt) with the limit of attempts instead: `attempt`
    /// includes crashes, and the limit does not.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use std::time::Duration;
    ///
    /// orders.push("charge the card").max_attempts(1).await?;
    /// for delivery in orders.claim(1, Duration::from_secs(30)).await? {
    ///     assert!(delivery.is_last_attempt());
    /// }
    /// # });
    /// ```
    pub fn is_last_attempt(&self) -> bool {
        self.0.is_last_attempt
    }

    /// How many earlier leases of this message expired: its crashes. The number of earlier failures
    /// is `attempt() - crashes() - 1`.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|delivery| {
    /// let failures = delivery.attempt() - delivery.crashes() - 1;
    /// assert_eq!((delivery.crashes(), failures), (0, 0));
    /// # });
    /// ```
    pub fn crashes(&self) -> u32 {
        self.0.crashes
    }

    /// When the message was due, in Unix milliseconds. A crash does not change it.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::Due;
    /// use std::time::Duration;
    ///
    /// let due_ms = 1_700_000_000_000;
    /// orders.push("rate it").due(Due::at_ms(due_ms)).await?;
    /// let deliveries = orders.claim(1, Duration::from_secs(30)).await?;
    /// assert_eq!(deliveries[0].due_ms(), due_ms);
    /// # });
    /// ```
    pub fn due_ms(&self) -> u64 {
        self.0.due_ms
    }

    /// The trace of the push, as [`Message::trace_parent`](crate::Message::trace_parent) set it.
    /// Every attempt has the same trace. A consumer should link to it rather than continue it: the
    /// push may be days ago.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::Due;
    /// use std::time::Duration;
    ///
    /// let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    /// let past = Due::at_ms(1_700_000_000_000);
    /// orders.push("rate it").trace_parent(header).due(past).await?;
    /// let deliveries = orders.claim(1, Duration::from_secs(30)).await?;
    /// assert_eq!(deliveries[0].trace_parent(), Some(header));
    /// # });
    /// ```
    pub fn trace_parent(&self) -> Option<&str> {
        self.0.trace_parent.as_deref()
    }

    /// When the message expires, in Unix milliseconds of the server; `None` if it does not. No
    /// attempt starts later. See [`Message::expires_after`](crate::Message::expires_after).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use std::time::Duration;
    ///
    /// orders.push("charge it").expires_after(Duration::from_secs(3_600)).await?;
    /// let deliveries = orders.claim(1, Duration::from_secs(30)).await?;
    /// let (due_ms, hour_ms) = (deliveries[0].due_ms(), 3_600_000);
    /// assert_eq!(deliveries[0].expires_at_ms(), Some(due_ms + hour_ms));
    /// # });
    /// ```
    pub fn expires_at_ms(&self) -> Option<u64> {
        self.0.expires_at_ms
    }

    /// The time until the message expires, by the estimate of Redis's clock; zero if it has
    /// expired. `None` if it does not expire. A handler whose work may take longer can pass it on
    /// as a time limit.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use std::time::Duration;
    ///
    /// let hour = Duration::from_secs(3_600);
    /// orders.push("charge it").expires_after(hour).await?;
    /// let deliveries = orders.claim(1, Duration::from_secs(30)).await?;
    /// assert!(deliveries[0].expires_in().is_some_and(|left| left <= hour));
    /// # });
    /// ```
    pub fn expires_in(&self) -> Option<Duration> {
        let expires_us = self.0.expires_at_ms?.saturating_mul(1_000);
        let estimate_us = self.0.partition.route().clock().server_us(Instant::now());
        let now_us = u64::try_from(estimate_us.unwrap_or_default()).unwrap_or(0);
        // The estimate may lie before the claim, or there may be none any more.
        let now_us = now_us.max(self.started_us());
        Some(Duration::from_micros(expires_us.saturating_sub(now_us)))
    }

    /// How often the message was [snoozed](Delivery::snooze) so far. A handler can give up after
    /// some snoozes, because they do not count as attempts.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|delivery| {
    /// assert_eq!(delivery.snoozes(), 0);
    /// # });
    /// ```
    pub fn snoozes(&self) -> u32 {
        self.0.snoozes
    }

    /// How many starts of the queue's rate this attempt has used, as
    /// [`Message::cost`](crate::Message::cost) set it: 1 unless set.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|delivery| {
    /// assert_eq!(delivery.cost(), 1);
    /// # });
    /// ```
    pub fn cost(&self) -> u32 {
        self.0.cost
    }

    /// The fire of a [schedule](crate::schedules::Schedule) that this message was made for; `None`
    /// for any other message.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::schedules::Schedule;
    /// use std::time::Duration;
    ///
    /// orders.schedules("billing").apply([Schedule::every(Duration::from_millis(10)).name("beat")]).await?;
    /// # tokio::time::sleep(Duration::from_millis(30)).await;
    /// for delivery in orders.claim(1, Duration::from_secs(30)).await? {
    ///     if let Some(tick) = delivery.tick() {
    ///         assert_eq!(tick.schedule, "beat");
    ///         assert_eq!(delivery.id(), format!("beat@{}", tick.nominal_ms));
    ///     }
    /// }
    /// # });
    /// ```
    pub fn tick(&self) -> Option<Tick> {
        let id = std::str::from_utf8(&self.0.id)
            .ok()
            .filter(|_| self.0.is_tick)?;
        let (schedule, nominal_ms) = id.rsplit_once('@')?;
        Some(Tick {
            schedule: schedule.to_owned(),
            nominal_ms: nominal_ms.parse().ok()?,
        })
    }

    /// When the lease that the claim granted ends, in Unix milliseconds of the server. Extensions
    /// do not change this value.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|delivery| {
    /// assert!(delivery.deadline_ms() > delivery.due_ms());
    /// # });
    /// ```
    pub fn deadline_ms(&self) -> u64 {
        self.0.deadline_ms
    }

    /// The token of the claim: the one that the caller gave to
    /// [`Queue::claim_with_token`](crate::Queue::claim_with_token), or a random one.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders, delivery| {
    /// let again = orders.held(&delivery.lease_token()).await?;
    /// assert_eq!(again.deliveries[0].id(), delivery.id());
    /// # });
    /// ```
    pub fn lease_token(&self) -> LeaseToken {
        LeaseToken::from_bytes(self.0.token)
    }

    /// When the handler started (after a claim by hand: when the claim returned), in Unix
    /// *micro*seconds of the Redis server's clock. This process estimates it: the error is at most
    /// half a round trip, and never before the claim.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|delivery| {
    /// println!("started {} ms after 1970", delivery.started_us() / 1_000);
    /// # assert!(delivery.started_us() >= delivery.due_ms() * 1_000);
    /// # });
    /// ```
    pub fn started_us(&self) -> u64 {
        self.0.started_us.load(Ordering::Relaxed)
    }

    /// The time from the message's due time to the [start](Delivery::started_us) of its handler.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|delivery| {
    /// println!("{} is {} ms late", delivery.id(), delivery.lateness().as_millis());
    /// # });
    /// ```
    pub fn lateness(&self) -> Duration {
        Duration::from_micros(
            self.started_us()
                .saturating_sub(self.0.due_ms.saturating_mul(1_000)),
        )
    }
}
