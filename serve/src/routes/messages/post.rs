//! Pushes one message, or many: as JSON, or as lines of JSON.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{OriginalUri, Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use dueq::Message;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::edge::auth::Principal;
use crate::edge::body::{Bounded, media_type, parse_json, whole};
use crate::edge::path::QueueName;
use crate::edge::problem::{Code, Problem};
use crate::edge::shown::quoted;
use crate::routes::messages::key::{Fingerprint, Key, push_many};
use crate::routes::messages::push::{Only, push_one};
use crate::routes::messages::reader::{MAX_BYTES, Reader, unread};
use crate::routes::messages::schema::NewMessages;
use crate::routes::messages::sending::SendSpan;
use crate::routes::messages::stream::push_lines;
use crate::routes::messages::tally::{Reason, Sent, Summary, Tally};
use crate::wire::messages::PushedMessage;
use crate::work::App;
use crate::work::Shared;

/// The most messages of a JSON body.
const MAX_MESSAGES: usize = 1_000;
/// The default deduplication window of a message whose id comes from a key. Without one, a message
/// that is due at once could end before the request is repeated, and be stored again.
const WINDOW: Duration = Duration::from_secs(600);

/// What the pushes did.
#[derive(Serialize, ToSchema)]
pub(super) struct Pushes {
    #[serde(flatten)]
    summary: Summary,
    /// For each message of a list what became of it, in their order. Lines of JSON have no results.
    #[serde(skip_serializing_if = "Option::is_none")]
    results: Option<Vec<Outcome>>,
}

/// What the status 200 answers: to many messages, and to one.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum Answered {
    Many(Pushes),
    One(PushedMessage),
}

#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum Outcome {
    Pushed(PushedMessage),
    Refused(Reason),
}

/// Push messages
///
/// A JSON body has one message, or up to 1,000 in `messages`. A body of type `application/x-ndjson`
/// has one message a line, as many as you like, and is pushed while it arrives. Wrong messages are
/// refused and the others are pushed. If Redis fails or the body breaks off, what was pushed stays,
/// and the problem says how much. With `Idempotency-Key` the same request creates nothing twice.
#[utoipa::path(
    post,
    path = "/v1/queues/{queue}/messages",
    tag = "messages",
    params(
        ("traceparent" = Option<String>, Header, description = "The W3C trace context of the caller. Messages carry it, or that of the server's span, unless they have one of their own. A malformed one is ignored"),
        ("Idempotency-Key" = Option<String>, Header, description = "Gives messages without an id one that is the same for the same key", min_length = 1, max_length = 200, pattern = "^[!-~]+$"),
    ),
    request_body(content((NewMessages = "application/json"), (String = "application/x-ndjson"))),
    responses(
        (status = 200, description = "What became of the messages; of one message, that the queue has, or had, one of this id", body = inline(Answered)),
        (status = 201, description = "The one message is stored", body = PushedMessage, headers(("Location" = String, description = "The address of the message"))),
        (status = 409, description = "`on_conflict` cannot change the one message: it is leased or dead"),
        (status = 422, description = "The queue has the one message of the `Idempotency-Key` with another payload"),
        (status = 504),
        (status = 507, description = "The queue or the memory of Redis is full"),
    )
)]
pub(super) async fn push_messages(
    State(app): State<Shared>,
    caller: Principal,
    name: QueueName,
    OriginalUri(uri): OriginalUri,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let key = Key::read(&parts.headers, &caller)?;
    let span = SendSpan::start(&name, &parts.headers);
    let reader = Reader::new().traced(span.trace_parent());
    span.end(post(&app, &name, key, &parts.headers, body, uri.path(), reader).await)
}

