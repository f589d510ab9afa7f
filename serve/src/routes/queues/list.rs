//! The list of queues with their counts, from the poller's snapshot.

use std::time::Duration;

use axum::extract::{OriginalUri, State};
use axum::response::Response;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::Shared;
use crate::auth::Principal;
use crate::path::Query;
use crate::poll::{Entry, PATIENCE, Snapshot};
use crate::problem::{Code, Problem};
use crate::routes::paged::paged;

/// How many queues a page has at most.
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

/// A page of the queues that the caller may use, sorted by name.
#[derive(Serialize, ToSchema)]
pub(super) struct Queues {
    queues: Vec<Listed>,
    /// The address of the next page; null at the end. The header `Link` has it too.
    next: Option<String>,
    /// How long ago Redis last answered the server's poller.
    age_ms: u64,
    /// Whether all queues are known that there were `names_age_ms` ago: not before the first scan of the
    /// keys has ended, nor if the last one began more than 5 minutes and twice its own time ago, nor if
    /// there are more than 10,000.
    complete: bool,
    /// How long ago the last scan of all keys began: a queue that was created since may be missing.
    /// Missing before the first scan has ended, and if the server has a list of names.
    #[serde(skip_serializing_if = "Option::is_none")]
    names_age_ms: Option<u64>,
    /// Why Redis does not answer now. The counts are of before.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// A queue of a list or an event.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Listed {
    queue: String,
    /// Null if the server has not read the queue yet, cannot read it, or there is no such queue.
    counts: Option<Counts>,
    /// How old the counts are.
    age_ms: Option<u64>,
    /// Why the server cannot read the queue, or a part of it, now. Meanwhile `overdue_ms` grows.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What a queue holds and has done.
#[derive(Debug, Serialize, ToSchema)]
struct Counts {
    /// Whether an operator paused it.
    paused: bool,
    /// Whether as many messages are leased as `max_leased` allows.
    full: bool,
    /// For how long nothing is claimed; 0: the queue is open.
    closed_ms: u64,
    /// Messages that wait for their due time, also between two attempts.
    scheduled: u64,
    /// Of these, how many are past their due time.
    due: u64,
    /// Due messages that wait for a free handler.
    ready: u64,
    /// Messages with a handler.
    leased: u64,
    /// Messages that were given up.
    dead: u64,
    /// Age of the oldest due message that nobody has claimed.
    overdue_ms: u64,
    /// Live workers.
    nodes: u64,
    /// Recurring schedules.
    schedules: u64,
    /// Messages pushed since the queue was created, as the following counts.
    pushed: u64,
    /// Deliveries made.
    claimed: u64,
    /// Deliveries acked.
    acked: u64,
    /// Deliveries settled with `retry`.
    retried: u64,
    /// Leases that ran out.
    crashed: u64,
    /// Messages that died.
    died: u64,
    /// Messages cancelled.
    cancelled: u64,
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
        dueq::queue_keys(after)
            .map_err(|error| Problem::new(Code::InvalidInput, format!("after: {error}")))?;
    }
    let snapshot = app.poller.looked_within(patience).await;
    let age_ms = known(&snapshot)?;
    let allowed = snapshot.after(page.after.as_deref());
    let mut allowed = allowed.filter(|(name, _)| principal.may_use(name));
    let queues: Vec<_> = allowed
        .by_ref()
        .take(limit)
        .map(|(name, entry)| Listed::new(name, Some(entry)))
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

/// The age of the snapshot, or the problem that Redis has never answered.
pub(crate) fn known(snapshot: &Snapshot) -> Result<u64, Problem> {
    match (snapshot.age(), snapshot.failure()) {
        (Some(age), _) => Ok(ms(age)),
        (None, Some(failure)) => Err(Problem::new(Code::RedisUnavailable, failure)),
        (None, None) => {
            let detail = "Redis has not answered yet; try again";
            Err(Problem::new(Code::RedisUnavailable, detail))
        }
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Listed {
    pub(crate) fn new(queue: &str, entry: Option<&Entry>) -> Self {
        let stats = entry.and_then(Entry::stats);
        Self {
            queue: queue.to_owned(),
            counts: stats.map(|stats| Counts {
                overdue_ms: entry.and_then(Entry::overdue_ms).unwrap_or_default(),
                ..Counts::new(stats)
            }),
            age_ms: entry.and_then(Entry::age).map(ms),
            error: entry.and_then(Entry::error).map(str::to_owned),
        }
    }
}

impl Counts {
    fn new(stats: &dueq::Stats) -> Self {
        Self {
            paused: stats.paused,
            full: stats.full,
            closed_ms: stats.closed_ms,
            scheduled: stats.scheduled,
            due: stats.due,
            ready: stats.ready,
            leased: stats.leased,
            dead: stats.dead,
            overdue_ms: stats.overdue_ms,
            nodes: stats.nodes,
            schedules: stats.schedules,
            pushed: stats.pushed,
            claimed: stats.claimed,
            acked: stats.acked,
            retried: stats.retried,
            crashed: stats.crashed,
            died: stats.died,
            cancelled: stats.cancelled,
        }
    }
}
