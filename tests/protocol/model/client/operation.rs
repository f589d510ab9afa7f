//! The calls of the random client: verbs and their arguments.

use crate::model::message::Due;
use crate::model::schedules::fields::{Declaration, Page, Refill};
use crate::model::world::{Now, REPEAT_MS};
use crate::reply::{Text, words};
use crate::state::lease_name;

#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) id: Text,
    pub(crate) due: Due,
    pub(crate) payload: Text,
    pub(crate) on_conflict: Option<&'static str>,
    pub(crate) max_attempts: Option<u64>,
    pub(crate) trace_parent: Option<String>,
    pub(crate) expires: Option<Due>,
    pub(crate) on_expire: Option<&'static str>,
    pub(crate) cost: Option<u64>,
    pub(crate) window: Option<u64>,
    pub(crate) reuse: bool,
    pub(crate) max_wait: Option<u64>,
    pub(crate) revive: bool,
    pub(crate) undo: Option<u64>,
}

impl Item {
    /// Whether the item belongs in an upsert.
    pub(crate) fn moves(&self) -> bool {
        matches!(self.on_conflict, Some("reschedule" | "replace" | "next"))
    }

    pub(crate) fn drop_options(&mut self) {
        (self.on_conflict, self.max_attempts, self.trace_parent) = (None, None, None);
        (self.expires, self.on_expire, self.cost) = (None, None, None);
        self.drop_new_options();
    }

    /// Drops the options that release 0.1 and its rights do not have.
    pub(crate) fn drop_new_options(&mut self) {
        (self.window, self.reuse) = (None, false);
        (self.max_wait, self.revive, self.undo) = (None, false, None);
        if self.on_conflict == Some("next") {
            self.on_conflict = Some("replace");
        }
    }

    fn words(&self) -> Vec<Text> {
        words![&self.id, self.due.word(), &self.payload, self.options()]
    }

    pub(crate) fn options(&self) -> String {
        let mut words = Vec::new();
        words.extend(self.window.map(|ms| format!("window={ms}")));
        words.extend(self.max_wait.map(|ms| format!("max_wait={ms}")));
        words.extend(self.reuse.then(|| "reuse".to_owned()));
        words.extend(self.revive.then(|| "revive".to_owned()));
        words.extend(self.undo.map(|ms| format!("undo={ms}")));
        words.extend(self.cost.map(|cost| format!("cost={cost}")));
        words.extend(self.on_expire.map(|choice| format!("on_expire={choice}")));
        let expires = self.expires.as_ref().map(|expires| expires.word().text());
        words.extend(expires.map(|expires| format!("expires={expires}")));
        let parent = self.trace_parent.as_ref();
        words.extend(parent.map(|parent| format!("traceparent={parent}")));
        let attempts = self.max_attempts;
        words.extend(attempts.map(|limit| format!("max_attempts={limit}")));
        let conflict = self.on_conflict;
        words.extend(conflict.map(|choice| format!("on_conflict={choice}")));
        words.join(" ")
    }
}

/// The argument `attempt`, which identifies the tries of one push call.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// The time of the first try + 10 s, or a little less.
    pub(crate) until_us: u64,
    pub(crate) nonce: String,
}

impl Attempt {
    pub(crate) fn word(&self) -> String {
        match (self.until_us / 1_000, self.until_us % 1_000) {
            (ms, 0) => format!("{ms} {}", self.nonce),
            (ms, fraction) => format!("{ms}.{fraction:03} {}", self.nonce),
        }
    }

    /// The name of this call in `recent`.
    pub(crate) fn call(&self) -> Text {
        format!("\u{3}{}", self.word()).into()
    }

    pub(crate) fn item(&self, id: &Text) -> Text {
        Text([format!("\u{3}{} ", self.word()).as_bytes(), &id.0].concat())
    }

    pub(crate) fn is_too_late(&self, now: Now) -> bool {
        self.until_us / 1_000 <= now.floor() || self.until_us / 1_000 > now.floor() + REPEAT_MS
    }
}

/// An id and the token of its claim.
pub(crate) type Hold = (Text, Text);

