//! Recurring schedules: list, read, preview, declare, pause, trigger, remove.

mod apply;
mod change;
mod declare;
mod fires;
mod list;
mod outcome;
mod read;
mod schema;

use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use crate::work::Shared;

/// The routes that read schedules. Callers without the right to read payloads get none.
pub(super) fn reads() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![
        routes!(list::list_schedules),
        routes!(read::read_schedule),
        routes!(fires::next_fires),
        routes!(fires::preview_fires),
    ]
}

/// The routes that change schedules. They need the right to operate, also for a trigger.
pub(super) fn changes() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![
        routes!(apply::apply_schedules),
        routes!(declare::declare_schedule, change::remove_schedule),
        routes!(change::pause_schedule, change::resume_schedule),
        routes!(change::trigger_schedule),
    ]
}
