//! The span of a push: `send QUEUE`.

use std::fmt;

use dueq::{Codec, Error, ErrorKind, Message, Queue, Receipt};
use opentelemetry::global::BoxedSpan;
use opentelemetry::trace::{Span, SpanBuilder, SpanContext, SpanKind, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};

use crate::attributes::{ERROR_TYPE, MESSAGE_ID, describe, failure, name, tracer};
use crate::context::{parse, text};

/// Pushes a message in a span `send QUEUE`, a child of the current span. If the sampler has chosen
/// the span, the message gets its context instead of one that it had.
///
/// Without a global tracer provider this is [`Queue::push_message`].
///
/// # Errors
/// Those of [`Queue::push_message`]; the span's `error.type` is then the
/// [`ErrorKind`](dueq::ErrorKind) in small letters, such as `invalid_input`.
///
/// ```
/// # dueq_testkit::doctest!(|orders| {
/// use dueq::Message;
///
/// let message = Message::new("42").id("order:42");
/// assert!(dueq_opentelemetry::send(&orders, message).await?.is_created());
/// # });
/// ```
pub async fn send<C: Codec>(queue: &Queue<C>, message: Message) -> Result<Receipt, Error> {
    let mut sending = Sending::start(queue.name(), None);
    let message = match sending.trace_parent() {
        Some(trace_parent) => message.trace_parent(trace_parent),
        None => message,
    };
    let result = queue.push_message(message).await;
    match &result {
        Ok(receipt) => sending.message_id(receipt.id_bytes()),
        Err(error) => sending.failed(kind(error.kind()), &error.to_string()),
    }
    result
}

/// The running span `send QUEUE` of one push or many, for code that pushes otherwise than by
/// [`send`]: by [`push_many`](dueq::Queue::push_many), or as a server for others. It ends when it
/// is dropped.
///
/// ```
/// # dueq_testkit::doctest!(|orders| {
/// use dueq::Message;
/// use dueq_opentelemetry::Sending;
///
/// let mut sending = Sending::start(orders.name(), None);
/// let messages = (0..10).map(|number| {
///     let message = Message::new("rate it").id(format!("order:{number}"));
///     match sending.trace_parent() {
///         Some(trace_parent) => message.trace_parent(trace_parent),
///         None => message,
///     }
/// });
/// let results = orders.push_many(messages).await;
/// if results.iter().any(Result::is_err) {
///     sending.failed("incomplete", "not all messages were pushed");
/// }
/// # });
/// ```
pub struct Sending {
    /// `None` without a global tracer provider.
    span: Option<BoxedSpan>,
    caller: Option<SpanContext>,
}

impl Sending {
    /// Starts the span. It is a child of `trace_parent`, the context of a caller in another
    /// process, if that is a `traceparent` of version 00, and else of the current span.
    pub fn start(queue: &str, trace_parent: Option<&str>) -> Self {
        let caller = trace_parent.and_then(parse);
        let span = tracer().map(|tracer| {
            let parent = match &caller {
                Some(remote) => Context::new().with_remote_span_context(remote.clone()),
                None => Context::current(),
            };
            let builder = SpanBuilder::from_name(name("send", queue)).with_kind(SpanKind::Producer);
            let mut span = tracer.build_with_context(builder, &parent);
            if span.is_recording() {
                describe(&mut span, "send", queue);
            }
            span
        });
        Self { span, caller }
    }

    /// The context for [`Message::trace_parent`]: that of the span if the sampler has chosen it, and
    /// else that of the caller in another process, if there is one.
    ///
    /// A message with a context of its own costs Redis about twice as much as one without. The
    /// context of an unsampled span would name a span that no collector receives.
    pub fn trace_parent(&self) -> Option<String> {
        let own = self.span.as_ref().map(Span::span_context);
        let exported = own.filter(|context| context.is_sampled());
        exported.or(self.caller.as_ref()).and_then(text)
    }

    /// Says which message was pushed, if it was only one.
    pub fn message_id(&mut self, id: &[u8]) {
        if let Some(span) = self.span.as_mut().filter(|span| span.is_recording()) {
            let id = String::from_utf8_lossy(id).into_owned();
            span.set_attribute(KeyValue::new(MESSAGE_ID, id));
        }
    }

    /// Says that the push failed. `error_type` is one of few words, without ids or texts; of
    /// `reason` the span keeps 256 characters.
    pub fn failed(&mut self, error_type: &'static str, reason: &str) {
        if let Some(span) = &mut self.span {
            span.set_attribute(KeyValue::new(ERROR_TYPE, error_type));
            span.set_status(failure(reason));
        }
    }
}

impl fmt::Debug for Sending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sending").finish_non_exhaustive()
    }
}

fn kind(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidInput => "invalid_input",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::Timeout => "timeout",
        ErrorKind::Unconfirmed => "unconfirmed",
        ErrorKind::Full => "full",
        ErrorKind::Denied => "denied",
        ErrorKind::Unsupported => "unsupported",
        ErrorKind::Server => "server",
        ErrorKind::Internal => "internal",
        // The kinds may grow.
        _ => "_OTHER",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_provider_only_the_caller_is_carried() {
        let caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        let carried = |caller| Sending::start("orders", caller).trace_parent();
        assert_eq!(carried(Some(caller)).as_deref(), Some(caller));
        assert_eq!(carried(Some("00-x")), None);
        assert_eq!(carried(None), None);
    }
}
