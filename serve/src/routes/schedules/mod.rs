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
