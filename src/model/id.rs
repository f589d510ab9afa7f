//! The ids that the library makes.

use uuid::Uuid;

/// The digits of base 62, in the order of their bytes.
pub(crate) const DIGITS: &[u8; 62] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The id of a message that its producer did not name: a UUIDv7 in 22 characters.
pub(crate) fn new_id() -> Vec<u8> {
    compact(Uuid::now_v7()).into_bytes()
}

/// A UUID in 22 characters of base 62, in the order of the UUIDs.
pub(crate) fn compact(uuid: Uuid) -> String {
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
        let ordered = [0, 1, 61, 62, u128::from(u64::MAX), u128::MAX - 1, u128::MAX]
            .map(|n| compact(Uuid::from_u128(n)));
        assert!(ordered.is_sorted(), "{ordered:?}");
        assert!(ordered.iter().all(|id| id.len() == 22));
    }
}
