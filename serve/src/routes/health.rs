//! Health: for load balancers and supervisors, without a token. Metrics for Prometheus.

use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use dueq::Client;
use serde::Serialize;
use tokio::sync::Mutex;
use utoipa::ToSchema;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use crate::app::Shared;
use crate::auth::Principal;
use crate::metrics::page;
use crate::problem::{Code, Document, Problem};
use crate::routes::declared::declared;

/// How long Redis may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How old the last answer may be: probes need no token, and must not load Redis.
const MAX_AGE: Duration = Duration::from_secs(1);

/// Whether Redis answers, as of the last question. Probes share it.
#[derive(Default)]
pub(crate) struct RedisProbe(Mutex<Option<(Instant, bool)>>);

impl RedisProbe {
    async fn answers(&self, client: &Client) -> bool {
        let mut last = self.0.lock().await;
        if let Some((at, answers)) = *last
            && at.elapsed() < MAX_AGE
        {
            return answers;
        }
        // A step of a scan: while Redis loads its data, it answers TIME, and nothing that serves a call.
        let mut scan = client.scan_queues();
        let asked = tokio::time::timeout(PATIENCE, scan.next()).await;
        // A user without the right to scan gets an answer, too.
        let answers =
            asked.is_ok_and(|step| step.map_or_else(|error| !error.is_retryable(), |_| true));
        *last = Some((Instant::now(), answers));
        answers
    }
}

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(declared(routes!(healthz)))
        .routes(declared(routes!(readyz)))
}

/// The health of the server.
#[derive(Serialize, ToSchema)]
struct Health {
    /// Always `ok`: a server that is not well answers with a problem.
    status: &'static str,
}

const OK: Json<Health> = Json(Health { status: "ok" });

/// Whether the server runs
///
/// It does if it answers. Restart it if it does not.
#[utoipa::path(get, path = "/healthz", tag = "health", security(()), responses((status = 200, body = Health)))]
async fn healthz() -> Json<Health> {
    OK
}

/// Whether the server can serve requests
///
/// Not while it stops, while Redis does not answer, or while the tokens file cannot be read. Send it
/// no requests then.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "health",
    security(()),
    responses(
        (status = 200, body = Health),
        (status = 503, body = Document, content_type = "application/problem+json"),
    )
)]
async fn readyz(State(app): State<Shared>) -> Result<Json<Health>, Problem> {
    if app.life.is_stopping() {
        return Err(Problem::new(
            Code::Stopping,
            "the server finishes its requests",
        ));
    }
    if let Some(tokens) = app.gate.tokens() {
        // Callers without a token learn no path.
        tokens.current().map_err(|_| {
            Problem::new(
                Code::TokensUnreadable,
                "the log of the server has the reason",
            )
        })?;
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
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(CONTENT_TYPE, kind)], page(&app, &principal, &snapshot)).into_response()
}
