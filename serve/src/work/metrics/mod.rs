//! The page `/metrics`.

mod process;
mod queues;
mod server;

use std::sync::Arc;

use dueq::admin::Checkup;
use dueq::metrics::PrometheusText;

use crate::edge::Edge;
use crate::edge::auth::Principal;
use crate::work::poll::Snapshot;

pub(crate) use process::Process;

/// All metrics that the caller may see, in Prometheus' text format. `server` is the latest
/// examination of Redis, if there is one.
pub(crate) fn page(
    edge: &Edge,
    process: &Process,
    principal: &Principal,
    snapshot: &Snapshot,
    server: Option<Arc<Checkup>>,
) -> String {
    let mut text = PrometheusText::default();
    process.write(&mut text);
    queues::write(&mut text, principal, snapshot);
    if let Some(checkup) = server {
        server::write(&mut text, &checkup);
    }
    requests(&mut text, edge);
    let (bodies, bytes) = edge.bodies.in_use();
    text.gauge(
        "dueq_serve_connections",
        "Open connections.",
        edge.meters.connections.value() as f64,
    );
    text.gauge(
        "dueq_serve_streams",
        "Open streams of events.",
        edge.meters.streams.value() as f64,
    );
    text.gauge(
        "dueq_serve_claims",
        "Claims that wait for messages.",
        edge.meters.claims.value() as f64,
    );
    text.gauge(
        "dueq_serve_bodies",
        "Bodies in memory: of requests, and of answers with deliveries.",
        bodies as f64,
    );
    text.gauge(
        "dueq_serve_body_bytes",
        "Bytes of these bodies in memory.",
        bytes as f64,
    );
    text.into_string()
}

fn requests(text: &mut PrometheusText, edge: &Edge) {
    let name = "dueq_serve_requests_total";
    text.metric(
        name,
        "counter",
        "Requests by route, method and class of status.",
    );
    for (route, method, class, count) in edge.meters.requests.counts() {
        let status = format!("{class}xx");
        let labels = [("route", &*route), ("method", method), ("status", &*status)];
        text.sample(name, &labels, count as f64);
    }
    let name = "dueq_serve_problems_total";
    text.metric(
        name,
        "counter",
        "Requests that were refused or failed, by the code of the problem.",
    );
    for (code, count) in edge.meters.requests.problems() {
        text.sample(name, &[("code", code)], count as f64);
    }
}
