//! Pushes one message, whose id is in the path.

use axum::Json;
use axum::extract::{FromRequest, OriginalUri, Request, State};
use axum::http::header::{IF_NONE_MATCH, LOCATION};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use dueq::outcomes::PushOutcome;
use dueq::{Message, OnConflict};

use crate::edge::body::{Whole, require_json, whole};
use crate::edge::path::{MessageId, QueueName};
use crate::edge::problem::{Code, Problem};
use crate::edge::shown::quoted;
use crate::routes::declared::Tags;
use crate::routes::messages::key::Fingerprint;
use crate::routes::messages::reader::{MAX_BYTES, Reader, unread};
use crate::routes::messages::schema::NewMessage;
use crate::routes::messages::sending::SendSpan;
use crate::wire::messages::PushedMessage;
use crate::work::{App, Shared};

/// The JSON of a message, not yet parsed.
pub(super) struct MessageBody(Whole);

impl FromRequest<Shared> for MessageBody {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Shared) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        require_json(&parts.headers)?;
        let whole = whole(&app.edge.bodies, &parts.headers, body, MAX_BYTES).await?;
        Ok(Self(whole))
    }
}

/// Push a message
///
/// Stores it under the id of the path. While the queue has a message of this id, the call changes
/// nothing and says so: it can be repeated. `on_conflict` changes the waiting message instead.
#[utoipa::path(
    put,
    path = "/v1/queues/{queue}/messages/{id}",
    tag = "messages",
    params(
        ("traceparent" = Option<String>, Header, description = "The W3C trace context of the caller. The message carries it, or that of the server's span, unless it has one of its own. A malformed one is ignored"),
        ("If-None-Match" = Option<String>, Header, description = "`*`: only if the queue has no message of this id", pattern = "^\\*$"),
    ),
    request_body = NewMessage,
    responses(
        (status = 200, description = "The queue has, or had, a message of this id", body = PushedMessage),
        (status = 201, description = "The message is stored", body = PushedMessage, headers(("Location" = String, description = "The address of the message"))),
        (status = 409, description = "`on_conflict` cannot change the message: it is leased or dead"),
        (status = 412, description = "The queue has a message of this id, and `If-None-Match` asks for none"),
        (status = 504),
        (status = 507, description = "The queue or the memory of Redis is full"),
    )
)]
pub(super) async fn push_message(
    State(app): State<Shared>,
    name: QueueName,
    id: MessageId,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
    MessageBody(body): MessageBody,
) -> Result<Response, Problem> {
    let span = SendSpan::start(&name, &headers);
    let reader = Reader::new().traced(span.trace_parent());
    span.end(put(&app, &name, &id, uri.path(), &headers, &body, reader).await)
}

async fn put(
    app: &App,
    name: &QueueName,
    id: &MessageId,
    path: &str,
    headers: &HeaderMap,
    body: &Whole,
    reader: Reader,
) -> Result<Response, Problem> {
    let is_new = Tags::read(headers, &IF_NONE_MATCH)? == Some(Tags::Any);
    let read = reader.read(&app.client, &body.bytes).await?;
    let message = read.map_err(|error| unread(&body.bytes, &error))?;
    if let Some(own) = message.id_bytes()
        && own != id.as_bytes()
    {
        let own = quoted(&String::from_utf8_lossy(own));
        let detail = format!(
            "id: the body has the id {own}, and the path {}; leave out the one of the body",
            id.quoted()
        );
        return Err(Problem::new(Code::InvalidInput, detail));
    }
    let above = path.rsplit_once('/').map(|(above, _)| above);
    let message = message.id(id.as_bytes());
    if is_new && message.conflict() != OnConflict::Keep {
        let detail = "on_conflict and If-None-Match: * exclude each other; leave out one";
        return Err(Problem::new(Code::InvalidInput, detail));
    }
    let above = above.unwrap_or_default();
    let only = match is_new {
        true => Only::New,
        false => Only::Any,
    };
    push_one(app, name, message, above, only).await
}

/// The condition on an existing message with the id; if it is not met, the push is an error.
#[derive(Clone, Copy)]
pub(super) enum Only {
    Any,
    /// No message with the id may exist.
    New,
    /// The id comes from an idempotency key: an existing message must have this payload.
    OfKey(Fingerprint),
}

/// Pushes a message. `messages` is the path of the queue's messages.
pub(super) async fn push_one(
    app: &App,
    name: &QueueName,
    message: Message,
    messages: &str,
    only: Only,
) -> Result<Response, Problem> {
    let conflict = message.conflict();
    let queue = app.client.queue(name.as_str())?;
    let receipt = queue.push_message(message).await?;
    let mut pushed = PushedMessage::new(&receipt);
    let id = receipt.id_bytes();
    match receipt.outcome() {
        PushOutcome::Created => {
            let address = format!("{messages}/{}", dueq_input::id_path(id));
            let location = HeaderValue::from_str(&address).map(|address| [(LOCATION, address)]);
            return Ok((StatusCode::CREATED, location.ok(), Json(pushed)).into_response());
        }
        PushOutcome::Exists(state) if conflict != OnConflict::Keep => {
            return Err(unchanged(state, id));
        }
        PushOutcome::Exists(state) if matches!(only, Only::New) => {
            let id = quoted(&String::from_utf8_lossy(id));
            let detail =
                format!("nothing was changed: the queue has message {id}, and it is {state}");
            return Err(Problem::new(Code::Exists, detail));
        }
        PushOutcome::Exists(_) => {
            let most = match only {
                Only::OfKey(own) => own.bytes,
                Only::Any | Only::New => 0,
            };
            match (queue.get_up_to(id, most).await, only) {
                (Ok(Some(stored)), only) => {
                    if let Only::OfKey(own) = only {
                        own.compare(&stored)?;
                    }
                    pushed = pushed.existing(&stored);
                }
                (Err(error), Only::OfKey(_)) => return Err(error.into()),
                // The push is done; only the due time in the answer is missing.
                (Ok(None) | Err(_), _) => {}
            }
        }
        _ => {}
    }
    Ok(Json(pushed).into_response())
}

/// The problem of a push that was to reschedule or replace a message whose state forbids it.
pub(super) fn unchanged(state: dueq::MessageState, id: &[u8]) -> Problem {
    let id = quoted(&String::from_utf8_lossy(id));
    match state {
        dueq::MessageState::Dead => {
            let detail = format!(
                "nothing was changed: message {id} is dead; requeue or delete it, or push with revive"
            );
            Problem::new(Code::Dead, detail)
        }
        _ => {
            let detail = format!(
                "nothing was changed: a handler has message {id}; push again when it is done"
            );
            Problem::new(Code::Leased, detail).retryable()
        }
    }
}
