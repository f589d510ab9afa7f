//! The id of a message to push, and whether anybody else may know it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use uuid::Uuid;

/// An id is fresh while nobody has had it but the message that it was made for: then its producer cannot push it again.
pub(crate) struct Id {
    bytes: Vec<u8>,
    shown: AtomicBool,
}

impl Id {
    /// A UUIDv7 in 22 characters.
    pub(crate) fn fresh() -> Self {
        Self { bytes: compact(Uuid::now_v7()).into_bytes(), shown: AtomicBool::new(false) }
    }

    /// One that somebody chose.
    pub(crate) fn chosen(bytes: Vec<u8>) -> Self {
        Self { bytes, shown: AtomicBool::new(true) }
    }

    /// As if nobody else knew it, although it was chosen.
    #[cfg(feature = "harness")]
    pub(crate) fn unseen(self) -> Self {
        Self { shown: AtomicBool::new(false), ..self }
    }

    /// For somebody who may do with it whatever he wants.
    pub(crate) fn show(&self) -> &[u8] {
        self.shown.store(true, Ordering::Relaxed);
        &self.bytes
    }

    /// For its own push.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn is_fresh(&self) -> bool {
        !self.shown.load(Ordering::Relaxed)
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Then there are two who can push it.
impl Clone for Id {
    fn clone(&self) -> Self {
        Self::chosen(self.show().to_vec())
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.show(), f)
    }
}

/// A UUID in 22 characters of base 62, in the order of the UUIDs.
pub(crate) fn compact(uuid: Uuid) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    /// Ten digits at a time fit 64 bits, whose divisions are many times as fast.
    const TEN: u128 = 62_u128.pow(10);
    let mut rest = uuid.as_u128();
    let mut text = vec![b'0'; 22];
    for part in text.rchunks_mut(10) {
        let mut digits = (rest % TEN) as u64;
        rest /= TEN;
        for place in part.iter_mut().rev() {
            *place = DIGITS[(digits % 62) as usize];
            digits /= 62;
        }
    }
    String::from_utf8(text).unwrap_or_default() // of ASCII: it is always
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_ids_keep_the_order_of_their_uuids() {
        let ordered =
            [0, 1, 61, 62, u128::from(u64::MAX), u128::MAX - 1, u128::MAX].map(|n| compact(Uuid::from_u128(n)));
        assert!(ordered.is_sorted(), "{ordered:?}");
        assert!(ordered.iter().all(|id| id.len() == 22));
    }

    #[test]
    fn whoever_has_seen_an_id_may_push_it_again() {
        assert!(!Id::chosen(vec![b'a']).is_fresh());
        type See = fn(&Id);
        let ways: [See; 3] = [|id| drop(id.show().to_vec()), |id| drop(id.clone()), |id| drop(format!("{id:?}"))];
        for see in ways {
            let id = Id::fresh();
            let bytes = id.bytes().to_vec();
            assert!(id.is_fresh(), "its push does not count");
            see(&id);
            assert!(!id.is_fresh());
            assert!(!id.clone().is_fresh());
            assert_eq!(id.into_bytes(), bytes);
        }
    }
}
