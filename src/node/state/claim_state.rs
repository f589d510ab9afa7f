//! Whether a node wants to claim messages of a queue now.

use std::time::{Duration, Instant};

/// For how long after it was sent a claim in flight keeps handlers free for the next claim.
const SOON: Duration = Duration::from_millis(100);

/// Why the node wants to claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A wake-up token or a hint came, or a pause is over.
    Woken,
    /// The last claim used every handler that it asked for, and left messages behind.
    MoreLeft,
    /// A pull came. If the pull ends before its claim, no token has to be given back.
    Pulled,
}

/// The claims of one partition: at most one is in flight.
#[derive(Default)]
pub(crate) struct ClaimState {
    wanted: Option<Wanted>,
    /// When the claim in flight was sent.
    in_flight: Option<Instant>,
    /// Whether the last claim left messages behind.
    has_backlog: bool,
    /// How many claims in a row granted nothing although messages were left.
    empty: u32,
    /// Failed claims since the last that succeeded.
    failures: u32,
    /// The end of the pause after a failed claim.
    not_before: Option<Instant>,
}

impl ClaimState {
    /// Wants a claim as soon as there is a handler. During the pause after a failed claim it
    /// returns the end of the pause instead: the caller must want the claim again then.
    pub(crate) fn want(&mut self, reason: Wanted, now: Instant) -> Option<Instant> {
        let pause = self.not_before.filter(|end| now < *end);
        if pause.is_none() && self.wanted != Some(Wanted::Woken) {
            self.wanted = Some(reason);
        }
        pause
    }

    /// The reason for a wanted claim, if the claim may be sent now.
    pub(crate) fn wanted(&self) -> Option<Wanted> {
        self.wanted.filter(|_| self.in_flight.is_none())
    }

    /// Whether a claim is wanted, now or after the one in flight.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.is_some()
    }

    /// Whether no claim is wanted, although one may be sent now.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        self.in_flight.is_none()
            && self.wanted.is_none()
            && self.not_before.is_none_or(|end| now >= end)
    }

    /// Whether a claim is in flight or wanted, or the last one failed.
    pub(crate) fn is_active(&self) -> bool {
        self.in_flight.is_some() || self.wanted.is_some() || self.failures > 0
    }

    /// The end of the pause after a failed claim, unless it is over.
    pub(crate) fn paused_until(&self, now: Instant) -> Option<Instant> {
        self.not_before.filter(|end| now < *end)
    }

    pub(crate) fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Whether the last claim left messages behind.
    pub(crate) fn has_backlog(&self) -> bool {
        self.has_backlog
    }

    /// Whether no claim may be sent now, but one will follow soon: after the one in flight or a
    /// short pause. False if the claim in flight takes long, because its server may be frozen.
    pub(crate) fn will_continue(&self, now: Instant) -> bool {
        let is_late = |sent| now.saturating_duration_since(sent) > SOON;
        self.wanted().is_none()
            && (self.has_backlog || self.wanted.is_some())
            && !self.in_flight.is_some_and(is_late)
    }

    pub(crate) fn sent(&mut self, now: Instant) {
        self.in_flight = Some(now);
        self.wanted = None;
    }

    /// Called after a claim that succeeded. Returns how many claims had failed in a row before it.
    pub(crate) fn succeeded(&mut self, has_backlog: bool) -> u32 {
        self.in_flight = None;
        self.has_backlog = has_backlog;
        self.not_before = None;
        std::mem::take(&mut self.failures)
    }

    /// Called after a claim that granted nothing to an attending node. Returns whether the next
    /// claim may be sent at once. A claim disposes of at most 250 expired messages; after every
    /// 16th in a row the claims pause, in case they make no progress.
    pub(crate) fn granted_nothing(&mut self, is_left: bool) -> bool {
        self.empty = if is_left {
            self.empty.wrapping_add(1)
        } else {
            0
        };
        !self.empty.is_multiple_of(16)
    }

    /// Called after a claim that failed. Returns how many have failed in a row.
    pub(crate) fn failed(&mut self) -> u32 {
        self.in_flight = None;
        self.has_backlog = false;
        self.failures = self.failures.saturating_add(1);
        self.failures
    }

    /// Forbids claims until this instant.
    pub(crate) fn pause_until(&mut self, end: Instant) {
        self.wanted = None;
        self.not_before = Some(end);
    }

    /// Called when no consumer needs messages now. Returns why a claim was wanted. It forgets
    /// earlier failures, because the queue may be parked; the pause after them stays.
    pub(crate) fn rest(&mut self) -> Option<Wanted> {
        self.failures = 0;
        self.has_backlog = false;
        self.wanted.take()
    }

    /// Stops wanting claims.
    pub(crate) fn stop(&mut self) {
        self.has_backlog = false;
        self.wanted = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_claim_wanted_during_another_follows_it() {
        let now = Instant::now();
        let mut claim = ClaimState::default();
        assert!(claim.is_idle(now) && !claim.is_active());
        claim.sent(now);
        claim.want(Wanted::Woken, now);
        assert_eq!(claim.wanted(), None, "one claim at a time");
        assert!(claim.will_continue(now));
        assert_eq!(claim.succeeded(true), 0);
        claim.want(Wanted::MoreLeft, now);
        assert_eq!(
            claim.wanted(),
            Some(Wanted::Woken),
            "the more urgent reason stays"
        );
        assert!(!claim.will_continue(now), "it may be sent");
        claim.sent(now);
        assert!(claim.will_continue(now), "the claim before left messages");
        assert!(!claim.will_continue(now + SOON + MS), "it takes long");
        claim.succeeded(false);
        assert!(!claim.will_continue(now));
    }

    #[test]
    fn empty_claims_pause_after_every_16th() {
        let mut claim = ClaimState::default();
        let at_once = (0..64).filter(|_| claim.granted_nothing(true)).count();
        assert_eq!(at_once, 60);
        assert!(!claim.granted_nothing(false));
        assert!(claim.granted_nothing(true));
    }

    #[test]
    fn a_failed_claim_pauses_further_ones() {
        let now = Instant::now();
        let mut claim = ClaimState::default();
        claim.sent(now);
        assert_eq!(claim.failed(), 1);
        claim.pause_until(now + MS);
        claim.want(Wanted::Woken, now);
        assert_eq!(claim.wanted(), None);
        assert!(claim.is_active() && !claim.is_idle(now));
        claim.want(Wanted::Woken, now + MS);
        assert_eq!(claim.wanted(), Some(Wanted::Woken));
        claim.sent(now);
        assert_eq!(claim.succeeded(false), 1);
    }
}
