//! Metrics for Prometheus.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use crate::app::Shared;
use crate::auth::Principal;
use crate::metrics::page;

pub(super) fn routes() -> Vec<UtoipaMethodRouter<Shared>> {
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
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(CONTENT_TYPE, kind)], page(&app, &principal, &snapshot)).into_response()
}
