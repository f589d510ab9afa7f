//! What is known about a queue as a whole: when its messages are due, its workers, its errors.

mod backlog;
mod dues;
mod errors;
mod nodes;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::Shared;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(dues::dues))
        .routes(routes!(nodes::nodes))
        .routes(routes!(errors::errors))
        .routes(routes!(backlog::backlog))
}
