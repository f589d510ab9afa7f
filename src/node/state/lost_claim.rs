//! A claim whose reply was lost. Its token finds the messages that it granted. Pure.
//!
//! The node reads the lease of the token before it claims again. If the lease holds nothing, the
//! next claim has the same token: if Redis executes the lost claim late, only one of the two grants
//! messages.

use std::time::Instant;

use crate::error::{Applied, Error};
use crate::model::lease_token::LeaseToken;
#[cfg(feature = "harness")]
use crate::server::harness;

/// A claim whose token the node drew.
#[derive(Clone, Copy)]
pub(crate) struct OwnClaim {
    pub(crate) token: LeaseToken,
    /// When the first claim with this token was sent: a lease of the token began then or later.
    pub(crate) sent: Instant,
    /// The shortest lease among the claims with this token.
    pub(crate) lease_ms: u64,
}

/// The claim of a partition that has no reply, if there is one.
#[derive(Default)]
pub(crate) struct LostClaim {
    claim: Option<OwnClaim>,
    /// Whether the claim's lease was read and held nothing.
    was_empty: bool,
}

impl LostClaim {
    /// Called when a claim ended: it granted this number of messages, or failed. The token of a
    /// lost claim is kept until a claim with it grants messages: until then, Redis may still
    /// execute the lost one.
    pub(crate) fn ended(&mut self, claim: Option<OwnClaim>, result: Result<usize, &Error>) {
        #[cfg(feature = "harness")]
        if harness::forgets_lost_claims() {
            return;
        }
        let Some(claim) = claim else {
            return;
        };
        match result {
            Ok(1..) => self.forget(),
            Err(error) if may_have_granted(error) => {
                self.claim = Some(claim);
                self.was_empty = false;
            }
            _ => {}
        }
    }

    /// The next claim of the partition, with this lease. Its token names `node` if handlers get the
    /// messages, but not for a pull, whose caller may outlive the node.
    pub(crate) fn next(&self, lease_ms: u64, node: Option<&str>, now: Instant) -> OwnClaim {
        match self.claim {
            Some(claim) => OwnClaim {
                lease_ms: lease_ms.min(claim.lease_ms),
                ..claim
            },
            None => OwnClaim {
                token: LeaseToken::of_node(node),
                sent: now,
                lease_ms,
            },
        }
    }

    /// Whether the lease of a claim is to be read before the next claim.
    pub(crate) fn must_look_up(&self) -> bool {
        self.claim.is_some() && !self.was_empty
    }

    pub(crate) fn claim(&self) -> Option<OwnClaim> {
        self.claim
    }

    /// Records that the lease of the claim was read and held nothing.
    pub(crate) fn was_empty(&mut self) {
        self.was_empty = true;
    }

    /// Forgets the token, which must not be used again.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

/// Whether a claim that ended with this error has granted messages or may have.
pub(crate) fn may_have_granted(error: &Error) -> bool {
    error.is_held() || error.was_applied() != Applied::No
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn lost_token_is_used_until_a_claim_with_it_grants() {
        let error = |applied| Error::new(ErrorKind::Unavailable, applied, "away");
        let (unknown, refused) = (error(Applied::Unknown), error(Applied::No));
        let mut lost = LostClaim::default();
        let first = lost.next(30, None, Instant::now());
        lost.ended(Some(first), Err(&unknown));
        let found_nothing = |lost: &mut LostClaim| {
            assert!(lost.must_look_up());
            lost.was_empty();
        };
        found_nothing(&mut lost);
        for (lease_ms, result) in [
            (30, Err(&unknown)),
            (30, Err(&refused)),
            (30, Ok(0)),
            (40, Err(&unknown)),
            (20, Err(&unknown)),
        ] {
            let claim = lost.next(lease_ms, None, Instant::now());
            assert_eq!(claim.token, first.token, "{lease_ms} ms, {result:?}");
            lost.ended(Some(claim), result);
            if result.is_err_and(may_have_granted) {
                found_nothing(&mut lost);
            }
        }
        // A claim with a caller's own token says nothing about the lost one.
        lost.ended(None, Ok(1));
        let last = lost.next(40, None, Instant::now());
        assert_eq!((last.token, last.lease_ms), (first.token, 20));
        lost.ended(Some(last), Ok(1));
        assert_ne!(lost.next(40, None, Instant::now()).token, first.token);
    }
}
