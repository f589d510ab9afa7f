//! The lease token of a claim that can be repeated: made of the signing key, the caller, the queue
//! and `claim_id`. So every instance with the key makes the same one, and nobody else can.

use dueq::LeaseToken;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::auth::Principal;

/// The token of this caller's claim.
pub(crate) fn lease_token(
    key: &[u8; 32],
    caller: &Principal,
    queue: &str,
    claim_id: &str,
) -> LeaseToken {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("an HMAC takes a key of any length");
    mac.update(b"dueq claim 1\0");
    for part in [caller.kind(), caller.name(), queue, claim_id] {
        // With its length, so that no two lists of parts are the same bytes.
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part.as_bytes());
    }
    let digest = mac.finalize().into_bytes();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    LeaseToken::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Via;

    fn token(name: &str, via: Via, queue: &str, claim_id: &str) -> LeaseToken {
        let caller = Principal::operator(name, via);
        lease_token(&[7; 32], &caller, queue, claim_id)
    }

    #[test]
    fn token_depends_on_each_part_and_on_the_key() {
        let own = token("ci", Via::Token, "orders", "1");
        assert_eq!(own, token("ci", Via::Token, "orders", "1"));
        // The session of a token is the same caller.
        assert_eq!(own, token("ci", Via::Session, "orders", "1"));
        for other in [
            token("ci", Via::Proxy, "orders", "1"),
            token("c", Via::Token, "iorders", "1"),
            token("ci", Via::Token, "order", "s1"),
            token("ci", Via::Token, "orders1", ""),
            token("ci", Via::Token, "orders", "2"),
            token("cd", Via::Token, "orders", "1"),
        ] {
            assert_ne!(own, other);
        }
        let caller = Principal::operator("ci", Via::Token);
        assert_ne!(own, lease_token(&[8; 32], &caller, "orders", "1"));
    }
}
