//! The spans of a handler: `process QUEUE`, and `settle QUEUE` for each delivery.

use std::sync::Arc;
use std::time::SystemTime;

use dueq::handlers::IntoSettlements;
use dueq::{Delivery, Settlement};
use opentelemetry::context::FutureExt;
use opentelemetry::global::BoxedTracer;
use opentelemetry::trace::{Link, Span, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};

use crate::attributes::{ERROR_TYPE, MESSAGE_ID, describe, failure, name, tracer};
use crate::context::parse;

/// Runs a handler of these deliveries of one queue in a span `process QUEUE`, and returns its
/// settlements: one for each delivery, in their order. For handlers of batches and other code that
/// a [`TraceLayer`](crate::TraceLayer) cannot wrap.
///
/// The span has a link for each delivery whose push had a trace context. The first failed
/// settlement decides its `error.type`: `retry` or `bury`. It is `panic` if the handler panicked,
/// and `cancelled` if the handler was dropped, such as at a time limit. If the sampler has chosen
/// the span and a worker settles a delivery, that becomes a span `settle QUEUE`.
///
/// ```
/// # dueq_testkit::doctest!(|client| {
/// use dueq::{Batch, Delivery, in_batches};
/// use dueq_opentelemetry::process;
/// use std::time::Duration;
///
/// async fn index(batch: Batch<Vec<u8>>) -> Vec<dueq::Settlement> {
///     let deliveries: Vec<Delivery> = batch.iter().map(|(_, delivery)| delivery.clone()).collect();
///     process(&deliveries, async { println!("{} pages", batch.len()) }).await
/// }
///
/// let pages = client.queue("pages")?;
/// let index = in_batches(100, Duration::from_millis(200), index);
/// let worker = client.worker().queue(&pages, index).spawn()?;
/// # worker.shutdown().await?;
/// # });
/// ```
pub async fn process<T: IntoSettlements>(
    deliveries: &[Delivery],
    handler: impl Future<Output = T>,
) -> Vec<Settlement> {
    let Some(tracer) = tracer() else {
        return handler.await.into_settlements(deliveries.len());
    };
    let processing = Processing::start(&Arc::new(tracer), deliveries);
    let handled = handler.with_context(processing.context()).await;
    let settlements = handled.into_settlements(deliveries.len());
    processing.finish(&settlements);
    settlements
}

/// The running span of a handler. If it is dropped, the handler has not returned.
pub(crate) struct Processing {
    tracer: Arc<BoxedTracer>,
    context: Context,
    /// The deliveries whose settlements become spans: none if the sampler has not chosen the span.
    settling: Vec<Delivery>,
    is_finished: bool,
}

impl Processing {
    /// Starts the span of these deliveries, which are of one queue.
    pub(crate) fn start(tracer: &Arc<BoxedTracer>, deliveries: &[Delivery]) -> Self {
        let queue = deliveries.first().map(Delivery::queue).unwrap_or_default();
        let pushes = deliveries.iter().filter_map(Delivery::trace_parent);
        let links = pushes.filter_map(parse).map(Link::with_context).collect();
        let builder = SpanBuilder::from_name(name("process", queue))
            .with_kind(SpanKind::Consumer)
            .with_links(links);
        // A root: the worker's own trace, if it has one, is not that of the message.
        let mut span = tracer.build_with_context(builder, &Context::new());
        if span.is_recording() {
            describe(&mut span, "process", queue);
            match deliveries {
                [delivery] => span.set_attributes([
                    KeyValue::new(MESSAGE_ID, delivery.id().into_owned()),
                    KeyValue::new(
                        "messaging.dueq.message.delivery_count",
                        i64::from(delivery.attempt()),
                    ),
                    KeyValue::new(
                        "messaging.dueq.message.lateness_ms",
                        delivery.lateness().as_secs_f64() * 1_000.0,
                    ),
                ]),
                _ => span.set_attribute(KeyValue::new(
                    "messaging.batch.message_count",
                    i64::try_from(deliveries.len()).unwrap_or(i64::MAX),
                )),
            }
        }
        let settling = match span.span_context().is_sampled() {
            true => deliveries.to_vec(),
            false => Vec::new(),
        };
        let context = match span.is_recording() {
            true => Context::new().with_span(span),
            // A span that records nothing would be kept in two allocations more.
            false => Context::new().with_remote_span_context(span.span_context().clone()),
        };
        Self {
            tracer: Arc::clone(tracer),
            context,
            settling,
            is_finished: false,
        }
    }

    /// The context in which the handler runs.
    pub(crate) fn context(&self) -> Context {
        self.context.clone()
    }

    /// Ends the span of a handler that returned these settlements.
    pub(crate) fn finish(mut self, settlements: &[Settlement]) {
        let failed = settlements.iter().find_map(|settlement| match settlement {
            Settlement::Retry { error, .. } => Some(("retry", failure(error))),
            Settlement::Bury(reason) => Some(("bury", failure(reason))),
            _ => None,
        });
        self.end(failed);
    }

    fn end(&mut self, failed: Option<(&'static str, Status)>) {
        self.is_finished = true;
        let span = self.context.span();
        if let Some((error_type, status)) = failed {
            span.set_attribute(KeyValue::new(ERROR_TYPE, error_type));
            span.set_status(status);
        }
        span.end();
        for delivery in self.settling.drain(..) {
            let settling = Settling {
                tracer: Arc::clone(&self.tracer),
                processed: self.context.clone(),
                queue: delivery.queue().to_owned(),
                id: delivery.id().into_owned(),
                started: SystemTime::now(),
            };
            delivery.on_settled(move |outcome| settling.finish(outcome));
        }
    }
}

impl Drop for Processing {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let failed = match std::thread::panicking() {
            true => ("panic", failure("the handler panicked")),
            false => (
                "cancelled",
                failure("the handler was dropped before it returned"),
            ),
        };
        self.end(Some(failed));
    }
}

/// What the span of a settlement needs.
struct Settling {
    tracer: Arc<BoxedTracer>,
    processed: Context,
    queue: String,
    id: String,
    started: SystemTime,
}

impl Settling {
    fn finish(self, outcome: &'static str) {
        // The handler's own call has ended before: its time is not known here.
        if outcome == "by_handler" {
            return;
        }
        let builder = SpanBuilder::from_name(name("settle", &self.queue))
            .with_kind(SpanKind::Client)
            .with_start_time(self.started);
        let mut span = self.tracer.build_with_context(builder, &self.processed);
        describe(&mut span, "settle", &self.queue);
        span.set_attribute(KeyValue::new(MESSAGE_ID, self.id));
        span.set_attribute(KeyValue::new("messaging.dueq.outcome", outcome));
        if matches!(outcome, "lost" | "gone" | "unsettled") {
            span.set_attribute(KeyValue::new(ERROR_TYPE, outcome));
            span.set_status(failure(match outcome {
                "unsettled" => {
                    "the settlement failed: the message comes back when its lease expires"
                }
                _ => "the settlement changed nothing: another consumer may have the message",
            }));
        }
        span.end();
    }
}
