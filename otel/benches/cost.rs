//! What traces cost a life of a message (push, claim and ack), beside a program without them.
//!
//! `cargo bench -p dueq-opentelemetry` measures all ways in turn; `-- off` runs one way once, for a
//! profiler.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use dueq::{Client, Delivery, Message};
use dueq_opentelemetry::{TraceLayer, send};
use dueq_testkit::Server;
use dueq_testkit::process::cpu_us;
use opentelemetry::global::set_tracer_provider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanData, SpanExporter};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::JoinSet;

const LIVES: usize = 64_000;
const CALLERS: usize = 64;
const HANDLERS: usize = 512;
const ROUNDS: usize = 24;

#[derive(Clone, Copy)]
enum Way {
    /// Neither the layer nor `send`.
    Bare,
    /// Both, without a tracer provider.
    Off,
    /// Both, with a sampler that takes this share of all traces.
    On(f64),
}

const WAYS: [(&str, Way); 4] = [
    ("bare", Way::Bare),
    ("off", Way::Off),
    ("none", Way::On(0.0)),
    ("hundredth", Way::On(0.01)),
];

/// Of the spans, this crate and the SDK are measured, not a back end.
#[derive(Debug)]
struct Nowhere;

impl SpanExporter for Nowhere {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        Ok(())
    }
}

/// Us a life: on the clock, then of processor time of this program, of Redis, and of both.
type Cost = [f64; 4];
const FIGURES: [&str; 4] = ["elapsed", "client", "redis", "both"];

fn main() -> Result<()> {
    // Cargo adds flags of its own.
    let only = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    if let Some((_, way)) = WAYS.iter().find(|(name, _)| only.as_deref() == Some(name)) {
        let runtime = Runtime::new()?;
        for us in runtime.block_on(lives(*way))? {
            println!("{us}");
        }
        return Ok(());
    }
    let mut costs = [const { Vec::new() }; WAYS.len()];
    for round in 0..ROUNDS {
        for step in 0..WAYS.len() {
            // Each way comes as often before another one as after it.
            let forward = (step + round / 2) % WAYS.len();
            let place = if round % 2 == 0 {
                forward
            } else {
                WAYS.len() - 1 - forward
            };
            costs[place].push(measured(WAYS[place].0)?);
        }
    }
    for ((name, _), costs) in WAYS.iter().zip(&costs) {
        for (figure, what) in FIGURES.into_iter().enumerate() {
            let us = median(costs.iter().map(|cost| cost[figure]));
            println!("{name:10} {what:8} {us:6.2} us a life");
        }
    }
    Ok(())
}

/// The cost in a process of its own: what another way has left behind costs nothing.
fn measured(way: &str) -> Result<Cost> {
    let output = Command::new(std::env::current_exe()?).arg(way).output()?;
    let text = String::from_utf8(output.stdout)?;
    let figures: Vec<f64> = text.lines().map(str::parse).collect::<Result<_, _>>()?;
    figures.try_into().ok().context(text)
}

/// The cost of one of many lives on a new server.
async fn lives(way: Way) -> Result<Cost> {
    if let Way::On(share) = way {
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(share)));
        let provider = SdkTracerProvider::builder().with_sampler(sampler);
        set_tracer_provider(provider.with_batch_exporter(Nowhere).build());
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
    let (client, redis) = (after[0] - before[0], after[1] - before[1]);
    Ok([elapsed, client, redis, client + redis].map(|us| us / LIVES as f64))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
