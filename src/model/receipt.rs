//! What the caller of a push gets back.

use std::borrow::Cow;

use crate::model::outcomes::Pushed;

/// What a push did: the message's id, the outcome, and when the message is due.
///
/// ```no_run
/// # async fn example(orders: dueq::Queue) -> Result<(), dueq::Error> {
/// use std::time::Duration;
///
/// let receipt = orders.push("rate it").id("order:42").delay(Duration::from_secs(60)).await?;
/// println!("{}: {:?}, due at {:?}", receipt.id(), receipt.outcome(), receipt.due_ms());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Receipt {
    pub(crate) id: Vec<u8>,
    pub(crate) outcome: Pushed,
    pub(crate) due_ms: Option<u64>,
}

impl Receipt {
    /// The message's id as text; bytes that are no UTF-8 are replaced. It is the id that
    /// [`Queue::cancel`](crate::Queue::cancel) takes, also if the library made it.
    pub fn id(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.id)
    }

    /// The message's id.
    pub fn id_bytes(&self) -> &[u8] {
        &self.id
    }

    /// What the push did.
    pub fn outcome(&self) -> Pushed {
        self.outcome
    }

    /// Whether this push stored the message: the outcome is [`Pushed::Created`].
    pub fn is_created(&self) -> bool {
        self.outcome == Pushed::Created
    }

    /// When the message is due, in Unix milliseconds, exactly as Redis stored it. `None` after
    /// [`Pushed::Exists`] and [`Pushed::Finished`]: the push did not set it.
    pub fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }
}

/// A receipt equals its outcome.
impl PartialEq<Pushed> for Receipt {
    fn eq(&self, outcome: &Pushed) -> bool {
        self.outcome == *outcome
    }
}
