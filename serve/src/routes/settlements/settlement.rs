//! One settlement, as it is written.

use std::time::Duration;

use dueq::{Client, DeliveryHandle, Due, Message};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::body::Bounded;
use crate::problem::{Code, Problem};
use crate::routes::messages::{NewMessage, Reader, unread};
use crate::routes::timing::Timing;

/// How many messages can follow a delivery.
const MAX_PUSHED: usize = 100;
/// How many characters of a text are in a detail.
const MAX_DETAIL: usize = 300;

/// What becomes of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    Ack,
    Retry,
    Bury,
    Release,
    Snooze,
    Again,
    Throttle,
}

/// What becomes of one delivery.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewSettlement)]
pub(super) struct Settlement {
    /// The handle of the delivery.
    #[schema(max_length = 443)]
    handle: String,
    /// `ack`: done, the message is removed. `retry`: it failed, and is due again at the time of `delay`
    /// or `at`; after its last attempt it is dead. `bury`: it is dead. `release`: it is due now, and
    /// nothing is counted. `snooze`: it is due again, and no failure is counted. `again`: it was done
    /// and is due again, with no attempts counted. `throttle`: as `release`, and no message of the
    /// queue starts for `for_ms`.
    action: Action,
    /// For `retry`, `snooze` and `again`: so long from now: `30s`, `1h30m`.
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
    /// For `retry` and `bury`: why; its first 1,024 bytes are kept.
    error: Option<String>,
    /// For `throttle`: 1 ms to the queue's limit.
    #[schema(minimum = 1)]
    for_ms: Option<u64>,
    /// For `ack`: up to 100 messages that are pushed in the same step. The caller needs the right to
    /// push.
    #[schema(value_type = Option<Vec<NewMessage>>, max_items = 100)]
    push: Option<Bounded<Box<RawValue>, MAX_PUSHED>>,
}

/// A settlement whose fields fit its action.
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
    /// Reads one item of a list.
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
                // A retry takes a delay: the library would ask Redis for its clock for each item.
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
    /// The handle of an item whose fields fit its action.
    #[cfg(any(test, feature = "harness"))]
    pub(super) fn check(text: &str) -> Result<(String, DeliveryHandle), Problem> {
        let settlement: Self = parse(text)?;
        let handle = handle_of(&settlement.handle)?;
        settlement.refuse_idle()?;
        Ok((settlement.handle, handle))
    }

    /// Refuses a field that would have no effect.
    fn refuse_idle(&self) -> Result<(), Problem> {
        let (takes_time, takes_error) = match self.action {
            Action::Retry => (true, true),
            Action::Snooze | Action::Again => (true, false),
            Action::Bury => (false, true),
            Action::Ack | Action::Release | Action::Throttle => (false, false),
        };
        let timing = self.timing();
        let idle = [
            (
                "delay, at, within and tz",
                !takes_time && (timing.has_time() || timing.tz.is_some()),
            ),
            ("error", !takes_error && self.error.is_some()),
            (
                "for_ms",
                self.action != Action::Throttle && self.for_ms.is_some(),
            ),
            ("push", self.action != Action::Ack && self.push.is_some()),
        ];
        match idle.into_iter().find(|(_, is_idle)| *is_idle) {
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

    /// The messages that follow.
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

/// Reads an item of a list.
pub(super) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    // serde would take the items of an array for the fields.
    if text.starts_with('[') {
        return Err(wrong("an item is an array; it must be an object"));
    }
    serde_json::from_str(text).map_err(|error| wrong(&error.to_string()))
}

fn wrong(detail: &str) -> Problem {
    let detail: String = detail.chars().take(MAX_DETAIL).collect();
    Problem::new(Code::InvalidInput, detail)
}
