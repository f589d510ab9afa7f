//! The numbers that `/metrics` shows.

mod queues;
mod requests;
mod text;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::app::App;
use crate::auth::Principal;
use crate::poll::Snapshot;

pub(crate) use requests::{Requests, counted};

use text::Text;

/// A number of things that exist now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gauge(Arc<AtomicU64>);

/// One of these things, until it is dropped.
#[derive(Debug)]
pub(crate) struct One(Gauge);

impl Gauge {
    pub(crate) fn one(&self) -> One {
        self.0.fetch_add(1, Ordering::Relaxed);
        One(self.clone())
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the server counts about itself.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    pub(crate) requests: Requests,
    pub(crate) connections: Gauge,
    pub(crate) streams: Gauge,
    pub(crate) claims: Gauge,
}

/// All metrics that the caller may see, in Prometheus' text format.
pub(crate) fn page(app: &App, principal: &Principal, snapshot: &Snapshot) -> String {
    let mut text = Text::default();
    queues::write(&mut text, principal, snapshot);
    app.meters.requests.write(&mut text);
    let (bodies, bytes) = app.bodies.in_use();
    text.gauge(
        "dueq_serve_connections",
        "Open connections.",
        app.meters.connections.value() as f64,
    );
    text.gauge(
        "dueq_serve_streams",
        "Open streams of events.",
        app.meters.streams.value() as f64,
    );
    text.gauge(
        "dueq_serve_claims",
        "Claims that wait for messages.",
        app.meters.claims.value() as f64,
    );
    if let Some(free) = app.claims.attended.free_handlers() {
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
