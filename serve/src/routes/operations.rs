//! Begins, follows and stops operations on whole queues.

use axum::body::Body;
use axum::extract::{FromRequestParts, OriginalUri, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, LOCATION};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use crate::edge::audit::Action;
use crate::edge::auth::Principal;
use crate::edge::body::JsonBody;
use crate::edge::path::{QueueName, decode, segment};
use crate::edge::problem::{Code, Problem};
use crate::wire::operations::{OperationList, OperationReport};
use crate::work::Shared;
use crate::work::events::Unfold;
use crate::work::operations::{Begun, Plan, Request};

/// Follow operations.
pub(super) fn reads() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![
        routes!(list_operations),
        routes!(list_all_operations),
        routes!(read_operation),
    ]
}

/// The messages that operations have cancelled, with their payloads.
pub(super) fn payloads() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![routes!(cancelled_messages)]
}

/// Begin and stop operations.
pub(super) fn changes() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![routes!(begin_operation), routes!(stop_operation)]
}

/// The id of the operation in the path.
struct OperationId(String);

impl<S: Sync> FromRequestParts<S> for OperationId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let raw = segment(parts, "{operation}").ok_or_else(|| {
            Problem::new(Code::Internal, "the route has no operation in its path")
        })?;
        let id = String::from_utf8(decode(raw)?);
        id.map(Self)
            .map_err(|_| Problem::new(Code::InvalidPath, "the id of the operation is not UTF-8"))
    }
}

/// Begin an operation on a queue
///
/// Requeues, purges or cancels messages, audits or repairs the queue, or changes the number of its
/// partitions. It goes on after the answer, at its pace. One of
/// each kind runs on a queue: the same call again answers the one that runs, and another of the same
/// kind is refused.
#[utoipa::path(
    post,
    path = "/v1/queues/{queue}/operations",
    tag = "operations",
    request_body = Request,
    responses(
        (status = 202, description = "It has begun", body = OperationReport, headers(("Location" = String, description = "The address of the operation"))),
        (status = 200, description = "The same operation runs already", body = OperationReport),
        (status = 404),
        (status = 409, description = "An operation of this kind runs on the queue"),
        (status = 504),
    )
)]
async fn begin_operation(
    State(app): State<Shared>,
    name: QueueName,
    OriginalUri(uri): OriginalUri,
    Extension(action): Extension<Action>,
    JsonBody(request): JsonBody<Request>,
) -> Result<Response, Problem> {
    let queue = app.existing(&name).await?;
    let plan = Plan::new(request, queue.dues(&[]).await?.now_ms)?;
    let begun = app.operations.begin(&queue, plan, action).await?;
    let address = |id: &str| format!("{}/{id}", uri.path());
    Ok(match begun {
        Begun::Running(operation) => {
            let href = address(operation.id());
            Json(operation.report(href)).into_response()
        }
        Begun::New(operation) => {
            let href = address(operation.id());
            let location = HeaderValue::from_str(&href).map(|href| [(LOCATION, href)]);
            let shown = Json(operation.report(href));
            (StatusCode::ACCEPTED, location.ok(), shown).into_response()
        }
    })
}

/// List the operations of a queue
///
/// Those of this instance: the running ones, and the last 100 that have ended.
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}/operations",
    tag = "operations",
    responses((status = 200, body = OperationList))
)]
async fn list_operations(
    State(app): State<Shared>,
    name: QueueName,
    OriginalUri(uri): OriginalUri,
) -> Json<OperationList> {
    let operations = app.operations.of_queue(name.as_str()).into_iter();
    let shown = operations.map(|operation| {
        let href = format!("{}/{}", uri.path(), operation.id());
        operation.report(href).brief()
    });
    Json(OperationList {
        operations: shown.collect(),
    })
}

