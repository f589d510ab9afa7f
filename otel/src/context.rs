//! Trace contexts as the text of a `traceparent`.

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};

/// The context of the current span as a [`traceparent`](https://www.w3.org/TR/trace-context/), for
/// an environment variable or a header; `None` outside of a span.
///
/// In a handler below a [`TraceLayer`](crate::TraceLayer) that is the span of this run, also if the
/// sampler has not chosen it: the flag in the text says so. `opentelemetry::Context::current()` has
/// the same context for other crates. The text is 55 bytes long.
///
/// ```
/// assert_eq!(dueq_opentelemetry::trace_parent(), None);
/// ```
pub fn trace_parent() -> Option<String> {
    Context::map_current(|context| text(context.span().span_context()))
}

/// The text of a context, if it is one of a span.
pub(crate) fn text(of: &SpanContext) -> Option<String> {
    let (trace, span, flags) = (of.trace_id(), of.span_id(), of.trace_flags());
    of.is_valid()
        .then(|| format!("00-{trace}-{span}-{flags:02x}"))
}

/// Reads a `traceparent` of version 00; `None` if it is anything else.
pub(crate) fn parse(text: &str) -> Option<SpanContext> {
    let is_field = |field: &str, digits: usize| {
        let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        field.len() == digits && field.bytes().all(is_digit)
    };
    let mut fields = text.split('-');
    let (version, trace, span) = (fields.next()?, fields.next()?, fields.next()?);
    let (flags, end) = (fields.next()?, fields.next());
    let is_whole = version == "00" && is_field(trace, 32) && is_field(span, 16);
    if !is_whole || !is_field(flags, 2) || end.is_some() {
        return None;
    }
    let context = SpanContext::new(
        TraceId::from_hex(trace).ok()?,
        SpanId::from_hex(span).ok()?,
        TraceFlags::new(u8::from_str_radix(flags, 16).ok()?),
        true,
        TraceState::default(),
    );
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_contexts_are_read() {
        let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        for flags in ["00", "01", "ff"] {
            let whole = format!("00-{trace}-{span}-{flags}");
            assert_eq!(parse(&whole).and_then(|read| text(&read)), Some(whole));
        }
        for wrong in [
            String::new(),
            format!("01-{trace}-{span}-01"),
            format!("00-{trace}-{span}"),
            format!("00-{trace}-{span}-01-x"),
            format!("00-{trace}-{span}-1"),
            format!("00-{trace}-{span}-+1"),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{trace}\u{e9}-{span}-01"),
        ] {
            assert_eq!(parse(&wrong), None, "{wrong}");
        }
    }
}
