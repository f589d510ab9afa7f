//! What the beats of a node say about a partition, and when the next beat follows. Pure.

use std::time::Duration;

use crate::node::state::timers::LEADER_TTL;
use crate::partition::{Presence, Standing};

/// The parking time that beats announce if no pop covers the queue's list: for this long scripts
/// publish every earlier head.
const BY_NOTICE: Duration = Duration::from_secs(2);

/// A queue is parked only if no message is due within this time.
pub(crate) const PARK_AHEAD: Duration = Duration::from_secs(2);

/// What a beat says about the node's attention to its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BeatMode {
    /// The node's pop covers the partition's wake-up list.
    Listening,
    /// The partition is busy and the pop does not cover its list: notices report new work.
    ByNotice,
    /// Nothing happens in the partition: the node sends no beat for this long.
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

    /// The time from a beat with this mode to the next: `usual`, unless the queue is parked. `part`
    /// (0 to 1) spreads the beats of parked queues.
    pub(crate) fn beat_interval(self, usual: Duration, part: f64) -> Duration {
        match self {
            Self::Listening | Self::ByNotice => usual,
            Self::Parked(silence) => silence.mul_f64(0.9 + 0.07 * part),
        }
    }

    /// For how long a beat with this mode keeps a leader in office.
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
