//! What a script replied of one item.

use crate::batch::verb::BatchVerb;
use crate::error::Error;

/// The reply of one item. While the partitions of a queue change, a message may be elsewhere.
#[derive(Clone)]
pub(crate) enum Replied<T> {
    Result(Result<T, Error>),
    /// The message is on its way to another partition.
    Moving,
    /// The partition does not have the message, which belongs to another partition. It may remember
    /// the id.
    Away(Option<Result<T, Error>>),
}

impl<T: Clone + Send + 'static> Replied<T> {
    pub(crate) fn decode<V: BatchVerb<Output = T>>(text: &str, now_us: i64) -> Self {
        match text {
            "MOVING" => Self::Moving,
            "AWAY" => Self::Away(None),
            _ => match text.strip_prefix("AWAY ") {
                Some(remembered) => Self::Away(Some(V::decode(remembered, now_us))),
                None => Self::Result(V::decode(text, now_us)),
            },
        }
    }

    /// Whether replicas or disks must confirm this result.
    pub(crate) fn is_change<V: BatchVerb<Output = T>>(&self) -> bool {
        matches!(self, Self::Result(Ok(output)) if V::is_change(output))
    }
}
