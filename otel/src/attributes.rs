//! The tracer, and the names of attributes.

use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use opentelemetry::global::{self, BoxedSpan, BoxedTracer};
use opentelemetry::trace::{
    Span, SpanBuilder, SpanContext, SpanId, Status, TraceContextExt, TraceFlags, TraceId,
    TraceState, Tracer,
};
use opentelemetry::{Context, InstrumentationScope, KeyValue};

/// The most characters of an error that a span keeps, so that the memory of a full queue of spans
/// is bounded.
const ERROR_CHARS: usize = 256;

pub(crate) const ERROR_TYPE: &str = "error.type";
pub(crate) const MESSAGE_ID: &str = "messaging.message.id";

/// The tracer of the provider that is the global one now; `None` if no provider was set.
pub(crate) fn tracer() -> Option<BoxedTracer> {
    /// Once there is a provider, its tracers are not examined any more: that costs as much as a span.
    static IS_SET: AtomicBool = AtomicBool::new(false);
    let scope = InstrumentationScope::builder("dueq").with_version(env!("CARGO_PKG_VERSION"));
    let tracer = global::tracer_with_scope(scope.build());
    if !IS_SET.load(Ordering::Relaxed) {
        if !is_provided(&tracer) {
            return None;
        }
        IS_SET.store(true, Ordering::Relaxed);
    }
    Some(tracer)
}

/// Whether a tracer is one of a provider. The tracer without a provider gives each span the context
/// of its parent. The suppression keeps this span from exporters.
fn is_provided(tracer: &BoxedTracer) -> bool {
    static PARENT: OnceLock<Context> = OnceLock::new();
    let parent = PARENT.get_or_init(|| {
        let parent = SpanContext::new(
            TraceId::from(1),
            SpanId::from(1),
            TraceFlags::default(),
            true,
            TraceState::default(),
        );
        Context::new()
            .with_remote_span_context(parent)
            .with_telemetry_suppressed()
    });
    let span = tracer.build_with_context(SpanBuilder::from_name("send"), parent);
    span.span_context() != parent.span().span_context()
}

/// The name of a span. `format!` takes twice as long, and each push and each run has a name.
pub(crate) fn name(operation: &'static str, queue: &str) -> String {
    [operation, " ", queue].concat()
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
