//! What the beats of a node say of a partition, and when the next one follows. Pure.

use std::time::Duration;

use crate::node::state::timers::LEADER_TTL;
use crate::partition::{Presence, Standing};

/// The park time in beats for a queue whose list is not covered: scripts publish every earlier head
/// for this long.
const BY_NOTICE: Duration = Duration::from_secs(2);

/// A queue is parked only if no message is due within this time.
pub(crate) const PARK_AHEAD: Duration = Duration::from_secs(2);

/// What a beat says of its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BeatMode {
    /// The pop covers its wake-up list.
    Listening,
    /// Something happens in it, and the pop does not cover its list: notices report new work.
    ByNotice,
    /// Nothing happens in it: the node is silent for this long.
    Parked(Duration),
}

impl BeatMode {
    pub(crate) fn presence(self, standing: Standing) -> Presence {
        let park = match self {
            Self::Listening => None,
            Self::ByNotice => Some(BY_NOTICE),
            Self::Parked(silence) => Some(silence),
        };
        Presence::Alive(standing, park)
    }

    /// The time between the beat that says so and the next: `usual`, unless the queue is parked.
    /// `part` (0 to 1) spreads the beats of parked queues.
    pub(crate) fn beat_interval(self, usual: Duration, part: f64) -> Duration {
        match self {
            Self::Listening | Self::ByNotice => usual,
            Self::Parked(silence) => silence.mul_f64(0.9 + 0.07 * part),
        }
    }

    /// How long the beat keeps a leader the leader.
    pub(crate) fn leader_ttl(self) -> Duration {
        match self {
            Self::Listening | Self::ByNotice => LEADER_TTL,
            Self::Parked(silence) => silence.max(LEADER_TTL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::state::timers::BEAT_INTERVAL;

    #[test]
    fn a_parked_queue_beats_before_its_silence_ends() {
        let silence = Duration::from_secs(10);
        let parked = BeatMode::Parked(silence);
        assert!(parked.beat_interval(BEAT_INTERVAL, 1.0) < silence);
        assert!(parked.beat_interval(BEAT_INTERVAL, 0.0) >= silence / 2);
        assert_eq!(parked.leader_ttl(), silence);
        let by_notice = BeatMode::ByNotice.beat_interval(BEAT_INTERVAL, 1.0);
        assert_eq!(by_notice, BEAT_INTERVAL);
    }
}
