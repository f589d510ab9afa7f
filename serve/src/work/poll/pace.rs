//! How often the poller asks and scans.

use std::time::Duration;

/// How often a watched queue is asked for its counts.
pub(super) const WATCHED_PERIOD: Duration = Duration::from_secs(1);
/// How often other queues are asked, unless there are too many.
pub(super) const PERIOD: Duration = Duration::from_secs(2);
/// The least time between two questions: at most 100 a second, for all queues together.
pub(super) const ASK_PAUSE: Duration = Duration::from_millis(10);
/// The most questions in flight.
pub(super) const MAX_ASKED: usize = 8;
/// Of four questions in a row, at most three go to watched queues, so that other queues are asked
/// too.
pub(super) const WATCHED_IN_A_ROW: u32 = 3;
/// How long a queue is watched after a viewer looked at it.
pub(super) const LOOK_LASTS: Duration = Duration::from_secs(10);
/// How long the poller goes on at this pace after the last look of a viewer.
pub(super) const AWAKE: Duration = Duration::from_secs(60);
/// How often each queue is asked without viewers, and the least time between two questions then: only
/// to know later why a queue was late. A thousand queues are asked once a minute.
pub(super) const ASLEEP_PERIOD: Duration = Duration::from_secs(15);
pub(super) const ASLEEP_ASK_PAUSE: Duration = Duration::from_millis(50);
/// The pause between two scans without viewers: new queues announce themselves.
pub(super) const ASLEEP_PASS_PAUSE: Duration = Duration::from_secs(300);
/// The pause between two steps of a scan, unless the scan is quick.
pub(super) const SCAN_PAUSE: Duration = Duration::from_millis(250);
/// The pause between two scans.
pub(super) const PASS_PAUSE: Duration = Duration::from_secs(5);
/// The pause after a failure of Redis; it doubles with each further one.
pub(super) const MIN_BACKOFF: Duration = Duration::from_millis(100);
pub(super) const MAX_BACKOFF: Duration = Duration::from_secs(2);
/// After this number of failures in a row, all of Redis counts as unreachable, not only some of its
/// servers.
pub(super) const AWAY_FAILURES: u32 = 3;
/// The most queues that are polled.
pub(super) const MAX_QUEUES: usize = 10_000;
