//! Lists the messages in one state, a page at a time.

use axum::extract::{OriginalUri, State};
use axum::response::Response;
use dueq::inspect::{MessageCursor, MessageEntry};
use dueq::{Error, ErrorKind, Queue};
use dueq_input::Filter;
use serde::Deserialize;
use tokio::task::JoinSet;
use utoipa::{IntoParams, ToSchema};

use crate::edge::auth::{Principal, Right};
use crate::edge::path::QueueName;
use crate::edge::path::{Query, moment};
use crate::edge::problem::{Code, Problem};
use crate::edge::shown::{self, quoted};
use crate::routes::messages::cursor::Of;
use crate::wire::messages::{Id, ListedMessage, Messages, Payload, Times};
use crate::wire::paged;
use crate::work::Shared;
use crate::work::operations::filter;

/// The most messages of a page.
const MAX_LIMIT: usize = 1_000;
const LIMIT: usize = 100;
/// The most messages of a page with payloads.
const MAX_WITH_PAYLOADS: usize = 100;
/// The most messages that one call of Redis lists. Listing 1,000 blocked Redis for 3.3 ms (Redis
/// 7.0.15 on a slow machine, 2026-11-25).
const OF_CALL: usize = 250;
/// The most calls of Redis for a page with a filter.
const MAX_CALLS: usize = 10;
/// The most bytes of a payload in a list.
const MAX_PREVIEW: usize = 1_000;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct List {
    /// Only messages in this state.
    #[param(inline)]
    state: StateName,
    /// How many messages a page has at most; 100 without it.
    #[param(minimum = 1, maximum = 1_000)]
    limit: Option<usize>,
    /// `oldest`: the earliest time first, as without it. `newest`: the latest first.
    #[param(inline)]
    order: Option<Order>,
    /// The page begins at this time: RFC 3339 or Unix milliseconds. Not with `cursor`.
    #[param(format = "moment", min_length = 1)]
    from: Option<String>,
    /// Only messages whose time is earlier than this one: RFC 3339 or Unix milliseconds. `next` has it too.
    #[param(format = "moment", min_length = 1)]
    before: Option<String>,
    /// Only messages with this text in their error, in any case. `next` has it and the next two too.
    #[param(max_length = 300)]
    error_text: Option<String>,
    /// Only messages with at least so many failures.
    #[param(format = Int64, maximum = 4_294_967_295_u64)]
    min_failures: Option<u32>,
    /// Only messages with at least so many crashes.
    #[param(format = Int64, maximum = 4_294_967_295_u64)]
    min_crashes: Option<u32>,
    /// Adds the first bytes of each payload, up to so many, if the caller may read payloads. Such a page has
    /// at most 100 messages, whatever `limit` says.
    #[param(minimum = 1, maximum = 1_000)]
    payload_bytes: Option<usize>,
    /// Where the page before ended: take the address `next`.
    #[param(format = "cursor", pattern = "^[A-Za-z0-9_-]+$")]
    cursor: Option<String>,
}

#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum StateName {
    Scheduled,
    Ready,
    Leased,
    Dead,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    Oldest,
    Newest,
}

impl From<StateName> for dueq::MessageState {
    fn from(name: StateName) -> Self {
        match name {
            StateName::Scheduled => Self::Scheduled,
            StateName::Ready => Self::Ready,
            StateName::Leased => Self::Leased,
            StateName::Dead => Self::Dead,
        }
    }
}

