//! What is known about a queue as a whole: when its messages are due, its workers, its errors.

mod backlog;
mod dues;
mod errors;
mod history;
mod nodes;

use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use crate::app::Shared;

#[cfg(any(test, feature = "harness"))]
pub(crate) use dues::check as check_dues;
pub(crate) use errors::{died_by_crash, error_line};

pub(super) fn routes() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![
        routes!(dues::dues),
        routes!(history::history),
        routes!(nodes::nodes),
        routes!(errors::errors),
        routes!(backlog::backlog),
    ]
}
