//! A schedule as a queue stores it.

use std::fmt;

use crate::error::Error;
use crate::model::schedule::{Fire, Schedule, option_words};

/// A schedule as a queue stores it: its state and what it has counted.
///
/// All fires from `since` up to `last` are counted once:
/// `made + missed + overlapped + paused`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleInfo {
    /// The name of the schedule.
    pub name: String,
    /// The name of the set that declares the schedule.
    pub set: String,
    /// Whether the schedule fires.
    pub state: ScheduleState,
    /// The nominal time of the next fire, in Unix milliseconds; `None` unless the schedule is
    /// active.
    pub next_ms: Option<u64>,
    /// The nominal time of the first fire that counts as paused, in Unix milliseconds; `None` if
    /// the schedule is not paused, or is a cron without a listed fire.
    pub first_paused_ms: Option<u64>,
    /// The nominal time of the last fire that was counted, in Unix milliseconds; an earlier time if
    /// none was.
    pub last_ms: u64,
    /// The first fire that the counts include, in Unix milliseconds. A change of the schedule
    /// resets the counts.
    pub since_ms: u64,
    /// Fires that made a tick.
    pub made: u64,
    /// Fires that were dropped because they were [missed](crate::schedules::MissedPolicy).
    pub missed: u64,
    /// Fires that made no tick because an earlier tick still waited or ran: see
    /// [`OverlapPolicy`](crate::schedules::OverlapPolicy).
    pub overlapped: u64,
    /// Fires that made no tick because the schedule was paused.
    pub paused: u64,
    /// Ticks made by hand: by [`trigger`](crate::schedules::ScheduleHandle::trigger),
    /// [`backfill`](crate::schedules::ScheduleHandle::backfill) and
    /// [`fire_now`](crate::schedules::ScheduleSet::fire_now).
    pub triggered: u64,
    /// A number that grows with each change of the schedule.
    pub version: u64,
    /// The schedule itself. In pages of a list its payload is empty.
    pub schedule: Schedule,
    /// The rule and policies as the scripts store them: words such as `every=900000` and
    /// `overlap=skip`.
    pub spec: String,
    /// The pattern of a cron; empty for `every`.
    pub pattern: String,
    /// The time zone of a cron.
    pub zone: Option<String>,
    /// The version of the time zone rules by which the fires of a cron were listed, such as `2026a`.
    pub tzdata: Option<String>,
    /// How many of the next fires of a cron Redis has in its list. A schedule whose list is empty
    /// fires again after the next refill: see [`refill_schedules`](crate::Queue::refill_schedules).
    pub listed: u64,
    /// The last listed fire of a cron, in Unix milliseconds.
    pub listed_until_ms: Option<u64>,
    /// Whether a cron has no fires after the listed ones.
    pub is_list_final: bool,
    /// The listed fires in Unix milliseconds. Empty in pages of a list.
    pub listed_ms: Vec<u64>,
}

/// Whether a schedule fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ScheduleState {
    /// The schedule is active.
    Active,
    /// An operator paused it.
    Paused,
    /// The schedule is a cron whose list of fires is empty: it waits for a
    /// [refill](crate::Queue::refill_schedules).
    Dry,
    /// The schedule has no more fires, or has made as many ticks as its limit.
    Ended,
}

impl ScheduleState {
    /// The state as the protocol names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Dry => "dry",
            Self::Ended => "ended",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let all = [Self::Active, Self::Paused, Self::Dry, Self::Ended];
        all.into_iter().find(|state| state.as_str() == text)
    }
}

impl fmt::Display for ScheduleState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A page of the schedules of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchedulePage {
    /// The schedules, in the order of their sets and names.
    pub schedules: Vec<ScheduleInfo>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<ScheduleCursor>,
}

/// Where the next page of schedules begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleCursor(pub(crate) Vec<u8>);

impl ScheduleCursor {
    /// The bytes of the cursor, for instance to pass it to the next call of a program. They contain
    /// the last set and name of the page.
    ///
    /// ```
    /// use dueq::schedules::ScheduleCursor;
    ///
    /// let cursor = ScheduleCursor::from_bytes("billing nightly");
    /// assert_eq!(cursor.as_bytes(), b"billing nightly");
    /// ```
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The cursor with these bytes. With bytes that no cursor has, the page is the first one.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }
}

impl ScheduleInfo {
    /// The payload of the schedule's ticks. Empty in pages of a list.
    pub fn payload(&self) -> &[u8] {
        &self.schedule.payload
    }

    /// The options of the schedule's ticks, as the scripts store them: words such as
    /// `max_attempts=5` and `expires=+60000`.
    pub fn options(&self) -> String {
        option_words(&self.schedule)
    }

    /// The next `count` fires, as the queue makes them: a cron's listed ones, and after them
    /// computed ones. Empty if the schedule is paused or has ended. If workers are behind, or a
    /// list was dry, the first fires are in the past: the policy for
    /// [missed](crate::schedules::MissedPolicy) fires decides which of them make ticks.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if fires of a cron must be computed, and the
    /// program has not the cargo feature `schedules`.
    pub fn next_fires(&self, count: usize) -> Result<Vec<Fire>, Error> {
        if matches!(self.state, ScheduleState::Paused | ScheduleState::Ended) {
            return Ok(Vec::new());
        }
        let left = self
            .schedule
            .limit
            .map(|limit| limit.saturating_sub(self.made));
        let left = usize::try_from(left.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let count = count.min(left);
        let is_over = |ms: &u64| self.schedule.end_ms.is_none_or(|end| *ms <= end);
        // For `every`, and in pages of a list, only the next fire is known.
        let listed = match self.next_ms.filter(|_| self.listed_ms.is_empty()) {
            Some(next) => vec![next],
            None => self.listed_ms.clone(),
        };
        let last = listed.last().copied();
        let listed = listed.into_iter().filter(is_over).take(count);
        let mut fires: Vec<_> = listed.map(|ms| self.schedule.fire_at(ms)).collect();
        let is_known = self.is_list_final && self.listed_ms.len() as u64 == self.listed;
        if fires.len() < count && !is_known {
            let after = last.unwrap_or(self.last_ms.max(self.listed_until_ms.unwrap_or(0)));
            let endless = Schedule {
                limit: None,
                ..self.schedule.clone()
            };
            let missing = count - fires.len();
            fires.extend(endless.fires(after)?.take(missing));
        }
        Ok(fires)
    }
}
