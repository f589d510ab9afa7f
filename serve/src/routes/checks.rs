//! Passes a query string to the readers of parameters of all routes, for a check.

use axum::http::Uri;

use crate::edge::problem::Problem;
pub use crate::routes::claims::checks::http_claim;
pub use crate::routes::messages::checks::{http_cursor, http_lines};
pub use crate::routes::settlements::checks::{http_extensions, http_settlements};
use crate::routes::{messages, queues, search};

/// The problems that all readers of parameters have with this query string.
pub(crate) fn read_parameters(uri: &Uri) -> Vec<Problem> {
    let read = [
        messages::checks::list(uri),
        queues::check_dues(uri),
        search::check(uri),
    ];
    read.into_iter().filter_map(Result::err).collect()
}
