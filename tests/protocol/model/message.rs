//! A message in the model: its options and its state.

use crate::model::client::operation::Item;
use crate::model::schedules::schedule::Schedule;
use crate::model::world::{CENTURY_MS, Now};
use crate::reply::Text;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Scheduled {
        due: u64,
    },
    Ready {
        due: u64,
    },
    Leased {
        token: Text,
        due: u64,
        deadline: u64,
        own: bool,
        /// Whether the message had a window at the time of the claim.
        window: bool,
        /// When the claim was; 0 if release 0.1 made it.
        since: u64,
    },
    Dead {
        at: u64,
    },
}

impl Place {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Scheduled { .. } => "scheduled",
            Self::Ready { .. } => "ready",
            Self::Leased { .. } => "leased",
            Self::Dead { .. } => "dead",
        }
    }

    /// The time that `get` and `peek` show. It orders the messages of a state.
    pub(crate) fn time(&self) -> u64 {
        match self {
            Self::Scheduled { due } | Self::Ready { due } => *due,
            Self::Leased { deadline, .. } => *deadline,
            Self::Dead { at } => *at,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) payload: Text,
    /// Whether the message is a tick of a schedule.
    pub(crate) is_tick: bool,
    pub(crate) max_attempts: Option<u64>,
    pub(crate) trace_parent: Option<String>,
    pub(crate) expires: Option<Due>,
    pub(crate) on_expire: Option<&'static str>,
    pub(crate) cost: Option<u64>,
    pub(crate) window: Option<u64>,
    /// The words that scripts added, in their order: `due_by`, `expires_by` and `snoozes`.
    pub(crate) added: Vec<(&'static str, u64)>,
    pub(crate) failures: u64,
    pub(crate) crashes: u64,
    pub(crate) error: Text,
    /// The original due time, from the second crash on, when `place` has the end of the back-off.
    pub(crate) original: Option<u64>,
    pub(crate) place: Place,
    /// The next message, which waits for the end of the delivery.
    pub(crate) next: Option<Box<Message>>,
}

impl Message {
    /// A new message with the payload and the options of this item.
    pub(crate) fn new(item: &Item, due: u64, due_by: Option<u64>) -> Self {
        Self {
            payload: item.payload.clone(),
            is_tick: false,
            max_attempts: item.max_attempts,
            trace_parent: item.trace_parent.clone(),
            expires: item.expires.clone(),
            on_expire: item.on_expire,
            cost: item.cost,
            window: item.window,
            added: due_by.map(|ms| ("due_by", ms)).into_iter().collect(),
            failures: 0,
            crashes: 0,
            error: Text::default(),
            original: None,
            place: Place::Scheduled { due },
            next: None,
        }
    }

    /// Makes a message of a schedule: a tick, or the schedule's timer.
    pub(crate) fn of(schedule: &Schedule, is_tick: bool, due: u64) -> Self {
        let is_set = |is_tick: bool| is_tick.then_some(());
        Self {
            payload: schedule.payload.clone(),
            is_tick,
            max_attempts: is_set(is_tick).and(schedule.max_attempts),
            trace_parent: None,
            expires: is_set(is_tick).and(schedule.expires.map(Due::In)),
            on_expire: is_set(is_tick).and(schedule.on_expire),
            cost: None,
            window: None,
            added: Vec::new(),
            failures: 0,
            crashes: 0,
            error: Text::default(),
            original: None,
            place: Place::Scheduled { due },
            next: None,
        }
    }

    /// The value of a word that scripts added.
    pub(crate) fn word(&self, name: &str) -> Option<u64> {
        let found = self.added.iter().find(|(word, _)| *word == name);
        found.map(|(_, value)| *value)
    }

    pub(crate) fn drop_word(&mut self, word: &str) {
        self.added.retain(|(name, _)| *name != word);
    }

    /// The latest due time that a push can set while a debounce lasts. The debounce ends when the
    /// message fails, crashes, is snoozed or dies.
    pub(crate) fn due_by(&self) -> Option<u64> {
        self.word("due_by").filter(|_| !self.has_run())
    }

    pub(crate) fn has_run(&self) -> bool {
        let is_dead = matches!(self.place, Place::Dead { .. });
        self.failures + self.crashes > 0 || is_dead || self.word("snoozes").is_some()
    }

    /// The entry in attrs of a next message.
    pub(crate) fn kept(&self) -> Text {
        let head = format!("{} {}\n", self.place.time(), self.options());
        Text([head.as_bytes(), &self.payload.0].concat())
    }

    pub(crate) fn options(&self) -> String {
        let tick = self.is_tick.then(|| "tick".to_owned());
        let limit = self
            .max_attempts
            .map(|limit| format!("max_attempts={limit}"));
        let parent = self
            .trace_parent
            .as_ref()
            .map(|parent| format!("traceparent={parent}"));
        let expires = self.expires.as_ref().map(|expires| expires.word().text());
        let expires = expires.map(|expires| format!("expires={expires}"));
        let on_expire = self.on_expire.map(|choice| format!("on_expire={choice}"));
        let cost = self.cost.map(|cost| format!("cost={cost}"));
        let window = self.window.map(|ms| format!("window={ms}"));
        let added = self
            .added
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        [tick, limit, parent, expires, on_expire, cost, window]
            .into_iter()
            .flatten()
            .chain(added)
            .collect::<Vec<_>>()
            .join(" ")
    }

    pub(crate) fn attributes(&self) -> Option<Text> {
        if self.failures + self.crashes == 0
            && self.original.is_none()
            && self.options().is_empty()
            && self.error.0.is_empty()
        {
            return None;
        }
        let original = self.original.map_or("-".to_owned(), |due| due.to_string());
        let mut text = format!(
            "{} {} {original} {}\n",
            self.failures,
            self.crashes,
            self.options()
        )
        .into_bytes();
        text.extend(&self.error.0);
        Some(Text(text))
    }
}

/// A due time in the form of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    At(u64),
    In(u64),
    Nonsense(&'static str),
}

impl Due {
    pub(crate) fn word(&self) -> Text {
        match self {
            Self::At(due) => (*due).into(),
            Self::In(delay) => format!("+{delay}").into(),
            Self::Nonsense(text) => (*text).into(),
        }
    }

    /// The time in ms. `None` if it is invalid or more than 100 years ahead.
    pub(crate) fn at(&self, now: Now) -> Option<u64> {
        let due = match self {
            Self::At(due) => *due,
            Self::In(delay) => now.ceil() + delay,
            Self::Nonsense(_) => return None,
        };
        (due <= now.ceil() + CENTURY_MS).then_some(due)
    }
}
