//! The bounded queue of ended spans, and the task that exports it.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter as _, SpanProcessor};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::traces::losses::Losses;
use crate::traces::number;

/// The sizes and times of the export: the usual variables, with their usual values if not set.
pub(super) struct Pace {
    /// How many ended spans wait at most. Further ones are lost.
    waiting: usize,
    /// How many spans an export has at most.
    batch: usize,
    /// How long a batch waits to be full.
    delay: Duration,
    /// The longest time of an export.
    limit: Duration,
}

impl Pace {
    pub(super) fn read(limit: Duration) -> Self {
        let size = |name, default| number(name).map_or(default, |size| size.min(65_536) as usize);
        let waiting = size("OTEL_BSP_MAX_QUEUE_SIZE", 2_048);
        Self {
            waiting,
            batch: size("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512).min(waiting),
            delay: Duration::from_millis(number("OTEL_BSP_SCHEDULE_DELAY").unwrap_or(5_000)),
            limit,
        }
    }
}

/// Takes ended spans without ever waiting.
///
/// The batch processor of the SDK is not used: it does not say how many spans it drops, it runs the
/// exporter outside of the runtime that the HTTP client needs, and its end is not awaited in time.
#[derive(Debug)]
pub(super) struct SpanQueue {
    spans: mpsc::Sender<SpanData>,
    losses: Arc<Losses>,
}

impl SpanQueue {
    /// The queue, and the task that exports its spans until `stop`.
    pub(super) fn new(
        exporter: SpanExporter,
        pace: &Pace,
        stop: CancellationToken,
        losses: Arc<Losses>,
    ) -> (Self, impl Future<Output = ()> + use<>) {
        let (spans, waiting) = mpsc::channel(pace.waiting);
        let exporting = Exporting {
            waiting,
            exporter,
            batch: pace.batch,
            delay: pace.delay,
            limit: pace.limit,
            stop,
            losses: Arc::clone(&losses),
        };
        (Self { spans, losses }, exporting.run())
    }
}

impl SpanProcessor for SpanQueue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() && self.spans.try_send(span).is_err() {
            self.losses.add(1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

struct Exporting {
    waiting: mpsc::Receiver<SpanData>,
    exporter: SpanExporter,
    batch: usize,
    delay: Duration,
    limit: Duration,
    stop: CancellationToken,
    losses: Arc<Losses>,
}

impl Exporting {
    async fn run(mut self) {
        while let Some(spans) = self.next().await {
            let count = spans.len() as u64;
            match timeout(self.limit, self.exporter.export(spans)).await {
                Ok(Ok(())) => {}
                // The HTTP client has kept the reason.
                Ok(Err(_)) => self.losses.add(count),
                Err(_) => {
                    let limit = self.limit;
                    self.losses
                        .because(format!("the collector did not answer within {limit:?}"));
                    self.losses.add(count);
                }
            }
            self.losses.report();
        }
        self.losses.report_rest();
    }

    /// The next batch; `None` after the stop, when all spans are taken.
    async fn next(&mut self) -> Option<Vec<SpanData>> {
        let mut spans = Vec::new();
        let gather = gather(&mut self.waiting, &mut spans, self.batch, self.delay);
        if self.stop.run_until_cancelled(gather).await.is_none() {
            self.waiting.close();
            fill(&mut self.waiting, &mut spans, self.batch).await;
        }
        (!spans.is_empty()).then_some(spans)
    }
}

/// Waits for a span, and then for more until the batch is full or `delay` is over.
async fn gather(
    waiting: &mut mpsc::Receiver<SpanData>,
    spans: &mut Vec<SpanData>,
    batch: usize,
    delay: Duration,
) {
    waiting.recv_many(spans, batch).await;
    // Over time the batch goes as it is.
    let _ = timeout(delay, fill(waiting, spans, batch)).await;
}

/// Waits until the batch is full, or no more spans come.
async fn fill(waiting: &mut mpsc::Receiver<SpanData>, spans: &mut Vec<SpanData>, batch: usize) {
    while spans.len() < batch && waiting.recv_many(spans, batch - spans.len()).await > 0 {}
}
