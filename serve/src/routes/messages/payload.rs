//! The payload of a message as a file.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::Full;

use crate::app::Shared;
use crate::body::Reserved;
use crate::path::{MessageId, QueueName};
use crate::problem::{Document, Problem};
use crate::routes::messages::absent;

/// A body that holds its share of the memory until it is sent.
struct Held {
    body: Full<Bytes>,
    _reserved: Reserved,
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Download the payload of a message
///
/// The bytes as they were pushed, in any state of the message. A browser saves them as a file and
/// never shows them.
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}/messages/{id}/payload",
    tag = "messages",
    params(
        ("queue" = String, Path, description = "The name, percent-encoded, or `~` and its base64url"),
        ("id" = String, Path, description = "The id, percent-encoded, or `~` and its base64url"),
    ),
    responses(
        (status = 200, description = "The payload", body = [u8], content_type = "application/octet-stream", headers(("Content-Disposition" = String, description = "`attachment`"))),
        (status = 404, description = "The queue, or the message, does not exist", body = Document, content_type = "application/problem+json"),
        (status = 504, description = "Redis did not answer in time", body = Document, content_type = "application/problem+json"),
    )
)]
pub(super) async fn download_payload(
    State(app): State<Shared>,
    name: QueueName,
    id: MessageId,
) -> Result<Response, Problem> {
    let queue = app.client.queue(name.as_str())?;
    // Its length first, so that payloads beyond the memory for bodies are not fetched.
    let Some(known) = queue.get_up_to(id.as_bytes(), 0).await? else {
        return Err(absent(&app, &name, &id).await);
    };
    let mut reserved = app.bodies.none();
    let length = usize::try_from(known.payload_bytes).unwrap_or(usize::MAX);
    reserved.grow(length)?;
    let Some(stored) = queue.get(id.as_bytes()).await? else {
        return Err(absent(&app, &name, &id).await);
    };
    // A push may have replaced it by a longer one.
    reserved.grow(stored.payload.len().saturating_sub(length))?;
    let body = Body::new(Held {
        body: Full::from(stored.payload),
        _reserved: reserved,
    });
    let headers = [
        (CONTENT_TYPE, "application/octet-stream"),
        (CONTENT_DISPOSITION, "attachment"),
        (
            CONTENT_SECURITY_POLICY,
            "sandbox; default-src 'none'; frame-ancestors 'none'",
        ),
    ];
    Ok((headers, body).into_response())
}
