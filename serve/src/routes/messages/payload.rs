//! Reads one message, and downloads its payload as a file.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use dueq::Queue;
use dueq::inspect::LeaseInfo;
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use serde::Deserialize;
use tokio::time::timeout;
use utoipa::IntoParams;

use crate::edge::auth::{Principal, Right};
use crate::edge::body::Reserved;
use crate::edge::path::{MessageId, Query, QueueName};
use crate::edge::problem::{Code, Problem};
use crate::edge::shown::quoted;
use crate::wire::life::LifeEntry;
use crate::wire::messages::Message;
use crate::wire::workers::Holder;
use crate::work::{App, Shared};

/// A response body that keeps its share of the body budget until it is sent.
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
    responses(
        (status = 200, description = "The payload", body = [u8], content_type = "application/octet-stream", headers(("Content-Disposition" = String, description = "`attachment`"))),
        (status = 404, description = "The queue, or the message, does not exist"),
        (status = 504),
    )
)]
pub(super) async fn download_payload(
    State(app): State<Shared>,
    name: QueueName,
    id: MessageId,
) -> Result<Response, Problem> {
    let queue = app.client.queue(name.as_str())?;
    // Reads the length first, so that a payload beyond the budget is not fetched.
    let Some(known) = queue.get_up_to(id.as_bytes(), 0).await? else {
        return Err(absent(&app, &name, &id).await);
    };
    let mut reserved = app.edge.bodies.none();
    let length = usize::try_from(known.payload_bytes).unwrap_or(usize::MAX);
    reserved.grow(length)?;
    let Some(stored) = queue.get(id.as_bytes()).await? else {
        return Err(absent(&app, &name, &id).await);
    };
    // Between the two reads, a push may have replaced the message by a longer one.
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

/// The most bytes of a payload that are sent, unless the caller asks for another number.
const PAYLOAD_BYTES: usize = 64 << 10;
/// The most bytes that a payload can have.
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
    params(Read),
    responses(
        (status = 200, body = Message),
        (status = 404, description = "The queue, or the message, does not exist"),
        (status = 504),
    )
)]
pub(super) async fn read_message(
    State(app): State<Shared>,
    caller: Principal,
    name: QueueName,
    id: MessageId,
    Query(read): Query<Read>,
) -> Result<Json<Message>, Problem> {
    let most = read.payload_bytes.unwrap_or(PAYLOAD_BYTES);
    if most > MAX_PAYLOAD_BYTES {
        let detail = format!("payload_bytes: {most} are more than {MAX_PAYLOAD_BYTES}");
        return Err(Problem::new(Code::InvalidInput, detail));
    }
    let is_withheld = !caller.has(Right::ReadPayload);
    let most = if is_withheld { 0 } else { most };
    // A long payload needs a share of the body budget.
    let mut memory = app.edge.bodies.none();
    if most > PAYLOAD_BYTES {
        memory.grow(most)?;
    }
    let queue = app.client.queue(name.as_str())?;
    match queue.get_up_to(id.as_bytes(), most).await? {
        Some(stored) => {
            let holder = holder(&queue, stored.lease.as_ref()).await;
            let message = Message::new(id.as_bytes(), stored, is_withheld);
            Ok(Json(Message { holder, ..message }))
        }
        None => Err(absent(&app, &name, &id).await),
    }
}

/// The longest wait for the workers of a queue, one of whose partitions may be away.
const HOLDER_LIMIT: Duration = Duration::from_millis(500);

/// The worker that has the messages of this lease. `None` if the lease does not tell it, or the
/// workers cannot be read: the message is shown without it.
async fn holder(queue: &Queue, lease: Option<&LeaseInfo>) -> Option<Holder> {
    let lease = lease.filter(|lease| lease.node.is_some())?;
    let nodes = timeout(HOLDER_LIMIT, queue.holders()).await.ok()?.ok()?;
    let node = nodes.into_iter().find(|node| node.has(lease));
    node.map(Holder::from)
}

/// The problem if the queue does not hold the id: says how its message ended if the queue remembers
/// that, or that the queue does not exist.
pub(super) async fn absent(app: &App, name: &QueueName, id: &MessageId) -> Problem {
    let known = async {
        let queue = app.existing(name).await?;
        let end = queue.end_of(id.as_bytes()).await?;
        let life = match end {
            Some(_) => queue.life_of(id.as_bytes()).await?,
            None => Vec::new(),
        };
        Ok::<_, Problem>((end, life))
    };
    let (end, life) = match known.await {
        Ok(known) => known,
        Err(problem) => return problem,
    };
    let (queue, id) = (quoted(name.as_str()), id.quoted());
    let last = match end {
        Some(end) => format!("the last one was {}", end.kind.as_str()),
        None => "and remembers none".to_owned(),
    };
    let detail = format!("queue {queue} has no message {id}: {last}");
    let problem = Problem::new(Code::NoSuchMessage, detail).ended(end);
    if life.is_empty() {
        return problem;
    }
    let life: Vec<_> = life.into_iter().map(LifeEntry::from).collect();
    problem.with("life", &life)
}
