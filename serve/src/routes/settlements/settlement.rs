//! Parses one settlement or one extension.

use std::time::Duration;

use dueq::claims::DeliveryHandle;
use dueq::{Client, Due, Message};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::edge::body::{Bounded, parse_json};
use crate::edge::problem::{Code, Problem};
use crate::routes::messages::{NewMessage, Reader, unread};
use crate::routes::timing::Timing;

/// The most messages that follow a delivery.
const MAX_PUSHED: usize = 100;
/// The most characters of an item's text that a problem quotes.
const MAX_DETAIL: usize = 300;

/// The actions: each with the name of its schema, its fields beside `handle` and `action`, and a
/// text on what it does to the delivery.
pub(in crate::routes) const ACTIONS: [(Action, &str, &[&str], &str); 7] = [
    (
        Action::Ack,
        "AckSettlement",
        &["push"],
        "Done: the message is removed",
    ),
    (
        Action::Retry,
        "RetrySettlement",
        &["delay", "at", "within", "tz", "error"],
        "It failed, and is due again then; after its last attempt it is dead",
    ),
    (
        Action::Bury,
        "BurySettlement",
        &["error"],
        "It failed for good: it is dead",
    ),
    (
        Action::Release,
        "ReleaseSettlement",
        &[],
        "It is due now, and nothing is counted",
    ),
    (
        Action::Snooze,
        "SnoozeSettlement",
        &TIME,
        "It is due again then, and no failure is counted",
    ),
    (
        Action::Again,
        "AgainSettlement",
        &TIME,
        "It was done, and is due again then, with no attempts counted",
    ),
    (
        Action::Throttle,
        "ThrottleSettlement",
        &["for_ms"],
        "It is due now, and no message of the queue starts for `for_ms`",
    ),
];
const TIME: [&str; 4] = ["delay", "at", "within", "tz"];

/// What a settlement does to its delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::routes) enum Action {
    Ack,
    Retry,
    Bury,
    Release,
    Snooze,
    Again,
    Throttle,
}

/// What becomes of one delivery: `action` says which, and has its own fields.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewSettlement)]
pub(super) struct Settlement {
    /// The handle of the delivery.
    #[schema(max_length = 443)]
    handle: String,
    #[schema(value_type = String)]
    action: Action,
    /// So long from now: `30s`, `1h30m`.
    #[schema(format = "delay", min_length = 1)]
    delay: Option<String>,
    /// The same as a time: RFC 3339, Unix milliseconds as a string, or a local time with `tz`.
    #[schema(format = "moment", min_length = 1)]
    at: Option<String>,
    /// Business hours: a due time outside them moves to their next opening.
    #[schema(format = "business-hours", min_length = 1)]
    within: Option<String>,
    /// The time zone of `within`, and of times without one.
    #[schema(format = "time-zone", min_length = 1)]
    tz: Option<String>,
    /// Why; its first 1,024 bytes are kept.
    error: Option<String>,
    /// 1 ms to the queue's limit.
    #[schema(minimum = 1)]
    for_ms: Option<u64>,
    /// Up to 100 messages that are pushed in the same step. The caller needs the right to push.
    #[schema(value_type = Option<Vec<NewMessage>>, max_items = 100)]
    push: Option<Bounded<Box<RawValue>, MAX_PUSHED>>,
}

/// A parsed settlement, whose fields fit its action.
pub(super) struct Asked {
    pub(super) handle: DeliveryHandle,
    pub(super) step: Step,
}

pub(super) enum Step {
    Ack(Vec<Message>),
    Retry(Due, String),
    Bury(String),
    Release,
    Snooze(Due),
    Again(Due),
    Throttle(Duration),
}

impl Asked {
    /// Parses one item of a list.
    pub(super) async fn read(
        text: &str,
        may_push: bool,
        client: &Client,
        reader: &Reader,
    ) -> Result<Self, Problem> {
        let settlement: Settlement = parse(text)?;
        let handle = handle_of(&settlement.handle)?;
        settlement.refuse_idle()?;
        let step = match settlement.action {
            Action::Ack => Step::Ack(settlement.follow_ups(may_push, client, reader).await?),
            Action::Retry => {
                let mut due = settlement.due(client, reader).await?;
                // A retry takes a delay, so an absolute time is converted here: the library would
                // ask Redis for its clock once for each item.
                if let Due::AtMs(ms) = due {
                    due = Due::AfterMs(ms.saturating_sub(reader.now_ms(client).await?));
                }
                Step::Retry(due, settlement.error.unwrap_or_default())
            }
            Action::Bury => Step::Bury(settlement.error.unwrap_or_default()),
            Action::Release => Step::Release,
            Action::Snooze => Step::Snooze(settlement.due(client, reader).await?),
            Action::Again => Step::Again(settlement.due(client, reader).await?),
            Action::Throttle => match settlement.for_ms {
                Some(ms) if ms > 0 => Step::Throttle(Duration::from_millis(ms)),
                _ => return Err(wrong("for_ms: throttle needs at least 1 ms")),
            },
        };
        Ok(Self { handle, step })
    }
}

