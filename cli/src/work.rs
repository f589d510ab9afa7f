//! `dueq work`: handles messages as they become due.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use dueq::Delivery;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{Common, output, time};

#[derive(Args)]
#[command(after_help = "\
Stop it with Ctrl-C or SIGTERM: it claims no more, finishes what it has, and gives back the rest.

Example:
  dueq work orders --print --json | jq .id")]
pub(crate) struct Work {
    /// The queue
    queue: String,
    /// Print each message and ack it
    #[arg(long, required = true)]
    print: bool,
    /// How many messages are handled at once
    #[arg(long, value_name = "N", default_value_t = 64)]
    concurrency: usize,
    /// How long a message is this worker's without a sign of life
    #[arg(long, value_parser = time::delay, default_value = "30s")]
    lease: Duration,
    /// How long to let handlers finish after the stop
    #[arg(long, value_parser = time::delay, default_value = "30s")]
    grace: Duration,
}

impl Work {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<()> {
        let queue = common.queue(&self.queue).await?;
        let (json, broken) = (common.json, Arc::new(CancellationToken::new()));
        let unwritten = Arc::clone(&broken);
        let handler = move |delivery: Delivery| {
            let unwritten = Arc::clone(&unwritten);
            async move {
                // What nobody could read is not done: it goes back, and the worker stops.
                print(&delivery, json).inspect_err(|_| unwritten.cancel()).map_err(|error| error.to_string())
            }
        };
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let stop = async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                () = broken.cancelled() => {}
            }
        };
        queue.worker().concurrency(self.concurrency).lease(self.lease).grace(self.grace).run(handler, stop).await?;
        Ok(())
    }
}

fn print(delivery: &Delivery, json: bool) -> io::Result<()> {
    let lateness_ms = delivery.lateness().as_secs_f64() * 1_000.0;
    let mut out = io::stdout().lock();
    if json {
        let line = serde_json::json!({
            "id": delivery.id(),
            "attempt": delivery.attempt(),
            "due_ms": delivery.due_ms(),
            "started_ms": delivery.due_ms() as f64 + lateness_ms,
            "lateness_ms": lateness_ms,
            "payload_base64": STANDARD.encode(delivery.payload()),
        });
        writeln!(out, "{line}")?;
    } else {
        let (id, payload) = (output::visible(delivery.id_bytes()), output::visible(delivery.payload()));
        writeln!(out, "{id} (attempt {}, {lateness_ms:.1} ms late): {payload}", delivery.attempt())?;
    }
    out.flush()
}
