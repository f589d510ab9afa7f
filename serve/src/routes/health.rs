//! Health for load balancers and supervisors, without a token; and metrics for Prometheus.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use dueq::metrics::PrometheusText;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use crate::edge::auth::Principal;
use crate::edge::problem::{Code, Problem};
use crate::routes::declared::declared;
use crate::work::Shared;
use crate::work::metrics::{Process, page};

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(declared(routes!(healthz)))
        .routes(declared(routes!(readyz)))
}

/// The health of the server.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// Always `ok`: a server that is not well answers with a problem.
    status: &'static str,
}

pub(crate) const OK: Json<Health> = Json(Health { status: "ok" });

/// Whether the server runs
///
/// It does if it answers. Restart it if it does not.
#[utoipa::path(get, path = "/healthz", tag = "health", security(()), responses((status = 200, body = Health)))]
async fn healthz() -> Json<Health> {
    OK
}

/// Whether the server can serve requests
///
/// Not while it stops, or while Redis does not answer: in a cluster, while no master does. Send it no
/// requests then.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "health",
    security(()),
    responses(
        (status = 200, body = Health),
        (status = 503),
    )
)]
async fn readyz(State(app): State<Shared>) -> Result<Json<Health>, Problem> {
    if app.edge.life.is_stopping() {
        return Err(Problem::new(
            Code::Stopping,
            "the server finishes its requests",
        ));
    }
    if !app.redis.answers(&app.client).await {
        return Err(Problem::new(
            Code::RedisUnavailable,
            "Redis does not answer",
        ));
    }
    Ok(OK)
}

pub(super) fn reads() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![routes!(metrics)]
}

/// Read metrics for Prometheus
///
/// In the text format. The series of the queues that the caller may use, at most 1,000, are from the
/// server's poller, so a scrape makes no call to Redis. They vanish when Redis has been away for
/// 30 s. Those of the server itself follow.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "about",
    responses((status = 200, description = "Prometheus' text format", body = String, content_type = "text/plain; version=0.0.4; charset=utf-8")),
)]
async fn metrics(State(app): State<Shared>, principal: Principal) -> Response {
    let snapshot = app.poller.looked().await;
    // No scrape waits for an examination: a later one has it.
    let server = app.doctor.glance(Duration::ZERO).await;
    let free = app.claims.attended.free_handlers();
    let process = Process::new(&app.client, snapshot.failure().is_none(), free);
    let page = page(&app.edge, &process, &principal, &snapshot, server);
    ([(CONTENT_TYPE, PrometheusText::MEDIA_TYPE)], page).into_response()
}
