//! The trace of a push: a span `send QUEUE` around it.

use axum::http::HeaderMap;
use axum::response::Response;
use dueq_opentelemetry::Sending;

use crate::edge::path::QueueName;
use crate::edge::problem::Problem;

/// The header with the trace context of the caller. One that is malformed is ignored, as W3C asks.
const HEADER: &str = "traceparent";

/// The span of a request that pushes. Without a tracer provider it is nothing but the caller's
/// trace context.
pub(super) struct SendSpan(Sending);

impl SendSpan {
    pub(super) fn start(name: &QueueName, headers: &HeaderMap) -> Self {
        let caller = headers.get(HEADER).and_then(|value| value.to_str().ok());
        Self(Sending::start(name.as_str(), caller))
    }

    /// What the pushed messages carry.
    pub(super) fn trace_parent(&self) -> Option<String> {
        self.0.trace_parent()
    }

    /// Ends the span of a push with this result.
    pub(super) fn end(mut self, result: Result<Response, Problem>) -> Result<Response, Problem> {
        if let Err(problem) = &result {
            self.0.failed(problem.code.word(), &problem.detail);
        }
        result
    }
}
