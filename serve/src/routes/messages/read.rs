//! Reads one message.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::Shared;
use crate::auth::{Principal, Right};
use crate::path::{MessageId, QueueName};
use crate::problem::{Code, Document, Problem};
use crate::query::Query;
use crate::routes::messages::absent;
use crate::routes::messages::fields::Shown;

/// How many bytes of a payload are sent unless the caller asks for another number.
const PAYLOAD_BYTES: usize = 64 << 10;
/// The most that a payload has.
const MAX_PAYLOAD_BYTES: usize = 16 << 20;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Read {
    /// How many bytes of the payload are sent at most; 65,536 without it.
    #[param(minimum = 0, maximum = 16_777_216)]
    payload_bytes: Option<usize>,
}

/// Read a message
///
/// In any state. The payload is cut to `payload_bytes`; a caller without the right to read payloads
/// gets its length only. Of a message that has ended the problem says how, if the queue remembers it.
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}/messages/{id}",
    tag = "messages",
    params(
        ("queue" = String, Path, description = "The name, percent-encoded, or `~` and its base64url"),
        ("id" = String, Path, description = "The id, percent-encoded, or `~` and its base64url"),
        Read,
    ),
    responses(
        (status = 200, body = Shown),
        (status = 404, description = "The queue, or the message, does not exist", body = Document, content_type = "application/problem+json"),
        (status = 504, description = "Redis did not answer in time", body = Document, content_type = "application/problem+json"),
    )
)]
pub(super) async fn read_message(
    State(app): State<Shared>,
    caller: Principal,
    name: QueueName,
    id: MessageId,
    Query(read): Query<Read>,
) -> Result<Json<Shown>, Problem> {
    let most = read.payload_bytes.unwrap_or(PAYLOAD_BYTES);
    if most > MAX_PAYLOAD_BYTES {
        let detail = format!("payload_bytes: {most} are more than {MAX_PAYLOAD_BYTES}");
        return Err(Problem::new(Code::InvalidInput, detail));
    }
    let is_withheld = !caller.has(Right::ReadPayload);
    let most = if is_withheld { 0 } else { most };
    // A long payload takes its share of the memory for bodies.
    let mut memory = app.bodies.none();
    if most > PAYLOAD_BYTES {
        memory.grow(most)?;
    }
    let queue = app.client.queue(name.as_str())?;
    match queue.get_up_to(id.as_bytes(), most).await? {
        Some(stored) => Ok(Json(Shown::new(id.as_bytes(), stored, is_withheld))),
        None => Err(absent(&app, &name, &id).await),
    }
}
