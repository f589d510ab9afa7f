//! Exports the traces of `dueq work` and `dueq serve` by OTLP, if the environment names a collector.

mod collector;
mod losses;
mod span_queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry::Key;
use opentelemetry_otlp::{
    ExporterBuildError, OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TIMEOUT,
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_TIMEOUT, SpanExporter,
    WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanExporter as _};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use collector::Collector;
use losses::Losses;
use span_queue::{Pace, SpanQueue};

/// How long the end of the program waits for the last spans.
const END_LIMIT: Duration = Duration::from_secs(2);
/// The longest export, without a variable that says otherwise.
const EXPORT_LIMIT_MS: u64 = 10_000;

/// The variables that name the collector.
const ENDPOINTS: [&str; 2] = [
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
    OTEL_EXPORTER_OTLP_ENDPOINT,
];

static IS_ON: AtomicBool = AtomicBool::new(false);

/// Whether this process exports traces.
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Runs a command, and exports its traces if the environment names a collector.
pub(crate) async fn during<T>(command: impl Future<Output = T>) -> T {
    if !is_wanted() {
        return command.await;
    }
    let export = TraceExport::start();
    if let Err(error) = &export {
        let error = without_endpoints(error.to_string());
        tracing::warn!(name: "dueq.traces_off", target: "dueq", error, "no traces are exported");
    }
    let result = command.await;
    if let Ok(export) = export {
        export.end().await;
    }
    result
}

/// Takes the URLs of collectors out of a text: they may contain passwords.
fn without_endpoints(text: String) -> String {
    let endpoints = ENDPOINTS.into_iter().filter_map(variable);
    endpoints.fold(text, |text, endpoint| text.replace(&endpoint, "..."))
}

fn is_wanted() -> bool {
    let is_named = ENDPOINTS.into_iter().any(|name| variable(name).is_some());
    let is_disabled =
        variable("OTEL_SDK_DISABLED").is_some_and(|on| on.eq_ignore_ascii_case("true"));
    is_named && !is_disabled && variable("OTEL_TRACES_EXPORTER").is_none_or(|name| name == "otlp")
}

/// The running export.
struct TraceExport {
    task: JoinHandle<()>,
    stop: CancellationToken,
    losses: Arc<Losses>,
}

impl TraceExport {
    fn start() -> Result<Self, ExporterBuildError> {
        let losses = Arc::new(Losses::default());
        let limit_ms = number(OTEL_EXPORTER_OTLP_TRACES_TIMEOUT)
            .or_else(|| number(OTEL_EXPORTER_OTLP_TIMEOUT))
            .unwrap_or(EXPORT_LIMIT_MS);
        let limit = Duration::from_millis(limit_ms);
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Collector::new(limit, Arc::clone(&losses))?)
            .build()?;
        let resource = resource();
        exporter.set_resource(&resource);
        let stop = CancellationToken::new();
        let pace = Pace::read(limit);
        let (queue, exporting) = SpanQueue::new(exporter, &pace, stop.clone(), Arc::clone(&losses));
        let provider = SdkTracerProvider::builder()
            .with_span_processor(queue)
            .with_resource(resource)
            .build();
        opentelemetry::global::set_tracer_provider(provider);
        IS_ON.store(true, Ordering::Relaxed);
        let task = tokio::spawn(exporting);
        Ok(Self { task, stop, losses })
    }

    /// Exports what is left, within [`END_LIMIT`].
    async fn end(mut self) {
        self.stop.cancel();
        if tokio::time::timeout(END_LIMIT, &mut self.task)
            .await
            .is_err()
        {
            self.task.abort();
            self.losses.at_the_end();
        }
    }
}

/// What the environment says of this process. Its name is dueq unless it says otherwise.
fn resource() -> Resource {
    let resource = Resource::builder().build();
    let name = resource.get(&Key::from_static_str("service.name"));
    match name.is_none_or(|name| name.as_str().starts_with("unknown_service")) {
        true => Resource::builder().with_service_name("dueq").build(),
        false => resource,
    }
}

/// A variable of the environment, if it is not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// A variable that is a number above zero.
fn number(name: &str) -> Option<u64> {
    variable(name)?
        .trim()
        .parse()
        .ok()
        .filter(|number| *number > 0)
}
