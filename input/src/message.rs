//! Parses a message from a JSON object.

use std::borrow::Cow;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dueq::{Due, Message, OnConflict, OnExpire};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{Defaults, Error, Expiry, Last, Unique, When, expiring, time, unreadable};

/// The longest object: a payload of 16 MiB, each byte written as \u00xx.
pub const MAX_BYTES: usize = 100 * 1024 * 1024;

/// The fields of a message. Unknown names are refused: otherwise a message with the typing error
/// `dealy` would be due at once.
#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"payload\": \"...\"}"
)]
struct Fields<'a> {
    /// The payload: a string, or any other JSON value.
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    #[serde(borrow)]
    payload_base64: Option<Cow<'a, str>>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    delay: Option<Cow<'a, str>>,
    #[serde(borrow)]
    at: Option<Cow<'a, str>>,
    #[serde(borrow)]
    within: Option<Cow<'a, str>>,
    #[serde(borrow)]
    tz: Option<Cow<'a, str>>,
    spread_ms: Option<u64>,
    #[serde(borrow)]
    expires: Option<Cow<'a, str>>,
    #[serde(borrow)]
    expires_at: Option<Cow<'a, str>>,
    on_expire: Option<Fate>,
    cost: Option<u32>,
    max_attempts: Option<u32>,
    #[serde(borrow)]
    traceparent: Option<Cow<'a, str>>,
    on_conflict: Option<Conflict>,
    #[serde(borrow)]
    window: Option<Cow<'a, str>>,
    #[serde(borrow)]
    max_wait: Option<Cow<'a, str>>,
    reuse: Option<bool>,
    revive: Option<bool>,
    undo_ms: Option<u64>,
}

/// The words of `on_expire`.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Fate {
    Drop,
    Dead,
}

/// The words of `on_conflict`.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Conflict {
    Keep,
    Reschedule,
    Replace,
    Next,
}

/// Reads a message from a JSON object, such as a line of a file or the body of a request.
///
/// A message without the field `id` has no id.
///
/// # Errors
/// If the text is no JSON object, is longer than [`MAX_BYTES`], has an unknown field or one twice,
/// or has a wrong value. The library and the server check ranges at the push.
pub fn message(text: &[u8], defaults: &Defaults) -> Result<Message, Error> {
    defaults.message(text.trim_ascii())
}

/// Reads a message from an element of a JSON array.
///
/// # Errors
/// As for [`message`].
pub fn message_of(element: &RawValue, defaults: &Defaults) -> Result<Message, Error> {
    message(element.get().as_bytes(), defaults)
}

impl Defaults {
    fn message(&self, text: &[u8]) -> Result<Message, Error> {
        let holder = self.wording.holder();
        if text.len() > MAX_BYTES {
            return Err(Error::new(format!(
                "the {holder} has {} bytes; at most {MAX_BYTES} are possible",
                text.len()
            )));
        }
        // Serde would also read a list, and take its values for the fields in their order.
        if text.starts_with(b"[") {
            return Err(Error::new(format!(
                "the {holder} is a list; write an object such as {{\"payload\": \"...\"}}"
            )));
        }
        let fields: Fields<'_> =
            serde_json::from_slice(text).map_err(|error| unreadable(text, &error))?;
        let payload = match (fields.payload, &fields.payload_base64) {
            (Some(payload), None) => bytes_of(payload)?,
            (None, Some(payload)) => STANDARD.decode(payload.as_bytes()).map_err(|error| {
                let error = error.to_string();
                let reason = error.trim_end_matches('.');
                Error::new(format!("not base64 with padding: {reason}")).of("payload_base64")
            })?,
            (None, None) => {
                return Err(Error::new(format!(
                    "the {holder} has neither payload nor payload_base64; add one"
                )));
            }
            _ => {
                return Err(Error::new(format!(
                    "the {holder} has both payload and payload_base64; remove one"
                )));
            }
        };
        let own = When::read(
            fields.delay.as_deref(),
            fields.at.as_deref(),
            fields.within.as_deref(),
            fields.tz.as_deref(),
            self.wording,
        )?;
        let last = self.last(&fields, &own)?;
        let (due, unique) = (self.due(&fields, own)?, self.unique(&fields)?);
        let on_conflict = fields
            .on_conflict
            .map_or(self.on_conflict, OnConflict::from);
        let mut message = unique.apply(Message::new(payload).on_conflict(on_conflict));
        if let Some(id) = &fields.id {
            message = message.id(id.as_bytes());
        }
        if let Some(due) = due {
            message = message.due(due);
        }
        let spread = fields.spread_ms.map(Duration::from_millis);
        if let Some(window) = spread.or(self.spread) {
            message = message.spread(window);
        }
        let fate = fields.on_expire.map(OnExpire::from);
        message = expiring(message, last, fate.or(self.expiry.on_expire));
        if let Some(cost) = fields.cost.or(self.cost) {
            message = message.cost(cost);
        }
        if let Some(max_attempts) = fields.max_attempts.or(self.max_attempts) {
            message = message.max_attempts(max_attempts);
        }
        let traceparent = fields.traceparent.as_deref();
        if let Some(traceparent) = traceparent.or(self.traceparent.as_deref()) {
            message = message.trace_parent(traceparent);
        }
        Ok(message)
    }

