//! The tracer, and the names of attributes.

use std::borrow::Cow;

use opentelemetry::global::{self, BoxedSpan, BoxedTracer};
use opentelemetry::trace::{Span, Status};
use opentelemetry::{InstrumentationScope, KeyValue};

/// The most characters of an error that a span keeps, so that the memory of a full queue of spans
/// is bounded.
const ERROR_CHARS: usize = 256;

pub(crate) const ERROR_TYPE: &str = "error.type";
pub(crate) const MESSAGE_ID: &str = "messaging.message.id";

/// The tracer of the provider that is the global one now.
pub(crate) fn tracer() -> BoxedTracer {
    let scope = InstrumentationScope::builder("dueq").with_version(env!("CARGO_PKG_VERSION"));
    global::tracer_with_scope(scope.build())
}

/// Sets the attributes that every span has.
pub(crate) fn describe(span: &mut BoxedSpan, operation: &'static str, queue: &str) {
    span.set_attributes([
        KeyValue::new("messaging.system", "dueq"),
        KeyValue::new("messaging.operation.name", operation),
        KeyValue::new("messaging.operation.type", operation),
        KeyValue::new("messaging.destination.name", queue.to_owned()),
    ]);
}

/// The status of a failed span.
pub(crate) fn failure(text: &str) -> Status {
    let end = text.char_indices().nth(ERROR_CHARS).map(|(at, _)| at);
    Status::error(Cow::Owned(
        text.get(..end.unwrap_or(text.len()))
            .unwrap_or_default()
            .to_owned(),
    ))
}
