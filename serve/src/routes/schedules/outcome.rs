//! The outcome of a change of a schedule, and the problem if the schedule does not exist.

use serde::Serialize;
use utoipa::ToSchema;

use crate::edge::path::{QueueName, ScheduleName};
use crate::edge::problem::{Code, Problem};
use crate::edge::shown::quoted;
use crate::work::App;

/// What became of a schedule.
#[derive(Serialize, ToSchema)]
pub(super) struct ScheduleOutcome {
    /// Its name.
    pub(super) schedule: String,
    /// `created`, `changed`, `kept` as it is, `removed`, `paused` or `resumed`. Of a trigger:
    /// `created`, or `exists` if the queue had the tick already.
    pub(super) outcome: &'static str,
    /// Its next fire, if the call declares it and it is neither paused nor over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_ms: Option<u64>,
    /// The id of the tick that a trigger made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
}

impl ScheduleOutcome {
    pub(super) fn new(schedule: impl Into<String>, outcome: &'static str) -> Self {
        Self {
            schedule: schedule.into(),
            outcome,
            next_ms: None,
            id: None,
        }
    }
}

/// The problem if the queue has no schedule with this name; it says so if the queue itself does not
/// exist.
pub(super) async fn absent(app: &App, queue: &QueueName, name: &ScheduleName) -> Problem {
    match app.existing(queue).await {
        Ok(_) => {
            let (queue, name) = (quoted(queue.as_str()), quoted(name.as_str()));
            let detail = format!("queue {queue} has no schedule {name}");
            Problem::new(Code::NoSuchSchedule, detail)
        }
        Err(problem) => problem,
    }
}
