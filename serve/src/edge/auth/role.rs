//! Roles, and the right that each group of routes requires.

use std::fmt;
use std::str::FromStr;

use axum::http::Method;
use serde::{Deserialize, Serialize};

/// What a caller may do. A caller can have several roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads counts, lists and messages without their payloads.
    Viewer,
    /// Has the rights of a viewer; pushes, cancels and reschedules messages.
    Producer,
    /// Has the rights of a viewer; reads payloads, claims and settles messages.
    Consumer,
    /// Has all rights: also pauses, sets limits, purges, requeues, changes schedules and deletes
    /// queues.
    Operator,
}

/// The right that a route requires of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    /// Reads counts, lists and messages without payloads.
    Read,
    /// Reads payloads.
    ReadPayload,
    /// Pushes messages, and changes waiting ones.
    Produce,
    /// Claims and settles.
    Consume,
    /// Changes whole queues.
    Operate,
}

impl Role {
    pub(crate) const ALL: [Self; 4] =
        [Self::Viewer, Self::Producer, Self::Consumer, Self::Operator];

    /// The role's name in the tokens file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Producer => "producer",
            Self::Consumer => "consumer",
            Self::Operator => "operator",
        }
    }

    pub(crate) fn has(self, right: Right) -> bool {
        match right {
            Right::Read => true,
            Right::ReadPayload => matches!(self, Self::Consumer | Self::Operator),
            Right::Produce => matches!(self, Self::Producer | Self::Operator),
            Right::Consume => matches!(self, Self::Consumer | Self::Operator),
            Right::Operate => self == Self::Operator,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.name() == text);
        found.ok_or_else(|| {
            format!("{text:?} is no role: write viewer, producer, consumer or operator")
        })
    }
}

impl Right {
    pub(crate) const ALL: [Self; 5] = [
        Self::Read,
        Self::ReadPayload,
        Self::Produce,
        Self::Consume,
        Self::Operate,
    ];

    /// The right's word in the OpenAPI document.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::ReadPayload => "read-payload",
            Self::Produce => "produce",
            Self::Consume => "consume",
            Self::Operate => "operate",
        }
    }

    pub(crate) fn is_read(self) -> bool {
        matches!(self, Self::Read | Self::ReadPayload)
    }

    /// Whether a route with this right may have this method: rights to read have safe methods, and
    /// only they have. So a route in the wrong group answers nothing, instead of answering callers
    /// without the right.
    pub(crate) fn fits(self, method: &Method) -> bool {
        self.is_read() == is_safe(method)
    }
}

/// Whether a request with this method changes nothing.
pub(crate) fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_has_exactly_its_rights() {
        let rights = |role: Role| Right::ALL.map(|right| role.has(right));
        assert_eq!(rights(Role::Viewer), [true, false, false, false, false]);
        assert_eq!(rights(Role::Producer), [true, false, true, false, false]);
        assert_eq!(rights(Role::Consumer), [true, true, false, true, false]);
        assert_eq!(rights(Role::Operator), [true; 5]);
    }
}
