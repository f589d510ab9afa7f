//! The numbers that `/metrics` shows, and their text format.

mod queues;
mod requests;

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use requests::{Requests, counted};

use crate::app::App;
use crate::auth::Principal;
use crate::poll::Snapshot;

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

/// A page of metrics. The samples of a metric follow its header.
#[derive(Default)]
pub(super) struct Text(String);

impl Text {
    /// Begins a metric; `kind` is `counter` or `gauge`.
    pub(super) fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A sample of the metric.
    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (number, (label, value)) in labels.iter().enumerate() {
            let opening = if number == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{opening}{label}=\"");
            for c in value.chars() {
                match c {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    c => self.0.push(c),
                }
            }
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    /// A gauge without labels.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.metric(name, "gauge", help);
        self.sample(name, &[], value);
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_whole_numbers_stay_whole() {
        let mut text = Text::default();
        text.metric("m", "counter", "Help.");
        text.sample("m", &[("queue", "a\"b\\c\nd"), ("x", "")], 1e15);
        text.gauge("g", "Other.", 0.25);
        let expected = "# HELP m Help.\n# TYPE m counter\n\
                        m{queue=\"a\\\"b\\\\c\\nd\",x=\"\"} 1000000000000000\n\
                        # HELP g Other.\n# TYPE g gauge\ng 0.25\n";
        assert_eq!(text.into_string(), expected);
    }
}