/// List the operations of all queues
///
/// Those of this instance on queues that the caller may use: the running ones, and the last 100 that
/// have ended.
#[utoipa::path(
    get,
    path = "/v1/operations",
    tag = "operations",
    responses((status = 200, body = OperationList))
)]
async fn list_all_operations(
    State(app): State<Shared>,
    principal: Principal,
    OriginalUri(uri): OriginalUri,
) -> Json<OperationList> {
    let base = uri
        .path()
        .strip_suffix("/operations")
        .unwrap_or_default()
        .to_owned();
    let operations = app.operations.all().into_iter();
    let allowed = operations.filter(|operation| principal.may_use(operation.queue()));
    let shown = allowed.map(|operation| {
        let queue = dueq_input::id_path(operation.queue().as_bytes());
        let href = format!("{base}/queues/{queue}/operations/{}", operation.id());
        operation.report(href).brief()
    });
    Json(OperationList {
        operations: shown.collect(),
    })
}

/// Read how far an operation is
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}/operations/{operation}",
    tag = "operations",
    responses(
        (status = 200, body = OperationReport),
        (status = 404, description = "This instance does not know the operation"),
    )
)]
async fn read_operation(
    State(app): State<Shared>,
    name: QueueName,
    id: OperationId,
    OriginalUri(uri): OriginalUri,
) -> Result<Json<OperationReport>, Problem> {
    let operation = app.operations.get(name.as_str(), &id.0)?;
    Ok(Json(operation.report(uri.path().to_owned())))
}

/// Stop an operation
///
/// It stops after its step. What it did stays; after a repartition, the queue stays between both
/// numbers until one goes on or takes it back. An operation that has ended is as it was.
#[utoipa::path(
    post,
    path = "/v1/queues/{queue}/operations/{operation}/stop",
    tag = "operations",
    responses(
        (status = 202, description = "It stops after its step, or has ended", body = OperationReport),
        (status = 404, description = "This instance does not know the operation"),
    )
)]
async fn stop_operation(
    State(app): State<Shared>,
    name: QueueName,
    id: OperationId,
    principal: Principal,
    OriginalUri(uri): OriginalUri,
) -> Result<(StatusCode, Json<OperationReport>), Problem> {
    let operation = app.operations.get(name.as_str(), &id.0)?;
    operation.stop(principal.name());
    let href = uri.path().strip_suffix("/stop").unwrap_or_default();
    let shown = Json(operation.report(href.to_owned()));
    Ok((StatusCode::ACCEPTED, shown))
}

/// Download what an operation has cancelled
///
/// A line of JSON for each message that a cancel with `state` has cancelled so far; nothing if the
/// operation is another one. `POST messages`
/// and `dueq push --ndjson` push them again, with the options that they had; failures and crashes count
/// from 0. This instance keeps 64 MiB of such lines: new operations drop the oldest ones.
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}/operations/{operation}/cancelled",
    tag = "operations",
    responses(
        (status = 200, description = "The messages, one a line", body = String, content_type = "application/x-ndjson", headers(("Content-Disposition" = String, description = "`attachment`"))),
        (status = 404, description = "This instance does not know the operation, or dropped its lines"),
    )
)]
async fn cancelled_messages(
    State(app): State<Shared>,
    name: QueueName,
    id: OperationId,
) -> Result<Response, Problem> {
    let operation = app.operations.get(name.as_str(), &id.0)?;
    let lines = operation.cancelled().ok_or_else(|| {
        let detail = format!(
            "the lines of operation {} were dropped: newer operations needed the room",
            operation.id()
        );
        Problem::new(Code::NoSuchOperation, detail)
    })?;
    let headers = [
        (CONTENT_TYPE, "application/x-ndjson"),
        (
            CONTENT_DISPOSITION,
            "attachment; filename=\"cancelled.ndjson\"",
        ),
    ];
    let body = Unfold::new(lines.into_iter(), |mut lines| async move {
        let line = lines.next()?;
        Some((line, lines))
    });
    Ok((headers, Body::new(body)).into_response())
}