/// What a beat says about its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Stay,
    /// The node is silent for up to this many ms.
    Park(u64),
    Leave,
}

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Push {
        upsert: bool,
        attempt: Option<Attempt>,
        items: Vec<Item>,
    },
    Promote(usize),
    Claim {
        count: usize,
        token: Text,
        lease: u64,
    },
    Ack(Vec<Hold>),
    AckPush {
        hold: Hold,
        items: Vec<Item>,
    },
    Again(Vec<(Hold, Due)>),
    Retry(Vec<(Hold, u64, Text)>),
    Release(Vec<Hold>),
    Bury(Vec<(Hold, Text)>),
    Snooze(Vec<(Hold, Due)>),
    Throttle(Vec<(Hold, u64)>),
    /// A throttle without a delivery, which only closes the queue.
    Close(u64),
    Extend(Vec<(Hold, u64)>),
    Reap(usize),
    EndLeases(Vec<Hold>),
    Cancel {
        dead: bool,
        since: Option<u64>,
        ids: Vec<Text>,
    },
    Reschedule(Vec<(Text, Due, Option<u64>)>),
    RunNow(Vec<Text>),
    RequeueIds(Vec<Text>),
    RequeueOldest {
        limit: usize,
        before: Option<u64>,
    },
    Purge {
        state: &'static str,
        limit: usize,
    },
    /// A pause for some ms, or without an end.
    Pause(Option<u64>),
    Resume,
    Beat {
        node: Text,
        presence: Presence,
    },
    Configure(Vec<(&'static str, Text)>),
    Peek {
        state: &'static str,
        cursor: Text,
        limit: usize,
    },
    Get(Text),
    Stats,
    /// The times, each later than the one before.
    Dues(Vec<u64>),
    /// The token of the claim to read.
    Held(Text),
    Remap {
        /// The form of the call: `change`, `close` or `forward`.
        form: &'static str,
        expected: u64,
        epoch: u64,
        /// The map to store, without its epoch.
        tags: &'static str,
    },
    Verify {
        repairs: bool,
    },
    Audit {
        part: &'static str,
        repairs: bool,
    },
    Schedule(Declaration),
    Amend {
        /// The change: `pause`, `resume` or `remove`.
        change: &'static str,
        names: Vec<String>,
    },
    Trigger {
        name: String,
        /// The times of past fires to make ticks for; `None`: one tick now.
        times: Option<Vec<u64>>,
    },
    Refill(Vec<Refill>),
    Schedules(Page),
}

impl Operation {
    pub(crate) fn verb(&self) -> &'static str {
        match self {
            Self::Push { upsert: false, .. } => "push",
            Self::Push { upsert: true, .. } => "upsert",
            Self::Promote(_) => "promote",
            Self::Claim { .. } => "claim",
            Self::Ack(_) => "ack",
            Self::AckPush { .. } => "ack_push",
            Self::Again(_) => "again",
            Self::Retry(_) => "retry",
            Self::Release(_) => "release",
            Self::Bury(_) => "bury",
            Self::Extend(_) => "extend",
            Self::Snooze(_) => "snooze",
            Self::Throttle(_) | Self::Close(_) => "throttle",
            Self::Reap(_) | Self::EndLeases(_) => "reap",
            Self::Cancel { .. } => "cancel",
            Self::Reschedule(_) => "reschedule",
            Self::RunNow(_) => "run_now",
            Self::RequeueIds(_) | Self::RequeueOldest { .. } => "requeue",
            Self::Purge { .. } => "purge",
            Self::Pause(_) => "pause",
            Self::Resume => "resume",
            Self::Beat { .. } => "beat",
            Self::Configure(_) => "configure",
            Self::Peek { .. } => "peek",
            Self::Get(_) => "get",
            Self::Stats => "stats",
            Self::Dues(_) => "dues",
            Self::Held(_) => "held",
            Self::Remap { .. } => "remap",
            Self::Verify { .. } => "verify",
            Self::Audit { .. } => "audit",
            Self::Schedule(_) => "schedule",
            Self::Amend { .. } => "amend",
            Self::Trigger { .. } => "trigger",
            Self::Refill(_) => "refill",
            Self::Schedules(_) => "schedules",
        }
    }

    /// Whether the call is a read, which adds no wake-up tokens.
    pub(crate) fn is_quiet(&self) -> bool {
        let reads = matches!(self, Self::Peek { .. } | Self::Get(_) | Self::Stats);
        let reads = reads || matches!(self, Self::Dues(_) | Self::Held(_));
        let reads = reads || matches!(self, Self::Verify { repairs: false });
        let reads = reads || matches!(self, Self::Audit { repairs: false, .. });
        reads || matches!(self, Self::Remap { .. } | Self::Schedules(_))
    }

    /// The arguments of the call, without the time.
    pub(crate) fn words(&self) -> Vec<Text> {
        let number = |value: &Option<u64>| value.map_or_else(Text::default, Text::from);
        let flat = |holds: &[Hold]| {
            holds
                .iter()
                .flat_map(|(id, token)| words![id, token])
                .collect()
        };
        match self {
            Self::Push { attempt, items, .. } => {
                let attempt = attempt.as_ref().map(Attempt::word).unwrap_or_default();
                [attempt.into()]
                    .into_iter()
                    .chain(items.iter().flat_map(Item::words))
                    .collect()
            }
            Self::AckPush {
                hold: (id, token),
                items,
            } => {
                let delivery = Text([&token.0[..], &id.0].concat());
                [delivery]
                    .into_iter()
                    .chain(items.iter().flat_map(Item::words))
                    .collect()
            }
            Self::Promote(limit) => words![*limit as u64],
            Self::Claim {
                count,
                token,
                lease,
            } => words![*count as u64, token, *lease],
            Self::Ack(holds) => {
                let claim = |holds: &[Hold]| {
                    let ids = holds.iter().map(|(id, _)| id.clone());
                    words![&holds[0].1, holds.len() as u64]
                        .into_iter()
                        .chain(ids)
                        .collect::<Vec<_>>()
                };
                holds
                    .chunk_by(|one, other| one.1 == other.1)
                    .flat_map(claim)
                    .collect()
            }
            Self::Release(holds) => flat(holds),
            Self::Again(items) | Self::Snooze(items) => items
                .iter()
                .flat_map(|((id, token), due)| words![id, token, due.word()])
                .collect(),
            Self::Retry(items) => items
                .iter()
                .flat_map(|((id, token), after, error)| words![id, token, *after, error])
                .collect(),
            Self::Bury(items) => items
                .iter()
                .flat_map(|((id, token), reason)| words![id, token, reason])
                .collect(),
            Self::Close(wait_ms) => words!["close", *wait_ms],
            Self::Extend(items) | Self::Throttle(items) => items
                .iter()
                .flat_map(|((id, token), lease)| words![id, token, *lease])
                .collect(),
            Self::Reap(limit) => words![*limit as u64],
            Self::EndLeases(holds) => {
                let named = |(id, token): &Hold| words![id, lease_name(token)];
                [words!["ids"], holds.iter().flat_map(named).collect()].concat()
            }
            Self::Cancel { dead, since, ids } => {
                let words = [
                    dead.then(|| "1".to_owned()),
                    since.map(|since| format!("since={since}")),
                ];
                let words = words.into_iter().flatten().collect::<Vec<_>>().join(" ");
                [words.into()]
                    .into_iter()
                    .chain(ids.iter().cloned())
                    .collect()
            }
            Self::Reschedule(items) => items
                .iter()
                .flat_map(|(id, due, expected)| words![id, due.word(), number(expected)])
                .collect(),
            Self::RunNow(ids) => ids.clone(),
            Self::RequeueIds(ids) => ["ids".into()]
                .into_iter()
                .chain(ids.iter().cloned())
                .collect(),
            Self::RequeueOldest { limit, before } => {
                words!["oldest", *limit as u64, number(before)]
            }
            Self::Purge { state, limit } => words![*state, *limit as u64],
            Self::Pause(Some(ms)) => words![*ms],
            Self::Pause(None) | Self::Resume | Self::Stats => Vec::new(),
            Self::Beat { node, presence } => match presence {
                Presence::Stay => words![node, "stay"],
                Presence::Park(ms) => words![node, "stay", *ms],
                Presence::Leave => words![node, "leave"],
            },
            Self::Configure(pairs) => pairs
                .iter()
                .flat_map(|(name, value)| words![*name, value])
                .collect(),
            Self::Peek {
                state,
                cursor,
                limit,
            } => words![*state, cursor, *limit as u64],
            Self::Get(id) => words![id],
            Self::Dues(times) => times.iter().copied().map(Text::from).collect(),
            Self::Held(token) => words![token],
            Self::Verify { repairs } => words![if *repairs { "1" } else { "" }],
            Self::Audit { part, repairs } => {
                words![*part, 0, 1_000, if *repairs { "1" } else { "" }]
            }
            Self::Remap {
                form,
                expected,
                epoch,
                tags,
            } => {
                let map = format!("{epoch}|{tags}");
                match *form {
                    "forward" => words!["forward", map],
                    form => words![form, *expected, map],
                }
            }
            Self::Schedule(_)
            | Self::Amend { .. }
            | Self::Trigger { .. }
            | Self::Refill(_)
            | Self::Schedules(_) => self.schedule_words(),
        }
    }
}
