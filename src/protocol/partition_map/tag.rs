//! The tag of a partition: its name within the queue.

use std::fmt;

/// The largest number in a tag.
pub(crate) const MAX_TAG: u32 = 999_999_999;
/// The tag of a partition within its queue. It decides the slot of the partition's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Tag {
    /// The partition with index 0, whose keys are those of a queue without a map: `-`.
    Home,
    Numbered(u32),
    /// The home in the other store, while a queue moves: `@-`.
    FarHome,
    /// A partition in the other store: `@17`.
    FarNumbered(u32),
}

impl Tag {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Some(far) = text.strip_prefix('@') {
            return Self::parse(far)
                .filter(|tag| !tag.is_far())
                .map(Self::flipped);
        }
        if text == "-" {
            return Some(Self::Home);
        }
        let number: u32 = text.parse().ok().filter(|number| *number <= MAX_TAG)?;
        // Only one spelling of a number is a tag: no sign, no leading zeros.
        (number.to_string() == text).then_some(Self::Numbered(number))
    }

    /// Whether the partition is in the other store.
    pub(crate) fn is_far(self) -> bool {
        matches!(self, Self::FarHome | Self::FarNumbered(_))
    }

    /// Whether it is the partition with index 0 of its store.
    pub(crate) fn is_home(self) -> bool {
        matches!(self, Self::Home | Self::FarHome)
    }

    /// This partition as the other store names it.
    pub(crate) fn flipped(self) -> Self {
        match self {
            Self::Home => Self::FarHome,
            Self::Numbered(number) => Self::FarNumbered(number),
            Self::FarHome => Self::Home,
            Self::FarNumbered(number) => Self::Numbered(number),
        }
    }

    /// This partition as the store of the partition `from` names it.
    pub(crate) fn seen_from(self, from: Self) -> Self {
        if from.is_far() { self.flipped() } else { self }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Home => f.write_str("-"),
            Self::Numbered(number) => number.fmt(f),
            Self::FarHome => f.write_str("@-"),
            Self::FarNumbered(number) => write!(f, "@{number}"),
        }
    }
}
