//! The ids that a cancel names.

use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};

/// The ids that a cancel names. An ended operation drops them, and keeps what is needed to compare
/// requests.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub(crate) count: usize,
    digest: [u8; 32],
    ids: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Named {
    pub(super) fn new(ids: Vec<Vec<u8>>) -> Self {
        let mut digest = Sha256::new();
        for id in &ids {
            digest.update([u8::try_from(id.len()).unwrap_or(u8::MAX)]);
            digest.update(id);
        }
        Self {
            count: ids.len(),
            digest: digest.finalize().into(),
            ids: Arc::new(Mutex::new(ids)),
        }
    }

    /// Moves the ids out, for the operation.
    pub(super) fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.ids.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        (self.count, self.digest) == (other.count, other.digest)
    }
}

impl Eq for Named {}
