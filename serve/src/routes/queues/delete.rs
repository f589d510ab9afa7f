//! Deletes a queue, if it is still the one that the caller has read.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::IF_MATCH;
use dueq::outcomes::DeleteOutcome;
use serde::Serialize;
use utoipa::ToSchema;

use crate::edge::path::QueueName;
use crate::edge::problem::{Code, Problem};
use crate::edge::shown::quoted;
use crate::routes::declared::Tags;
use crate::work::Shared;

/// What was done.
#[derive(Serialize, ToSchema)]
pub(super) struct QueueDeleted {
    queue: String,
    /// `deleted`.
    outcome: &'static str,
}

/// Delete a queue
///
/// With all its messages. `If-Match` has the `ETag` of the queue that the caller has read: one that
/// was deleted and created again since stays. `*` deletes whichever there is. Handlers that run cannot settle their deliveries then.
/// Workers serve the queue again after the next push. If the reply is lost, the same call answers 404
/// once it is done.
#[utoipa::path(
    delete,
    path = "/v1/queues/{queue}",
    tag = "queues",
    params(
        ("If-Match" = String, Header, description = "The `ETag` of the queue, or `*` for whichever there is", pattern = "^(\\*|\"[!#-+.-~-]+\")$"),
    ),
    responses(
        (status = 200, body = QueueDeleted),
        (status = 404),
        (status = 412, description = "The queue is not the one of `If-Match`"),
        (status = 428, description = "`If-Match` is missing"),
        (status = 504),
    )
)]
pub(super) async fn delete_queue(
    State(app): State<Shared>,
    name: QueueName,
    headers: HeaderMap,
) -> Result<Json<QueueDeleted>, Problem> {
    let Some(tags) = Tags::read(&headers, &IF_MATCH)? else {
        let detail = "If-Match: send the ETag of the queue, which GET answers, so that only that queue is deleted";
        return Err(Problem::new(Code::IfMatchRequired, detail));
    };
    let queue = app.client.queue(name.as_str())?;
    let changed = || {
        let detail = format!(
            "nothing was deleted: queue {} is not the one of If-Match; it was deleted and created again, or If-Match \
             is of another queue",
            quoted(name.as_str())
        );
        Problem::new(Code::QueueChanged, detail)
    };
    let found = match queue.incarnation().await? {
        Some(found) => found,
        None => {
            app.existing(&name).await?;
            return Err(changed()); // a damaged queue has no incarnation
        }
    };
    if !tags.has(&found, false) {
        return Err(changed());
    }
    match queue.delete_incarnation(&found).await? {
        DeleteOutcome::Deleted => Ok(Json(QueueDeleted {
            queue: name.as_str().to_owned(),
            outcome: "deleted",
        })),
        DeleteOutcome::Absent => {
            app.existing(&name).await?;
            Err(changed()) // the queue was deleted and created again meanwhile
        }
        _ => Err(changed()),
    }
}
