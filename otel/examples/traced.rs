//! Pushes an order and handles it 2 s later, with traces to a collector on this machine.
//!
//! `OTEL_SERVICE_NAME=orders cargo run -p dueq-opentelemetry --example traced`, beside `dueq dev`
//! and a collector on port 4318; OTEL_EXPORTER_OTLP_ENDPOINT names another one.

use std::time::Duration;

use dueq::{Client, Delivery, Message};
use dueq_opentelemetry::{TraceLayer, send};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::trace::SdkTracerProvider;

/// Fails at first, so that the trace has two attempts.
async fn rate(delivery: Delivery) -> anyhow::Result<()> {
    let attempt = delivery.attempt();
    println!(
        "attempt {attempt}: {:?}",
        dueq_opentelemetry::trace_parent()
    );
    anyhow::ensure!(attempt > 1, "the rating service is busy");
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // The provider must be there before the layer is made.
    let exporter = SpanExporter::builder().with_http().build()?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .build();
    opentelemetry::global::set_tracer_provider(provider.clone());

    let client = Client::connect("redis://127.0.0.1/").await?;
    let orders = client.queue("orders")?;
    let worker = client.worker().layer(TraceLayer::new());
    let worker = worker.queue(&orders, rate).spawn()?;

    let message = Message::new("42").due(Duration::from_secs(2));
    send(&orders, message).await?;
    tokio::signal::ctrl_c().await?;
    worker.shutdown().await?;
    tokio::task::spawn_blocking(move || provider.shutdown()).await??;
    Ok(())
}