impl Settlement {
    /// Parses an item, and returns its handle. Fails if a field does not fit the action.
    #[cfg(any(test, feature = "harness"))]
    pub(super) fn check(text: &str) -> Result<(String, DeliveryHandle), Problem> {
        let settlement: Self = parse(text)?;
        let handle = handle_of(&settlement.handle)?;
        settlement.refuse_idle()?;
        Ok((settlement.handle, handle))
    }

    /// Refuses a field that its action would ignore.
    fn refuse_idle(&self) -> Result<(), Problem> {
        let given = [
            ("delay", self.delay.is_some()),
            ("at", self.at.is_some()),
            ("within", self.within.is_some()),
            ("tz", self.tz.is_some()),
            ("error", self.error.is_some()),
            ("for_ms", self.for_ms.is_some()),
            ("push", self.push.is_some()),
        ];
        let own = ACTIONS.iter().find(|(action, ..)| *action == self.action);
        let own = own.map_or(&[][..], |(_, _, fields, _)| fields);
        let mut given = given.into_iter().filter(|(_, is_given)| *is_given);
        match given.find(|(field, _)| !own.contains(field)) {
            None => Ok(()),
            Some((field, _)) => Err(wrong(&format!(
                "{field}: without effect for this action; leave it out"
            ))),
        }
    }

    fn timing(&self) -> Timing<'_> {
        Timing {
            delay: self.delay.as_deref(),
            at: self.at.as_deref(),
            within: self.within.as_deref(),
            tz: self.tz.as_deref(),
        }
    }

    async fn due(&self, client: &Client, reader: &Reader) -> Result<Due, Problem> {
        let timing = self.timing();
        if !timing.has_time() {
            return Err(wrong("no time is given: add delay, at or within"));
        }
        timing.due(client, reader).await
    }

    /// The messages that follow the delivery.
    async fn follow_ups(
        &self,
        may_push: bool,
        client: &Client,
        reader: &Reader,
    ) -> Result<Vec<Message>, Problem> {
        let texts = self.push.as_ref().map_or(&[][..], |push| &push.0);
        if !texts.is_empty() && !may_push {
            let detail = "push: it needs the right produce, which no role of yours has";
            return Err(Problem::new(Code::Forbidden, detail));
        }
        let mut messages = Vec::new();
        for text in texts {
            let text = text.get().as_bytes();
            let message = reader.read(client, text).await?;
            messages.push(message.map_err(|error| unread(text, &error))?);
        }
        Ok(messages)
    }
}

pub(super) fn handle_of(text: &str) -> Result<DeliveryHandle, Problem> {
    let handle = text.parse::<DeliveryHandle>();
    handle.map_err(|error| wrong(&format!("handle: {error}")))
}

/// Parses one item of a list from JSON.
pub(super) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    parse_json(text.as_bytes()).map_err(|problem| wrong(problem.reason().1))
}

fn wrong(detail: &str) -> Problem {
    let detail: String = detail.chars().take(MAX_DETAIL).collect();
    Problem::new(Code::InvalidInput, detail)
}

const DAY_MS: u64 = 86_400_000;

/// Which lease, and for how long.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewExtension)]
pub(super) struct Extension {
    /// The handle of the delivery.
    #[schema(max_length = 443)]
    handle: String,
    /// How long from now the lease lasts: up to a day.
    #[schema(minimum = 1, maximum = 86_400_000)]
    lease_ms: u64,
}

/// A parsed extension, whose values are in their ranges.
pub(super) struct Extended {
    pub(super) handle: DeliveryHandle,
    pub(super) lease: Duration,
}

impl Extension {
    pub(super) fn read(text: &str) -> Result<Extended, Problem> {
        let Self { handle, lease_ms } = parse(text)?;
        if !(1..=DAY_MS).contains(&lease_ms) {
            let detail =
                format!("lease_ms: {lease_ms} is out of range; a lease has 1 to {DAY_MS} ms");
            return Err(Problem::new(Code::InvalidInput, detail));
        }
        Ok(Extended {
            handle: handle_of(&handle)?,
            lease: Duration::from_millis(lease_ms),
        })
    }
}
