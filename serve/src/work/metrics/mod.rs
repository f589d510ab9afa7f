//! The page `/metrics`.

mod queues;
mod text;

use crate::edge::Edge;
use crate::edge::auth::Principal;
use crate::work::metrics::text::Text;
use crate::work::poll::Snapshot;

/// All metrics that the caller may see, in Prometheus' text format. `free_handlers` belongs to the
/// node that claims for callers; `None` without a node.
pub(crate) fn page(
    edge: &Edge,
    free_handlers: Option<usize>,
    principal: &Principal,
    snapshot: &Snapshot,
) -> String {
    let mut text = Text::default();
    queues::write(&mut text, principal, snapshot);
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
    if let Some(free) = free_handlers {
        text.gauge(
            "dueq_serve_free_handlers",
            "Handlers that no claim in flight has; 1048576 if none is in flight.",
            free as f64,
        );
    }
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

fn requests(text: &mut Text, edge: &Edge) {
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
