//! Runs claims with one `claim_id` one after the other: the second returns what the first was
//! granted. If they ran at the same time, each could be granted messages of another partition of
//! the queue.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dueq::claims::LeaseToken;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::edge::auth::Principal;

/// The running claims, by their tokens. There are at most as many as claims may wait.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<LeaseToken, Line>>);

#[derive(Default)]
struct Line {
    turn: Arc<tokio::sync::Mutex<()>>,
    places: usize,
}

/// The place of one claim in the line of its token.
pub(crate) struct Place {
    turns: Arc<Turns>,
    token: LeaseToken,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Turns {
    pub(crate) fn join(self: &Arc<Self>, token: LeaseToken) -> Place {
        let mut lines = self.lock();
        let line = lines.entry(token).or_default();
        line.places += 1;
        Place {
            turns: Arc::clone(self),
            token,
            turn: Arc::clone(&line.turn),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseToken, Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Waits until the earlier claims with the token have ended. The turn lasts until the guard is
    /// dropped.
    pub(crate) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = self.turns.lock();
        if let Some(line) = lines.get_mut(&self.token) {
            line.places -= 1;
            if line.places == 0 {
                lines.remove(&self.token);
            }
        }
    }
}

/// Derives the token of a claim from its caller, queue and `claim_id`.
pub(crate) fn lease_token(
    key: &[u8; 32],
    caller: &Principal,
    queue: &str,
    claim_id: &str,
) -> LeaseToken {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("an HMAC takes a key of any length");
    mac.update(b"dueq claim 1\0");
    for part in [caller.kind(), caller.name(), queue, claim_id] {
        // The length goes first, so that two different lists of parts never give the same bytes.
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

    #[tokio::test]
    async fn claims_with_one_token_run_one_after_the_other() {
        let turns = Arc::<Turns>::default();
        let [token, other] = [1, 2].map(|byte| LeaseToken::from_bytes([byte; 16]));
        let [first, second, third] = [token; 3].map(|token| turns.join(token));
        let turn = first.turn().await;
        let has_turn = tokio::select! {
            biased;
            _ = second.turn() => true,
            () = std::future::ready(()) => false,
        };
        assert!(!has_turn);
        // A claim with another token does not wait.
        let _ = turns.join(other).turn().await;
        drop((turn, third));
        let _ = second.turn().await;
        drop((first, second));
        assert!(turns.lock().is_empty());
    }
}

#[cfg(test)]
mod token_tests {
    use super::*;
    use crate::edge::auth::Via;

    fn token(name: &str, via: Via, queue: &str, claim_id: &str) -> LeaseToken {
        let caller = Principal::operator(name, via);
        lease_token(&[7; 32], &caller, queue, claim_id)
    }

    #[test]
    fn claim_token_depends_on_each_part_and_on_the_key() {
        let own = token("ci", Via::Token, "orders", "1");
        assert_eq!(own, token("ci", Via::Token, "orders", "1"));
        // A caller with a session of the token counts as the same caller.
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