/// List messages
///
/// Those in one state, in the order of their times. With a filter, a page looks at 2,500 messages at
/// most, and may have few of them or none. A message that enters or leaves
/// the state between two pages can be missing or appear twice. A page can have fewer messages than
/// `limit`, or none, and still have a next one.
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}/messages",
    tag = "messages",
    params(List),
    responses(
        (status = 200, body = Messages, headers(("Link" = Option<String>, description = "The address of the next page, with `rel=\"next\"`"))),
        (status = 404),
        (status = 504),
    )
)]
pub(super) async fn list_messages(
    State(app): State<Shared>,
    caller: Principal,
    name: QueueName,
    OriginalUri(uri): OriginalUri,
    Query(list): Query<List>,
) -> Result<Response, Problem> {
    let limit = list.limit()?;
    let filter = list.filter()?;
    let of = Of {
        queue: name.as_str(),
        state: list.state.into(),
        newest: list.order == Some(Order::Newest),
    };
    let before_ms = list.before_ms()?;
    let cursor = list.begin(of, before_ms)?;
    let queue = app.client.queue(name.as_str())?;
    let page = read(&queue, of, cursor.clone(), limit, &filter).await;
    let (mut listed, mut next) = page.map_err(|error| {
        // The cursor is of an older partition map of the queue.
        let is_of_cursor =
            error.kind() == ErrorKind::InvalidInput || error.code() == Some("BADARGS");
        if list.cursor.is_some() && is_of_cursor {
            return Problem::new(Code::InvalidCursor, error.to_string());
        }
        Problem::from(error)
    })?;
    if listed.is_empty() && cursor.is_none() && next.is_none() {
        app.existing(&name).await?;
    }
    if let Some(before_ms) = before_ms {
        let count = listed.len();
        listed.retain(|message| message.time_ms < before_ms);
        // Ready messages are in the order of their promotion, not of their times.
        let is_sorted = of.state != dueq::MessageState::Ready;
        if listed.len() < count && is_sorted && !of.newest {
            next = None;
        }
    }
    let address = uri.path();
    let more = list.carried(before_ms);
    let next = next.map(|cursor| {
        let order = if of.newest { "newest" } else { "oldest" };
        let cursor = of.text(&cursor);
        let state = of.state;
        format!("{address}?state={state}&limit={limit}&order={order}{more}&cursor={cursor}")
    });
    let mut payloads = match list.payload_bytes {
        Some(most) if caller.has(Right::ReadPayload) => previews(&queue, &listed, most).await?,
        _ => Vec::new(),
    }
    .into_iter();
    let messages = listed.into_iter().map(|message| ListedMessage {
        payload: payloads.next().flatten(),
        id: Id::new(&message.id),
        times: Times::new(of.state, message.time_ms),
        failures: message.failures,
        crashes: message.crashes,
        error: message.error.lines().next().unwrap_or_default().to_owned(),
        since_ms: message.lease.as_ref().and_then(|lease| lease.since_ms),
        node: message.lease.and_then(|lease| lease.node),
        href: format!("{address}/{}", dueq_input::id_path(&message.id)),
    });
    let messages = messages.collect();
    let link = next.clone();
    Ok(paged(link.as_deref(), Messages { messages, next }))
}

/// Reads a page by several short calls, so that other clients of Redis do not wait long.
async fn read(
    queue: &Queue,
    of: Of<'_>,
    mut cursor: Option<MessageCursor>,
    limit: usize,
    filter: &Filter,
) -> Result<(Vec<MessageEntry>, Option<MessageCursor>), Error> {
    let mut messages = Vec::new();
    // A call may return fewer messages than asked for; so the loop limits the calls, not the
    // messages.
    let most = if filter.is_all() {
        limit.div_ceil(OF_CALL)
    } else {
        MAX_CALLS
    };
    for _ in 0..most {
        let wanted = OF_CALL.min(limit - messages.len());
        let part = match of.newest {
            false => queue.list(of.state, cursor.as_ref(), wanted).await?,
            true => queue.list_newest(of.state, cursor.as_ref(), wanted).await?,
        };
        let found = part.messages.into_iter();
        messages.extend(found.filter(|one| filter.has(one.failures, one.crashes, &one.error)));
        cursor = part.next;
        if cursor.is_none() || messages.len() >= limit {
            break;
        }
    }
    Ok((messages, cursor))
}

