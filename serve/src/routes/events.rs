//! The stream of events about queues.

use axum::extract::{Request, State};
use axum::http::HeaderName;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use crate::edge::auth::Principal;
use crate::edge::path::Query;
use crate::edge::path::queue_named;
use crate::edge::problem::{Code, Problem};
use crate::work::Shared;
use crate::work::events::body;

/// The most queues of a stream.
const MAX_QUEUES: usize = 20;

pub(super) fn routes() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![routes!(events)]
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// 1 to 20 names, separated by commas. `~` and base64url spell a name with a comma, or one that
    /// begins with `~`
    #[param(format = "queue-names", min_length = 1)]
    queues: String,
}

/// One event of the stream.
#[derive(ToSchema)]
#[schema(as = Event)]
#[expect(dead_code, reason = "only its schema is used")]
struct Sent {
    /// Always `queues`.
    event: String,
    /// JSON with the fields `queues`, `age_ms` and `error` of the list of queues.
    #[schema(content_media_type = "application/json")]
    data: String,
}

/// Follow the counts of queues
///
/// A stream of events (SSE). Each event `queues` has the fields `queues`, `age_ms` and `error` of the
/// list of queues, for all queues of the stream: one at the beginning, and one each second at most
/// when something has changed. A comment comes every 15 s. The stream ends when the server stops,
/// and when the caller loses access.
#[utoipa::path(
    get,
    path = "/v1/events",
    tag = "queues",
    params(Wanted),
    responses((status = 200, description = "Events", body = Sent, content_type = "text/event-stream")),
)]
async fn events(
    State(app): State<Shared>,
    principal: Principal,
    Query(wanted): Query<Wanted>,
    request: Request,
) -> Result<Response, Problem> {
    let mut queues = Vec::new();
    for (number, spelled) in wanted.queues.split(',').enumerate() {
        if number == MAX_QUEUES {
            let detail = format!("queues: a stream has up to {MAX_QUEUES} queues");
            return Err(Problem::new(Code::InvalidInput, detail));
        }
        let name = queue_named(spelled)?;
        app.edge.allow(&principal, &name)?;
        if !queues.contains(&name) {
            queues.push(name);
        }
    }
    let (head, _) = request.into_parts();
    let stream = app.streams.begin(head, queues)?;
    let headers = [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-store"),
        // Makes nginx pass on each event at once.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, body(stream)).into_response())
}