async fn post(
    app: &App,
    name: &QueueName,
    key: Option<Key>,
    headers: &HeaderMap,
    body: Body,
    address: &str,
    reader: Reader,
) -> Result<Response, Problem> {
    match media_type(headers).as_deref() {
        Some("application/json") => json(app, name, key, headers, body, address, reader).await,
        Some("application/x-ndjson" | "application/ndjson") => {
            let queue = app.client.queue(name.as_str())?;
            let summary = push_lines(app, queue, key, body, reader).await?;
            let results = None;
            Ok(Json(Pushes { summary, results }).into_response())
        }
        other => {
            let declared = other.map_or_else(|| "no type".to_owned(), quoted);
            let detail = format!(
                "the body has {declared}; send Content-Type: application/json or application/x-ndjson"
            );
            Err(Problem::new(Code::UnsupportedMediaType, detail))
        }
    }
}

/// Detects whether a body has the field `messages`.
#[derive(Deserialize)]
struct Probe {
    messages: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Many<'a> {
    #[serde(borrow)]
    messages: Bounded<&'a RawValue, MAX_MESSAGES>,
}

async fn json(
    app: &App,
    name: &QueueName,
    key: Option<Key>,
    headers: &HeaderMap,
    body: Body,
    address: &str,
    reader: Reader,
) -> Result<Response, Problem> {
    let body = whole(&app.edge.bodies, headers, body, MAX_BYTES).await?;
    // serde would read the items of a list as the fields of `Probe`.
    let is_list = body.bytes.trim_ascii_start().starts_with(b"[");
    let probe = serde_json::from_slice::<Probe>(&body.bytes);
    if is_list || probe.is_ok_and(|probe| probe.messages.is_none()) {
        let read = reader.read(&app.client, &body.bytes).await?;
        let message = read.map_err(|error| unread(&body.bytes, &error))?;
        let (message, of_key) = keyed(message, &body.bytes, key.as_ref(), 1);
        return push_one(
            app,
            name,
            message,
            address,
            of_key.map_or(Only::Any, Only::OfKey),
        )
        .await;
    }
    let Many {
        messages: Bounded(many),
    } = parse_json(&body.bytes)?;
    let (mut tally, mut outcomes) = (Tally::default(), Vec::new());
    let (mut sent, mut messages) = (Vec::new(), Vec::new());
    for (number, element) in (1..).zip(&many) {
        let text = element.get().as_bytes();
        match reader.read(&app.client, text).await? {
            Ok(message) => {
                let (message, of_key) = keyed(message, text, key.as_ref(), number);
                sent.push(Sent {
                    line: number,
                    on_conflict: message.conflict(),
                    of_key,
                });
                messages.push(message);
                outcomes.push(None);
            }
            Err(error) => {
                let reason = tally.refuse(number, &unread(text, &error));
                outcomes.push(Some(Outcome::Refused(reason)));
            }
        }
    }
    let queue = app.client.queue(name.as_str())?;
    let of_key: Vec<_> = sent.iter().map(|sent| sent.of_key).collect();
    let results = push_many(&queue, messages, &of_key).await;
    let left = outcomes.iter_mut().filter(|outcome| outcome.is_none());
    for ((sent, result), outcome) in sent.into_iter().zip(results).zip(left) {
        let pushed = result.as_ref().ok().map(PushedMessage::new);
        *outcome = match tally.settle(sent, result) {
            Some(reason) => Some(Outcome::Refused(reason)),
            None => pushed.map(Outcome::Pushed),
        };
    }
    tally.done(u64::try_from(many.len()).unwrap_or(u64::MAX));
    let summary = tally.finish()?;
    // No call failed, so every message has an outcome.
    let results = Some(outcomes.into_iter().flatten().collect());
    Ok(Json(Pushes { summary, results }).into_response())
}

/// Gives the message an id from the key, if it has none.
fn keyed(
    message: Message,
    text: &[u8],
    key: Option<&Key>,
    number: u64,
) -> (Message, Option<Fingerprint>) {
    #[derive(Deserialize)]
    struct Own {
        window: Option<IgnoredAny>,
    }
    let Some(key) = key.filter(|_| message.id_bytes().is_none()) else {
        return (message, None);
    };
    let (message, of_key) = key.name(message, number);
    match serde_json::from_slice::<Own>(text) {
        Ok(Own { window: Some(_) }) => (message, of_key),
        _ => (message.window(WINDOW), of_key),
    }
}
