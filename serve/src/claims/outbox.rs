//! What a response carries until its last byte is handed to the system.

use std::sync::{Arc, Mutex, PoisonError};

use crate::body::Reserved;
use crate::claims::Unreceived;

/// The deliveries of a response that is not sent yet, and the memory of its body. Dropped, it
/// releases the deliveries.
pub(crate) struct Unsent {
    pub(crate) deliveries: Option<Unreceived>,
    pub(crate) _memory: Reserved,
}

impl Unsent {
    /// The whole response was handed to the system.
    pub(crate) fn sent(self) {
        if let Some(deliveries) = self.deliveries {
            deliveries.received();
        }
    }
}

/// Between a response and its connection. A response puts its deliveries here when its last byte
/// is on the way; they were sent at the connection's next flush, and were not if it ends before.
#[derive(Clone, Default)]
pub(crate) struct Outbox(Arc<Mutex<Vec<Unsent>>>);

impl Outbox {
    pub(crate) fn put(&self, unsent: Unsent) {
        self.lock().push(unsent);
    }

    /// The connection has handed all bytes to the system.
    pub(crate) fn flushed(&self) {
        let sent = std::mem::take(&mut *self.lock());
        sent.into_iter().for_each(Unsent::sent);
    }

    /// The connection has ended.
    pub(crate) fn closed(&self) {
        let unsent = std::mem::take(&mut *self.lock());
        drop(unsent);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Unsent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