/// The first bytes of the payload of each message; `None` if it has ended meanwhile.
async fn previews(
    queue: &Queue,
    listed: &[MessageEntry],
    most: usize,
) -> Result<Vec<Option<Payload>>, Error> {
    // The calls run concurrently, so that they go in few packets.
    let mut calls = JoinSet::new();
    for (place, message) in listed.iter().enumerate() {
        let (queue, id) = (queue.clone(), message.id.clone());
        calls.spawn(async move { (place, queue.get_up_to(&id, most).await) });
    }
    let mut read = vec![None; listed.len()];
    while let Some(ended) = calls.join_next().await {
        let (place, stored) = match ended {
            Ok(ended) => ended,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        read[place] = stored?.map(|one| Payload::new(one.payload, one.payload_bytes, false));
    }
    Ok(read)
}

impl List {
    #[cfg(any(test, feature = "harness"))]
    pub(super) fn check(&self) -> Result<(), Problem> {
        let of = Of {
            queue: "orders",
            state: self.state.into(),
            newest: self.order == Some(Order::Newest),
        };
        let before_ms = self.before_ms()?;
        self.filter()?;
        self.limit()?;
        let begin = self.begin(of, before_ms)?;
        assert!(begin.is_some() || (self.from.is_none() && self.cursor.is_none()));
        Ok(())
    }

    fn limit(&self) -> Result<usize, Problem> {
        let (limit, most) = (self.limit.unwrap_or(LIMIT), self.payload_bytes);
        if !(1..=MAX_LIMIT).contains(&limit) {
            let detail = format!("limit: {limit}; a page has 1 to {MAX_LIMIT} messages");
            return Err(Problem::new(Code::InvalidInput, detail));
        }
        if most.is_some_and(|most| !(1..=MAX_PREVIEW).contains(&most)) {
            let detail = format!("payload_bytes: write 1 to {MAX_PREVIEW}");
            return Err(Problem::new(Code::InvalidInput, detail));
        }
        Ok(match most {
            Some(_) => limit.min(MAX_WITH_PAYLOADS),
            None => limit,
        })
    }

    fn filter(&self) -> Result<Filter, Problem> {
        filter(self.error_text.clone(), self.min_failures, self.min_crashes)
    }

    /// The parameters that the next page has too.
    fn carried(&self, before_ms: Option<u64>) -> String {
        let mut params = form_urlencoded::Serializer::new(String::new());
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                params.append_pair(name, &value);
            }
        };
        add("before", before_ms.map(shown::moment));
        add("error_text", self.error_text.clone());
        add(
            "min_failures",
            self.min_failures.map(|least| least.to_string()),
        );
        add(
            "min_crashes",
            self.min_crashes.map(|least| least.to_string()),
        );
        add(
            "payload_bytes",
            self.payload_bytes.map(|most| most.to_string()),
        );
        let params = params.finish();
        if params.is_empty() {
            params
        } else {
            format!("&{params}")
        }
    }

    /// The upper bound: all messages of the page have an earlier time.
    fn before_ms(&self) -> Result<Option<u64>, Problem> {
        let before = self.before.as_deref();
        before.map(|text| moment_ms("before", text)).transpose()
    }

    /// The cursor at which the page begins; `None` for the first message.
    fn begin(&self, of: Of<'_>, before_ms: Option<u64>) -> Result<Option<MessageCursor>, Problem> {
        let last_ms = before_ms
            .filter(|_| of.newest)
            .map(|ms| ms.saturating_sub(1));
        match (&self.from, &self.cursor) {
            (Some(_), Some(_)) => Err(Problem::new(
                Code::InvalidInput,
                "from and cursor both say where the page begins; leave out one",
            )),
            (Some(text), None) => {
                let ms = moment_ms("from", text)?;
                Ok(Some(MessageCursor::at_ms(
                    last_ms.map_or(ms, |last_ms| ms.min(last_ms)),
                )))
            }
            (None, Some(text)) => of.cursor(text).map(Some).ok_or_else(|| {
                let detail = format!(
                    "cursor {} is not of the {} messages of queue {} in this order; begin without one",
                    quoted(text),
                    of.state,
                    quoted(of.queue)
                );
                Problem::new(Code::InvalidCursor, detail)
            }),
            (None, None) => Ok(last_ms.map(MessageCursor::at_ms)),
        }
    }
}

/// Parses an instant, and returns Unix milliseconds.
fn moment_ms(field: &str, text: &str) -> Result<u64, Problem> {
    let since = moment(field, text)?.duration_since(std::time::UNIX_EPOCH);
    let ms = since.unwrap_or_default().as_millis();
    Ok(u64::try_from(ms).unwrap_or(u64::MAX))
}
