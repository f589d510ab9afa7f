//! The calls about schedules and their arguments.

use crate::model::operation::Operation;
use crate::model::schedule::{Schedule, listed};
use crate::reply::{Text, words};

/// A call of `schedule`.
#[derive(Clone, Debug)]
pub(crate) struct Declaration {
    pub(crate) set: String,
    pub(crate) revision: Option<u64>,
    pub(crate) prune: bool,
    pub(crate) now: bool,
    pub(crate) dry_run: bool,
    pub(crate) schedules: Vec<Schedule>,
}

/// The fires that a client adds to the list of a cron.
#[derive(Clone, Debug)]
pub(crate) struct Refill {
    pub(crate) name: String,
    pub(crate) version: u64,
    pub(crate) last_listed: u64,
    pub(crate) rules: String,
    pub(crate) is_final: bool,
    pub(crate) fires: Vec<u64>,
}

/// What `schedules` shows.
#[derive(Clone, Debug)]
pub(crate) enum Page {
    One(String),
    /// Behind this set and name; at most so many; only lists that need fires.
    After(Option<(String, String)>, usize, bool),
}

impl Operation {
    /// ARGV of a call about schedules, without the time.
    pub(super) fn schedule_words(&self) -> Vec<Text> {
        match self {
            Self::Schedule(call) => {
                let words = [
                    (call.dry_run, "dry_run"),
                    (call.now, "now"),
                    (call.prune, "prune"),
                ];
                let words = words.iter().filter(|(given, _)| *given);
                let words: Vec<&str> = words.map(|(_, word)| *word).collect();
                let revision = call.revision.map_or_else(Text::default, Text::from);
                let head = words![&call.set, revision, words.join(" ")];
                let schedules = call.schedules.iter().flat_map(Schedule::words);
                head.into_iter().chain(schedules).collect()
            }
            Self::Amend { change, names } => {
                let names = names.iter().map(Text::from);
                [(*change).into()].into_iter().chain(names).collect()
            }
            Self::Trigger { name, times } => {
                let times = match times {
                    None => words!["now"],
                    Some(times) => times.iter().copied().map(Text::from).collect(),
                };
                [name.into()].into_iter().chain(times).collect()
            }
            Self::Refill(items) => {
                let words = |item: &Refill| {
                    let fires = listed(&item.rules, item.is_final, &item.fires);
                    words![&item.name, item.version, item.last_listed, fires]
                };
                items.iter().flat_map(words).collect()
            }
            Self::Schedules(Page::One(name)) => words![name],
            Self::Schedules(Page::After(after, limit, low)) => {
                let cursor = after.as_ref().map(|(set, name)| format!("{set} {name}"));
                let low = if *low { "low" } else { "" };
                words![cursor.unwrap_or_default(), *limit as u64, low]
            }
            _ => Vec::new(),
        }
    }
}
