//! Lists the queues and their counts, from the poller's snapshot.

use std::time::Duration;

use axum::extract::{OriginalUri, State};
use axum::response::Response;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::edge::auth::Principal;
use crate::edge::path::Query;
use crate::edge::problem::{Code, Problem};
use crate::wire::paged;
use crate::wire::queues::Queues;
use crate::work::Shared;
use crate::work::poll::PATIENCE;

/// The most queues of a page.
const MAX_LIMIT: usize = 1_000;

/// Which page.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    /// How many queues the page has at most
    #[param(minimum = 1, maximum = 1_000, default = 100)]
    limit: Option<usize>,
    /// The page begins after the queue of this name, whether there is one or not
    #[param(format = "queue-name", min_length = 1, max_length = 128)]
    after: Option<String>,
    /// How long the answer waits for new counts, if nobody has asked for a minute
    #[param(maximum = 2_000, default = 2_000)]
    wait_ms: Option<u64>,
}

/// List the queues
///
/// Those that the caller may use, sorted, with their counts. One poller of the server finds queues
/// and asks for their counts, for all callers together, and pauses a minute after the last request
/// that needs it. So the counts are some seconds old: `age_ms` says how old.
#[utoipa::path(
    get,
    path = "/v1/queues",
    tag = "queues",
    params(Page),
    responses((status = 200, body = Queues, headers(("Link" = Option<String>, description = "The address of the next page, with `rel=\"next\"`")))),
)]
pub(super) async fn list_queues(
    State(app): State<Shared>,
    principal: Principal,
    OriginalUri(uri): OriginalUri,
    Query(page): Query<Page>,
) -> Result<Response, Problem> {
    let limit = page.limit.unwrap_or(100);
    if !(1..=MAX_LIMIT).contains(&limit) {
        let detail = format!("limit {limit}: a page has 1 to {MAX_LIMIT} queues");
        return Err(Problem::new(Code::InvalidInput, detail));
    }
    let patience = page.wait_ms.map_or(PATIENCE, Duration::from_millis);
    if patience > PATIENCE {
        let max = PATIENCE.as_millis();
        let detail = format!("wait_ms: the answer waits at most {max} ms");
        return Err(Problem::new(Code::InvalidInput, detail));
    }
    if let Some(after) = &page.after {
        dueq::admin::queue_keys(after)
            .map_err(|error| Problem::new(Code::InvalidInput, format!("after: {error}")))?;
    }
    let snapshot = app.poller.looked_within(patience).await;
    let age_ms = snapshot.known_age_ms()?;
    let allowed = snapshot.after(page.after.as_deref());
    let mut allowed = allowed.filter(|(name, _)| principal.may_use(name));
    let queues: Vec<_> = allowed
        .by_ref()
        .take(limit)
        .map(|(name, entry)| entry.listed(name))
        .collect();
    let last = allowed.next().and(queues.last());
    let next = last.map(|last| {
        let after = utf8_percent_encode(&last.queue, NON_ALPHANUMERIC);
        let wait = page.wait_ms.map(|ms| format!("&wait_ms={ms}"));
        let wait = wait.unwrap_or_default();
        format!("{}?limit={limit}{wait}&after={after}", uri.path())
    });
    let link = next.clone();
    let page = Queues {
        next,
        queues,
        age_ms,
        complete: snapshot.is_whole(),
        names_age_ms: snapshot.names_age_ms(),
        error: snapshot.failure().map(str::to_owned),
    };
    Ok(paged(link.as_deref(), page))
}
