//! The verbs that name messages.

use serde::{Deserialize, Serialize};

/// The verbs that name messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    Push,
    Ack,
    Again,
    Retry,
    Release,
    Bury,
    Snooze,
    Throttle,
    Extend,
    Cancel,
    Reschedule,
    RunNow,
    Requeue,
    Get,
}

impl Verb {
    pub fn name(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Ack => "ack",
            Self::Again => "again",
            Self::Retry => "retry",
            Self::Release => "release",
            Self::Bury => "bury",
            Self::Snooze => "snooze",
            Self::Throttle => "throttle",
            Self::Extend => "extend",
            Self::Cancel => "cancel",
            Self::Reschedule => "reschedule",
            Self::RunNow => "run_now",
            Self::Requeue => "requeue",
            Self::Get => "get",
        }
    }
}
