//! Decides when the lists of fires of a queue with schedules are refilled. Pure.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::model::schedule::RefillOutcome;
use crate::partition::Lists;

/// The pause after a refill that failed or refilled no list.
const PAUSE: Duration = Duration::from_secs(5);
/// How often the leader looks for lists that were made by older time zone rules.
const ALL_INTERVAL: Duration = Duration::from_secs(3_600);

/// What a node knows about the lists of fires of one queue.
#[derive(Debug, Default)]
pub(crate) struct RefillState {
    is_leader: bool,
    is_in_flight: bool,
    not_before: Option<Instant>,
    /// When the leader last looked at all lists.
    looked_at_all: Option<Instant>,
    /// The schedules of which an empty list was logged.
    warned: HashSet<String>,
    /// Whether the log already says that this program cannot compute crons.
    pub(crate) warned_of_feature: bool,
}

/// The reply to a refill.
pub(crate) struct RefillReply {
    pub(crate) lists: Lists,
    pub(crate) warned: HashSet<String>,
    pub(crate) result: Result<RefillOutcome, Error>,
}

impl RefillState {
    /// Which lists to refill after a beat that reports `low` short lists; `None` in the reply means
    /// a queue without schedules.
    pub(crate) fn wanted(
        &mut self,
        is_leader: bool,
        low_lists: Option<u64>,
        now: Instant,
    ) -> Option<Lists> {
        if !is_leader {
            self.is_leader = false;
        }
        let low_lists = low_lists.filter(|_| is_leader)?;
        if !std::mem::replace(&mut self.is_leader, true) {
            self.looked_at_all = None;
        }
        if self.is_in_flight || self.not_before.is_some_and(|at| at > now) {
            return None;
        }
        let looked = self.looked_at_all;
        if looked.is_none_or(|at| now.duration_since(at) >= ALL_INTERVAL) {
            Some(Lists::All)
        } else {
            (low_lists > 0).then_some(Lists::Low)
        }
    }

    pub(crate) fn started(&mut self) -> HashSet<String> {
        self.is_in_flight = true;
        std::mem::take(&mut self.warned)
    }

    pub(crate) fn ended(&mut self, reply: &mut RefillReply, now: Instant) {
        self.is_in_flight = false;
        self.warned = std::mem::take(&mut reply.warned);
        let is_idle = match &reply.result {
            Ok(refilled) => refilled.lists == 0 || !refilled.failed.is_empty(),
            Err(_) => true,
        };
        self.not_before = is_idle.then(|| now + PAUSE);
        if reply.result.is_ok() && reply.lists == Lists::All {
            self.looked_at_all = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(state: &mut RefillState, lists: Lists, refilled: u64, now: Instant) {
        let result = Ok(RefillOutcome {
            lists: refilled,
            ..RefillOutcome::default()
        });
        let warned = state.started();
        let mut reply = RefillReply {
            lists,
            warned,
            result,
        };
        state.ended(&mut reply, now);
    }

    #[test]
    fn the_leader_checks_all_lists_first_and_then_hourly() {
        let (mut state, now) = (RefillState::default(), Instant::now());
        assert_eq!(state.wanted(false, Some(9), now), None);
        assert_eq!(state.wanted(true, None, now), None, "no schedules");
        assert_eq!(state.wanted(true, Some(0), now), Some(Lists::All));
        ended(&mut state, Lists::All, 1, now);
        assert_eq!(state.wanted(true, Some(0), now), None);
        assert_eq!(state.wanted(true, Some(1), now), Some(Lists::Low));
        let later = now + ALL_INTERVAL;
        assert_eq!(state.wanted(true, Some(0), later), Some(Lists::All));
        assert_eq!(state.wanted(false, Some(0), now), None);
        assert_eq!(state.wanted(true, Some(0), now), Some(Lists::All));
    }

    #[test]
    fn one_refill_at_a_time_and_a_pause_after_a_failure() {
        let (mut state, now) = (RefillState::default(), Instant::now());
        assert_eq!(state.wanted(true, Some(1), now), Some(Lists::All));
        let warned = state.started();
        assert_eq!(state.wanted(true, Some(1), now), None, "in flight");
        let result = Err(Error::invalid("x"));
        let lists = Lists::All;
        state.ended(
            &mut RefillReply {
                lists,
                warned,
                result,
            },
            now,
        );
        assert_eq!(state.wanted(true, Some(1), now), None, "it failed");
        assert_eq!(state.wanted(true, Some(1), now + PAUSE), Some(Lists::All));
        ended(&mut state, Lists::All, 0, now);
        assert_eq!(state.wanted(true, Some(1), now), None, "it did nothing");
        assert_eq!(state.wanted(true, Some(1), now + PAUSE), Some(Lists::Low));
    }
}
