//! The response with deliveries: its JSON, its share of memory, and whether it was sent.

use std::borrow::Cow;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dueq::{Applied, Delivery};
use http_body::{Frame, SizeHint};
use serde::Serialize;
use utoipa::ToSchema;

use crate::edge::accept::Outbox;
use crate::edge::body::{Bodies, Reserved};
use crate::edge::problem::{Code, Problem};
use crate::work::claims::{Unreceived, Unsent};

/// The body is sent in parts of this size. A router in another service can only see that the last
/// part is taken; by then most of the body is written.
const PART_BYTES: usize = 64 << 10;

/// What a claim was granted.
#[derive(Serialize, ToSchema)]
#[schema(as = Grant)]
pub(super) struct Grant {
    /// In the order in which they became due.
    deliveries: Vec<Shown<'static>>,
    /// Whether an earlier call with the same `claim_id` was granted them.
    repeated: bool,
    /// How many more the lease of a repeated claim holds. They follow when some are settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    more: Option<u64>,
}

/// The JSON of the granted deliveries, with its share of the body budget.
pub(super) struct Encoded {
    bytes: Bytes,
    memory: Reserved,
}

impl Encoded {
    /// `more` is given if an earlier call was granted the deliveries.
    pub(super) fn new(
        deliveries: Vec<Delivery>,
        more: Option<u64>,
        bodies: &Bodies,
    ) -> Result<Self, Problem> {
        let mut memory = bodies.none();
        let raw = deliveries.iter().map(|delivery| delivery.payload().len());
        memory.grow(raw.sum())?;
        let mut json = br#"{"deliveries":["#.to_vec();
        for (number, delivery) in deliveries.into_iter().enumerate() {
            if number > 0 {
                json.push(b',');
            }
            serde_json::to_writer(&mut json, &Shown::new(&delivery)).map_err(|error| {
                let detail = format!("a delivery is no JSON: {error}");
                Problem::new(Code::Internal, detail).applied(Applied::Unknown)
            })?;
        }
        json.extend_from_slice(format!(r#"],"repeated":{}"#, more.is_some()).as_bytes());
        if let Some(more) = more.filter(|more| *more > 0) {
            json.extend_from_slice(format!(r#","more":{more}"#).as_bytes());
        }
        json.push(b'}');
        // JSON escapes make a control character six times as long, and base64 adds a third. The
        // payloads themselves are already dropped.
        memory.grow(json.capacity().saturating_sub(memory.bytes()))?;
        Ok(Self {
            bytes: json.into(),
            memory,
        })
    }

    pub(super) fn into_response(
        self,
        unreceived: Option<Unreceived>,
        outbox: Option<Outbox>,
    ) -> Response {
        let unsent = Unsent {
            deliveries: unreceived,
            _memory: self.memory,
        };
        let body = Answer {
            bytes: self.bytes,
            unsent: Some(unsent),
            outbox,
        };
        ([(CONTENT_TYPE, "application/json")], Body::new(body)).into_response()
    }
}

/// The body of the response. If it is dropped before its end, its deliveries are released.
struct Answer {
    bytes: Bytes,
    unsent: Option<Unsent>,
    /// `None` in a router of another service: only the end of the body is visible there.
    outbox: Option<Outbox>,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if this.bytes.len() > PART_BYTES {
            let part = this.bytes.split_to(PART_BYTES);
            return Poll::Ready(Some(Ok(Frame::data(part))));
        }
        let Some(unsent) = this.unsent.take() else {
            return Poll::Ready(None);
        };
        match &this.outbox {
            Some(outbox) => outbox.put(|| unsent.sent()),
            None => unsent.sent(),
        }
        let bytes = std::mem::take(&mut this.bytes);
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.unsent.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}

/// A claimed message.
#[derive(Serialize, ToSchema)]
#[schema(as = Delivery)]
pub(super) struct Shown<'a> {
    /// Settles and extends this delivery. Pass it on as it is.
    handle: String,
    /// The id; bytes that are not UTF-8 are replaced.
    id: Cow<'a, str>,
    /// The same in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    id_base64: Option<String>,
    /// When it was due.
    due_ms: u64,
    /// When its lease ends.
    leased_until_ms: u64,
    /// Which attempt this is: the failures and crashes before it, and one.
    attempt: u32,
    /// Whether the message is dead if this attempt fails.
    last_attempt: bool,
    /// How often a handler failed.
    failures: u32,
    /// How often a lease ran out.
    crashes: u32,
    /// How often a handler snoozed it.
    snoozes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    /// When it expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at_ms: Option<u64>,
    /// The schedule that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    tick: Option<Tick>,
    /// The payload, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a str>,
    /// The payload in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

/// Which fire of which schedule made the message.
#[derive(Serialize, ToSchema)]
pub(super) struct Tick {
    schedule: String,
    /// The planned time.
    nominal_ms: u64,
}

impl<'a> Shown<'a> {
    pub(super) fn new(delivery: &'a Delivery) -> Self {
        let (id, payload) = (delivery.id_bytes(), delivery.payload());
        let text = std::str::from_utf8(payload).ok();
        let (attempt, crashes) = (delivery.attempt(), delivery.crashes());
        Self {
            handle: delivery.handle().to_string(),
            id: delivery.id(),
            id_base64: std::str::from_utf8(id)
                .is_err()
                .then(|| STANDARD.encode(id)),
            due_ms: delivery.due_ms(),
            leased_until_ms: delivery.deadline_ms(),
            attempt,
            last_attempt: delivery.is_last_attempt(),
            failures: attempt.saturating_sub(crashes).saturating_sub(1),
            crashes,
            snoozes: delivery.snoozes(),
            traceparent: delivery.trace_parent(),
            expires_at_ms: delivery.expires_at_ms(),
            tick: delivery.tick().map(|tick| Tick {
                schedule: tick.schedule,
                nominal_ms: tick.nominal_ms,
            }),
            payload: text,
            payload_base64: text.is_none().then(|| STANDARD.encode(payload)),
        }
    }
}
