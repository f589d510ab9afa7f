//! What traces cost a life of a message (push, claim and ack), beside a program without them.
//!
//! `cargo bench -p dueq-opentelemetry` measures all ways in turn; `-- off` runs one way once, for a
//! profiler.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::Result;
use dueq::{Client, Delivery, Message};
use dueq_opentelemetry::{TraceLayer, send};
use dueq_testkit::Server;
use dueq_testkit::process::cpu_us;
use opentelemetry::global::set_tracer_provider;
use opentelemetry::trace::noop::NoopTracerProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanData, SpanExporter};
use tokio::sync::Notify;
use tokio::task::JoinSet;

const LIVES: usize = 128_000;
const CALLERS: usize = 64;
const HANDLERS: usize = 512;
const ROUNDS: usize = 15;

#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Neither the layer nor `send`.
    Bare,
    /// Both, without a tracer provider.
    Off,
    /// Both, with a sampler that takes 1 trace of 100.
    Sampled,
}

const WAYS: [(&str, Way); 3] = [
    ("bare", Way::Bare),
    ("off", Way::Off),
    ("sampled", Way::Sampled),
];

/// Of the spans, this crate and the SDK are measured, not a back end.
#[derive(Debug)]
struct Nowhere;

impl SpanExporter for Nowhere {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        Ok(())
    }
}

/// Us a life: on the clock, of processor time of this program, and of Redis.
type Cost = [f64; 3];

#[tokio::main]
async fn main() -> Result<()> {
    // Cargo adds flags of its own.
    let only = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    if let Some((_, way)) = WAYS.iter().find(|(name, _)| only.as_deref() == Some(name)) {
        println!("{:?}", lives(*way).await?);
        return Ok(());
    }
    let mut costs = [const { Vec::new() }; WAYS.len()];
    for round in 0..ROUNDS {
        for place in 0..WAYS.len() {
            // Each way comes first, second and last equally often.
            let place = (place + round) % WAYS.len();
            costs[place].push(lives(WAYS[place].1).await?);
        }
    }
    for ((name, _), measured) in WAYS.iter().zip(&costs) {
        for (figure, what) in ["elapsed", "client", "redis"].into_iter().enumerate() {
            let of = |costs: &[Cost]| costs.iter().map(|cost| cost[figure]).collect::<Vec<_>>();
            let ratios = of(measured).into_iter().zip(of(&costs[0]));
            let ratio = median(ratios.map(|(cost, bare)| cost / bare).collect());
            let us = median(of(measured));
            println!("{name:8} {what:8} {us:6.2} us a life, {ratio:.3} of bare");
        }
    }
    Ok(())
}

/// The cost of one of many lives on a new server.
async fn lives(way: Way) -> Result<Cost> {
    if way == Way::Sampled {
        let provider = SdkTracerProvider::builder()
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(
                0.01,
            ))))
            .with_batch_exporter(Nowhere);
        set_tracer_provider(provider.build());
    } else {
        set_tracer_provider(NoopTracerProvider::new());
    }
    let server = Server::start(&[])?;
    let orders = Client::connect(&server.url()).await?.queue("orders")?;
    let (left, all) = (Arc::new(AtomicUsize::new(LIVES)), Arc::new(Notify::new()));
    let handled = Arc::clone(&all);
    let rate = move |_: Delivery| {
        if left.fetch_sub(1, Ordering::Relaxed) == 1 {
            handled.notify_one();
        }
        std::future::ready(())
    };
    let worker = orders.worker().concurrency(HANDLERS);
    let worker = match way {
        Way::Bare => worker.spawn(rate)?,
        _ => worker.layer(TraceLayer::new()).spawn(rate)?,
    };

    let cpu = || -> Result<_> { Ok([cpu_us(std::process::id())?, cpu_us(server.pid())?]) };
    let (before, start) = (cpu()?, Instant::now());
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let orders = orders.clone();
        callers.spawn(async move {
            for _ in 0..LIVES / CALLERS {
                let message = Message::new("rate it");
                match way {
                    Way::Bare => orders.push_message(message).await?,
                    _ => send(&orders, message).await?,
                };
            }
            Ok::<_, dueq::Error>(())
        });
    }
    while let Some(pushed) = callers.join_next().await {
        pushed??;
    }
    all.notified().await;
    // The shutdown waits for the acks.
    worker.shutdown().await?;
    let (elapsed, after) = (start.elapsed().as_secs_f64() * 1e6, cpu()?);
    Ok([elapsed, after[0] - before[0], after[1] - before[1]].map(|us| us / LIVES as f64))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
