//! The backlog of a queue as numbers, for autoscalers.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::edge::path::QueueName;
use crate::edge::problem::Problem;
use crate::work::Shared;

/// How far ahead the call counts due messages, in milliseconds.
const AHEAD_MS: [u64; 4] = [10_000, 60_000, 300_000, 900_000];

/// The backlog of a queue.
#[derive(Serialize, ToSchema)]
pub(super) struct Backlog {
    /// Messages that wait for a handler now: ready ones, and scheduled ones past their due time.
    due_now: u64,
    /// Messages with a handler.
    leased: u64,
    /// Messages that need a handler now or have one.
    work: u64,
    /// Messages that wait for a handler now, or will be due within 10 s.
    due_in_10_s: u64,
    /// The same within a minute.
    due_in_60_s: u64,
    /// The same within five minutes.
    due_in_300_s: u64,
    /// The same within 15 minutes.
    due_in_900_s: u64,
    /// All scheduled messages, whenever they are due.
    scheduled: u64,
    /// Messages that were given up.
    dead: u64,
    /// For how long the oldest due message has waited. Grows while a part of the queue cannot be read.
    overdue_s: f64,
    /// Live workers.
    nodes: u64,
    /// How many partitions could not be read: their messages are in no number.
    unread: usize,
    /// 1 if an operator paused the queue, or it is closed for some time; else 0.
    closed: u64,
}

/// Read the backlog of a queue
///
/// A flat object of numbers for autoscalers, such as KEDA's `metrics-api`. `due_in_60_s` lets workers
/// start before the messages are due.
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}/backlog",
    tag = "queues",
    responses(
        (status = 200, body = Backlog),
        (status = 404),
    )
)]
pub(super) async fn backlog(
    State(app): State<Shared>,
    name: QueueName,
) -> Result<Json<Backlog>, Problem> {
    app.poller.look([name.as_str()]);
    let queue = app.client.queue(name.as_str())?;
    let reached = queue.stats_reached().await?;
    if reached.value == dueq::QueueStats::default() && reached.unread.is_empty() {
        app.existing(&name).await?;
    }
    let stats = &reached.value;
    let now_ms = queue.dues_reached(&[]).await?.value.now_ms;
    let times = AHEAD_MS.map(|ahead_ms| now_ms + ahead_ms);
    let dues = queue.dues_reached(&times).await?.value;
    let snapshot = app.poller.snapshot();
    let polled = snapshot
        .get(name.as_str())
        .filter(|_| !reached.unread.is_empty());
    let polled_ms = polled.and_then(|entry| entry.overdue_ms());
    let overdue_ms = stats.overdue_ms.max(polled_ms.unwrap_or(0));
    // Sums over the slots. The first slot contains everything before its end, also overdue
    // messages.
    let mut due_by = dues.counts.iter().scan(stats.ready, |sum, count| {
        *sum += count;
        Some(*sum)
    });
    let mut next = || due_by.next().unwrap_or(stats.ready);
    let due_now = stats.ready + stats.due;
    Ok(Json(Backlog {
        due_now,
        leased: stats.leased,
        work: due_now + stats.leased,
        due_in_10_s: next(),
        due_in_60_s: next(),
        due_in_300_s: next(),
        due_in_900_s: next(),
        scheduled: stats.scheduled,
        dead: stats.dead,
        overdue_s: overdue_ms as f64 / 1_000.0,
        unread: reached.unread.len(),
        nodes: stats.nodes,
        closed: u64::from(stats.paused || stats.closed_ms > 0),
    }))
}
