//! What the caller of a push gets back.

use std::borrow::Cow;
use std::fmt;

use crate::model::outcomes::PushOutcome;

/// What a push did: the message's id, the outcome, and when the message is due.
///
/// ```
/// # dueq_testkit::doctest!(|orders| {
/// use std::time::Duration;
///
/// let receipt = orders.push("rate it").id("order:42").delay(Duration::from_secs(60)).await?;
/// println!("{}: {:?}, due at {:?}", receipt.id(), receipt.outcome(), receipt.due_ms());
/// # });
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Receipt {
    pub(crate) id: Vec<u8>,
    pub(crate) outcome: PushOutcome,
    pub(crate) due_ms: Option<u64>,
}

impl Receipt {
    /// The message's id as text; bytes that are no UTF-8 are replaced.
    /// [`Queue::cancel`](crate::Queue::cancel) takes it, whether the producer chose the id or the
    /// library made it.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// let receipt = orders.push("rate it").await?;
    /// orders.cancel(receipt.id_bytes()).await?;
    /// println!("order {} is cancelled", receipt.id());
    /// # assert_eq!(receipt.id().len(), 22);
    /// # });
    /// ```
    pub fn id(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.id)
    }

    /// The message's id.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// let receipt = orders.push("rate it").id([0xff, 42]).await?;
    /// assert_eq!(receipt.id_bytes(), [0xff, 42]);
    /// # });
    /// ```
    pub fn id_bytes(&self) -> &[u8] {
        &self.id
    }

    /// What the push did.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::outcomes::PushOutcome;
    ///
    /// match orders.push("rate it").id("order:42").await?.outcome() {
    ///     PushOutcome::Created => println!("stored"),
    ///     PushOutcome::Exists(state) => println!("stored before, and {state} now"),
    ///     other => println!("{other:?}"),
    /// }
    /// # });
    /// ```
    pub fn outcome(&self) -> PushOutcome {
        self.outcome
    }

    /// Whether this push stored the message: the outcome is [`PushOutcome::Created`].
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// assert!(orders.push("rate it").id("order:42").await?.is_created());
    /// assert!(!orders.push("rate it").id("order:42").await?.is_created());
    /// # });
    /// ```
    pub fn is_created(&self) -> bool {
        self.outcome == PushOutcome::Created
    }

    /// When the message is due, in Unix milliseconds, exactly as Redis stored it. After
    /// [`PushOutcome::Moved`] and [`PushOutcome::Next`] it is the latest possible time: a
    /// [`max_wait`](crate::Message::max_wait) may make the message due earlier. `None` after
    /// [`PushOutcome::Exists`], [`PushOutcome::Remembered`] and [`PushOutcome::Finished`]: the push
    /// did not set it.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// let receipt = orders.push("rate it").delay(std::time::Duration::from_secs(60)).await?;
    /// println!("due at {} ms after 1970", receipt.due_ms().unwrap_or_default());
    /// # assert!(receipt.due_ms().is_some());
    /// # });
    /// ```
    pub fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt")
            .field("id", &self.id())
            .field("outcome", &self.outcome)
            .field("due_ms", &self.due_ms)
            .finish()
    }
}

/// A receipt compares with an outcome by its own outcome.
impl PartialEq<PushOutcome> for Receipt {
    fn eq(&self, outcome: &PushOutcome) -> bool {
        self.outcome == *outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_the_id_as_text() {
        let receipt = Receipt {
            id: b"order:\xff".to_vec(),
            outcome: PushOutcome::Created,
            due_ms: Some(7),
        };
        assert_eq!(
            format!("{receipt:?}"),
            "Receipt { id: \"order:\u{fffd}\", outcome: Created, due_ms: Some(7) }"
        );
    }
}
