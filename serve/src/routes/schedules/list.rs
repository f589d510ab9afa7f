//! Lists the schedules of a queue, a page at a time.

use axum::extract::{OriginalUri, State};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::Shared;
use crate::path::QueueName;
use crate::problem::{Code, Document, Problem};
use crate::query::Query;
use crate::routes::paged::paged;
use crate::routes::schedules::cursor;
use crate::routes::schedules::shown::Schedule;
use crate::shown::quoted;

/// The most schedules of a page: Redis reads each of them.
const MAX_LIMIT: usize = 200;
const LIMIT: usize = 100;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    /// How many schedules a page has at most; 100 without it
    #[param(minimum = 1, maximum = 200)]
    limit: Option<usize>,
    /// Where the page before ended: take the address `next`
    #[param(format = "cursor", pattern = "^[A-Za-z0-9_-]+$")]
    cursor: Option<String>,
}

/// A page of schedules, sorted by set and name.
#[derive(Serialize, ToSchema)]
pub(super) struct Schedules {
    schedules: Vec<ListedSchedule>,
    /// The address of the next page; null at the end. The header `Link` has it too.
    next: Option<String>,
}

/// A schedule of a list, without its payload.
#[derive(Serialize, ToSchema)]
struct ListedSchedule {
    #[serde(flatten)]
    schedule: Schedule,
    /// The address of the schedule.
    href: String,
}

/// List schedules
///
/// Of all sets, sorted by set and name, without payloads.
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}/schedules",
    tag = "schedules",
    params(
        ("queue" = String, Path, description = "The name, percent-encoded, or `~` and its base64url"),
        Page,
    ),
    responses(
        (status = 200, body = Schedules, headers(("Link" = Option<String>, description = "The address of the next page, with `rel=\"next\"`"))),
        (status = 404, description = "The queue does not exist", body = Document, content_type = "application/problem+json"),
        (status = 504, description = "Redis did not answer in time", body = Document, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list_schedules(
    State(app): State<Shared>,
    name: QueueName,
    OriginalUri(uri): OriginalUri,
    Query(page): Query<Page>,
) -> Result<Response, Problem> {
    let limit = page.limit.unwrap_or(LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        let detail = format!("limit: {limit}; a page has 1 to {MAX_LIMIT} schedules");
        return Err(Problem::new(Code::InvalidInput, detail));
    }
    let from = page.cursor.as_deref().map(|text| {
        cursor::read(name.as_str(), text).ok_or_else(|| {
            let (text, queue) = (quoted(text), quoted(name.as_str()));
            let detail = format!(
                "cursor {text} is not of the schedules of queue {queue}; begin without one"
            );
            Problem::new(Code::InvalidCursor, detail)
        })
    });
    let from = from.transpose()?;
    let queue = app.client.queue(name.as_str())?;
    let read = queue.list_schedules(from.as_ref(), limit).await?;
    if read.schedules.is_empty() && from.is_none() {
        app.existing(&name).await?;
    }
    let address = uri.path();
    let next = read.next.map(|next| {
        let cursor = cursor::text(name.as_str(), &next);
        format!("{address}?limit={limit}&cursor={cursor}")
    });
    let schedules = read.schedules.iter().map(|info| ListedSchedule {
        schedule: Schedule::new(info),
        href: format!("{address}/{}", dueq_input::id_path(info.name.as_bytes())),
    });
    let schedules = schedules.collect();
    let link = next.clone();
    Ok(paged(link.as_deref(), Schedules { schedules, next }))
}
