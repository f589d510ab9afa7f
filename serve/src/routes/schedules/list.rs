//! Lists the schedules of a queue, a page at a time.

use axum::extract::{OriginalUri, State};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dueq::schedules::ScheduleCursor;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::edge::path::{Query, QueueName};
use crate::edge::problem::{Code, Problem};
use crate::edge::shown::quoted;
use crate::wire::paged;
use crate::wire::schedules::{ListedSchedule, Schedule, Schedules};
use crate::work::Shared;

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

/// List schedules
///
/// Of all sets, sorted by set and name, without payloads.
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}/schedules",
    tag = "schedules",
    params(Page),
    responses(
        (status = 200, body = Schedules, headers(("Link" = Option<String>, description = "The address of the next page, with `rel=\"next\"`"))),
        (status = 404),
        (status = 504),
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
        read_cursor(name.as_str(), text).ok_or_else(|| {
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
        let cursor = cursor_of(name.as_str(), &next);
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

/// The beginning of every cursor of this queue's schedules. The name of a queue has no slash.
fn prefix(queue: &str) -> String {
    format!("1/{queue}/schedules/")
}

/// Encodes the cursor for a URL.
fn cursor_of(queue: &str, cursor: &ScheduleCursor) -> String {
    let mut bytes = prefix(queue).into_bytes();
    bytes.extend(cursor.as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes a cursor of this queue's schedules; `None` if the text is not one.
fn read_cursor(queue: &str, text: &str) -> Option<ScheduleCursor> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let own = bytes.strip_prefix(prefix(queue).as_bytes())?;
    let (set, name) = std::str::from_utf8(own).ok()?.split_once(' ')?;
    (is_name(set) && is_name(name)).then(|| ScheduleCursor::from_bytes(own))
}

/// Whether the text can be the name of a set or a schedule.
fn is_name(text: &str) -> bool {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || "._-:/".contains(c);
    (1..=100).contains(&text.len()) && text.chars().all(is_fit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_is_read_back_by_its_queue_only() {
        let cursor = ScheduleCursor::from_bytes("billing a/b:1");
        let text = cursor_of("reports", &cursor);
        assert_eq!(read_cursor("reports", &text), Some(cursor));
        assert_eq!(read_cursor("report", &text), None);
        for own in ["", " ", "a", "a ", " b", "a b c", "a \0", "a \u{e4}"] {
            let text = URL_SAFE_NO_PAD.encode(format!("{}{own}", prefix("reports")));
            assert_eq!(read_cursor("reports", &text), None, "{own:?}");
        }
        for text in ["", "=", "~", "MQ==", "\u{e4}", "MQ"] {
            assert_eq!(read_cursor("reports", text), None, "{text}");
        }
    }
}
