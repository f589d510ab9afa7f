//! The sessions that ended before their time: each instance keeps its own list, in memory.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::auth::session::Signed;

/// How many are remembered. Beyond that, the one that expires first is forgotten.
const MAX_REMEMBERED: usize = 10_000;

/// The signatures of ended sessions, and when they expire.
#[derive(Default)]
pub(crate) struct EndedSessions(Mutex<HashMap<[u8; 32], u64>>);

impl EndedSessions {
    /// Ends a session whose signature was verified.
    pub(crate) fn add(&self, session: &Signed, now: SystemTime) {
        let mut ended = self.lock();
        if ended.len() >= MAX_REMEMBERED {
            ended.retain(|_, expires_s| !super::session::has_expired(*expires_s, now));
        }
        if ended.len() >= MAX_REMEMBERED {
            let first = ended.iter().min_by_key(|(_, expires_s)| **expires_s);
            if let Some(first) = first.map(|(signature, _)| *signature) {
                ended.remove(&first);
            }
        }
        ended.insert(session.signature, session.expires_s);
    }

    pub(crate) fn contains(&self, session: &Signed) -> bool {
        self.lock().contains_key(&session.signature)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn remembered_sessions_are_bounded() {
        let (ended, now) = (EndedSessions::default(), SystemTime::UNIX_EPOCH);
        let session = |number: usize| {
            let mut signature = [0; 32];
            signature[..8].copy_from_slice(&number.to_be_bytes());
            Signed {
                signature,
                expires_s: 60 + number as u64,
            }
        };
        for number in 0..=MAX_REMEMBERED {
            ended.add(&session(number), now);
        }
        assert!(!ended.contains(&session(0)) && ended.contains(&session(1)));
        assert!(ended.contains(&session(MAX_REMEMBERED)));
        // Expired ones make room.
        ended.add(&session(0), now + Duration::from_secs(100));
        assert_eq!(ended.lock().len(), MAX_REMEMBERED - 40 + 1);
    }
}
