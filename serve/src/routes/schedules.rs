//! Recurring schedules: list, read, preview, declare, pause, trigger, remove.

mod apply;
mod change;
mod declare;
mod fires;
mod list;
mod read;
mod schema;

use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use crate::app::{App, Shared};
use crate::path::{QueueName, ScheduleName};
use crate::problem::{Code, Problem};
use crate::shown::quoted;

/// Reads. Payloads are left out for callers who may not read them.
pub(super) fn reads() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![
        routes!(list::list_schedules),
        routes!(read::read_schedule),
        routes!(fires::next_fires),
        routes!(fires::preview_fires),
    ]
}

/// Changes. The rights of the library's calls are those of operators, that of a trigger too.
pub(super) fn changes() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![
        routes!(apply::apply_schedules),
        routes!(declare::declare_schedule, change::remove_schedule),
        routes!(change::pause_schedule, change::resume_schedule),
        routes!(change::trigger_schedule),
    ]
}

/// What became of a schedule.
#[derive(Serialize, ToSchema)]
struct ScheduleOutcome {
    /// Its name.
    schedule: String,
    /// `created`, `changed`, `kept` as it is, `removed`, `paused` or `resumed`. Of a trigger:
    /// `created`, or `exists` if the queue had the tick already.
    outcome: &'static str,
    /// Its next fire, if the call declares it and it is neither paused nor over.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_ms: Option<u64>,
    /// The id of the tick that a trigger made.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
}

impl ScheduleOutcome {
    fn new(schedule: impl Into<String>, outcome: &'static str) -> Self {
        Self {
            schedule: schedule.into(),
            outcome,
            next_ms: None,
            id: None,
        }
    }
}

/// The problem of a name that the queue has no schedule of: there may be no queue at all.
async fn absent(app: &App, queue: &QueueName, name: &ScheduleName) -> Problem {
    match app.existing(queue).await {
        Ok(_) => {
            let (queue, name) = (quoted(queue.as_str()), quoted(name.as_str()));
            let detail = format!("queue {queue} has no schedule {name}");
            Problem::new(Code::NoSuchSchedule, detail)
        }
        Err(problem) => problem,
    }
}
