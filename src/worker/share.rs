//! The share of a queue: what it may have of the handlers of a worker.

use crate::error::Error;
use crate::node::state::shares::ShareSettings;

/// What a queue may have of the handlers of a [`Worker`](crate::Worker).
///
/// While several queues have due messages, the total run times of their handlers are proportional
/// to their weights. The next free handler goes to the queue that is the furthest behind. With
/// fewer handlers than queues the queues take turns.
///
/// [`Worker::strict`](crate::Worker::strict) replaces the weights by an order of the queues. A
/// value out of its range is an error of [`Worker::spawn`](crate::Worker::spawn).
///
/// ```
/// use dueq::Share;
///
/// // Six times the handlers of a queue with weight 1; two handlers serve no other queue; 16 at
/// // most.
/// let share = Share::weight(6).reserve(2).max(16);
/// # let _ = share;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    weight: u32,
    reserve: usize,
    max: Option<usize>,
}

impl Share {
    /// Makes a share of this weight, at least 1. The default is 1.
    ///
    /// ```
    /// // While both queues have due messages, the handlers of the first run three times as long.
    /// let (first, second) = (dueq::Share::weight(3), dueq::Share::weight(1));
    /// assert_eq!(second, dueq::Share::default());
    /// # let _ = first;
    /// ```
    #[must_use]
    pub fn weight(weight: u32) -> Self {
        Self {
            weight,
            ..Self::default()
        }
    }

    /// Sets how many handlers serve only this queue, so that its due messages never wait for
    /// handlers of other queues. The default is 0. The reserves of all queues must fit into the
    /// worker's concurrency. Queues of a pattern cannot have a reserve.
    ///
    /// ```
    /// let critical = dueq::Share::default().reserve(2);
    /// # let _ = critical;
    /// ```
    #[must_use]
    pub fn reserve(mut self, handlers: usize) -> Self {
        self.reserve = handlers;
        self
    }

    /// Sets the most handlers that the queue may have, even while others are free: at least 1, and
    /// at least its reserve. The default is no limit besides the worker's concurrency.
    ///
    /// ```
    /// let bulk = dueq::Share::weight(1).max(16);
    /// # let _ = bulk;
    /// ```
    #[must_use]
    pub fn max(mut self, handlers: usize) -> Self {
        self.max = Some(handlers);
        self
    }

    /// How many handlers this share reserves.
    pub(crate) fn reserves(&self) -> usize {
        self.reserve
    }

    /// Checks the share, and makes the settings of the node. `of` names the queue in errors.
    pub(crate) fn checked(&self, of: &str) -> Result<ShareSettings, Error> {
        let Self {
            weight,
            reserve,
            max,
        } = *self;
        if weight == 0 {
            return Err(Error::invalid(format!(
                "{of}: weight 0 is not in the range from 1 to {}",
                u32::MAX
            )));
        }
        if let Some(max) = max.filter(|max| *max < reserve.max(1)) {
            return Err(Error::invalid(format!(
                "{of}: a maximum of {max} handlers is below {}",
                match reserve {
                    0 => "1".to_owned(),
                    reserve => format!("its reserve of {reserve}"),
                }
            )));
        }
        Ok(ShareSettings {
            weight,
            reserve,
            max: max.unwrap_or(usize::MAX),
        })
    }
}

impl Default for Share {
    /// The default share: weight 1, no reserve, no maximum.
    fn default() -> Self {
        Self {
            weight: 1,
            reserve: 0,
            max: None,
        }
    }
}