    /// The due time. The defaults apply to fields that an object leaves out. `delay` and `at`
    /// belong together: if an object has one of them, the defaults of both are ignored.
    fn due(&self, fields: &Fields<'_>, own: When) -> Result<Option<Due>, Error> {
        let own_time = own.delay.is_some() || own.at.is_some();
        let (own_within, own_zone) = (own.within.is_some(), own.tz.is_some());
        let mut timing = self.timing.clone();
        if own_time || own_within || own_zone {
            let (delay, at) = match own_time {
                true => (own.delay, own.at),
                false => (self.when.delay, self.when.at.clone()),
            };
            let when = When {
                delay,
                at,
                within: own.within.or_else(|| self.when.within.clone()),
                tz: own.tz.or_else(|| self.when.tz.clone()),
            };
            let now = (self.now)();
            if own_zone {
                let of_defaults = self.expiry.expires_at.as_deref();
                let of_defaults = of_defaults.filter(|_| fields.expires.is_none());
                let expires_at = fields.expires_at.as_deref().or(of_defaults);
                when.refuse_idle_zone(expires_at, now, self.wording)?;
            }
            if own_time || own_zone {
                timing.due = when.due(now, self.wording)?;
            }
            if own_within || own_zone {
                timing.hours = when.hours(self.wording)?;
            }
        }
        if timing.hours.is_none() {
            return Ok(timing.due);
        }
        let now_ms = (self.server_now_ms)().map_err(Error::new)?;
        timing.resolve_at(now_ms)
    }

    /// When the message expires. `expires` and `expires_at` belong together: if an object has one
    /// of them, the defaults of both are ignored.
    fn last(&self, fields: &Fields<'_>, own: &When) -> Result<Option<Last>, Error> {
        let zone = own.tz.as_ref().or(self.when.tz.as_ref());
        let at = |expires_at: Option<&str>| {
            let expiry = Expiry {
                expires_at: expires_at.map(str::to_owned),
                ..Expiry::default()
            };
            expiry.last(zone, (self.now)(), self.wording)
        };
        let last = match (&fields.expires, &fields.expires_at) {
            (Some(text), None) => {
                let time = time::period(text).map_err(|error| error.of("expires"))?;
                Some(Last::After(time))
            }
            (None, Some(text)) => at(Some(text))?,
            // The default moment, in the zone of the object.
            (None, None) => match self.expiry.expires_at.as_deref() {
                Some(text) if own.tz.is_some() => at(Some(text))?,
                _ => self.last,
            },
            _ => {
                return Err(Error::new(format!(
                    "the {} has both expires and expires_at; remove one",
                    self.wording.holder()
                )));
            }
        };
        if fields.on_expire.is_some() && last.is_none() {
            return Err(Error::new(
                "on_expire has no effect without expires or expires_at; add one",
            ));
        }
        Ok(last)
    }

    /// The options about other pushes of the id. The defaults apply to fields that an object leaves
    /// out.
    fn unique(&self, fields: &Fields<'_>) -> Result<Unique, Error> {
        let time = |name: &'static str, text: &Option<Cow<'_, str>>| {
            let time = text.as_deref().map(time::delay).transpose();
            time.map_err(|error| error.of(name))
        };
        Ok(Unique {
            window: time("window", &fields.window)?.or(self.unique.window),
            max_wait: time("max_wait", &fields.max_wait)?.or(self.unique.max_wait),
            reuse: fields.reuse.unwrap_or(self.unique.reuse),
            revive: fields.revive.unwrap_or(self.unique.revive),
            undo_ms: fields.undo_ms,
        })
    }
}

impl From<Fate> for OnExpire {
    fn from(fate: Fate) -> Self {
        match fate {
            Fate::Drop => Self::Drop,
            Fate::Dead => Self::Dead,
        }
    }
}

impl From<Conflict> for OnConflict {
    fn from(conflict: Conflict) -> Self {
        match conflict {
            Conflict::Keep => Self::Keep,
            Conflict::Reschedule => Self::Reschedule,
            Conflict::Replace => Self::Replace,
            Conflict::Next => Self::Next,
        }
    }
}

/// The deepest nesting of arrays and objects in a payload. Most JSON parsers refuse deeper ones.
pub const MAX_DEPTH: usize = 128;

/// The payload's bytes: the characters of a string, or the text of any other JSON value.
pub(super) fn bytes_of(payload: &RawValue) -> Result<Vec<u8>, Error> {
    let json = payload.get();
    if json.starts_with('"') {
        return serde_json::from_str(json)
            .map(String::into_bytes)
            .map_err(|error| unreadable(json.as_bytes(), &error).of("payload"));
    }
    let depth = depth(json.as_bytes());
    if depth > MAX_DEPTH {
        let reason = format!(
            "arrays and objects nest {depth} deep; at most {MAX_DEPTH} are possible: write the payload as a string"
        );
        return Err(Error::new(reason).of("payload"));
    }
    Ok(json.as_bytes().to_vec())
}

/// The depth of nested arrays and objects in valid JSON.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut is_escaped) = (0_usize, 0, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests;
