//! The answer with deliveries: its bytes, its memory, and whether it was sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use dueq::{Applied, Delivery};
use http_body::{Frame, SizeHint};
use serde::Serialize;
use utoipa::ToSchema;

use crate::body::{Bodies, Reserved};
use crate::claims::{Outbox, Unreceived, Unsent};
use crate::problem::{Code, Problem};
use crate::routes::claims::deliveries::Shown;

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

/// The JSON of a grant, with its share of the memory for bodies.
pub(super) struct Encoded {
    bytes: Bytes,
    memory: Reserved,
}

impl Encoded {
    /// `more` is there if an earlier call was granted the deliveries.
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
        // Control characters grow sixfold, base64 by a third. The payloads are dropped already.
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

/// The body. Its deliveries are released if it is dropped before its end.
struct Answer {
    bytes: Bytes,
    unsent: Option<Unsent>,
    /// `None` in a router of another service: there the end of the body is all that can be seen.
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
        let Some(unsent) = this.unsent.take() else {
            return Poll::Ready(None);
        };
        match &this.outbox {
            Some(outbox) => outbox.put(unsent),
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
