//! `dueq bench`: measures the throughput and lateness of the user's own server, and its capacity.

mod figures;
mod load;
mod report;
mod server;

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use dueq::{Client, Queue};
use indicatif::{ProgressBar, ProgressStyle};
use tokio_util::sync::CancellationToken;

use crate::output::Outcome;
use crate::signals::EndSignals;
use crate::{Common, output, time};
use load::Load;
use report::Report;
use server::Waiting;

/// How often the progress bar is drawn.
const TICK: Duration = Duration::from_millis(200);

#[derive(Args)]
#[command(after_help = "\
Measures in three phases:
  memory       10,000 messages of 100 bytes are pushed that wait, and deleted
  throughput   in 40 % of the time, 64 callers push such messages, due at once, and a worker
               handles them; at most 10,000 messages are in the queue
  lateness     in the rest of the time, --rate messages a second are pushed, each due a second
               later; the lateness is the start of the handler minus the due time, by the server's
               clock
The last lines say what this server can hold: the memory of a waiting message, and the processor time
of Redis for a push, a claim and an ack, in each of the two loads. Redis runs scripts on one core, so
leave some of it to bursts: plan with 60 %. Calls of a busy queue share their cost among more messages.
Both come from INFO before and after, so other users of the server count as well, and a cluster has
no such lines: measure one of its machines alone.
The command creates the queue, and removes it at the end and after Ctrl-C. Other users of the server
will notice the load.

Examples:
  dueq bench
  dueq bench --redis redis://staging/ --rate 100 --for 60s
  dueq bench --json | jq .lateness_ms.p99")]
pub(crate) struct Bench {
    /// The queue to create and remove; it must not exist
    #[arg(long, value_name = "NAME", default_value = "dueq-bench")]
    queue: String,
    /// How long to measure: 20s, 1m
    #[arg(long = "for", value_name = "TIME", value_parser = time::delay, default_value = "20s")]
    length: Duration,
    /// The messages a second for the lateness, at most half of the measured throughput
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000), default_value_t = 1_000)]
    rate: u64,
}

impl Bench {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        if self.length < Duration::from_secs(1) {
            return Err(
                output::Usage("--for is too short: it needs at least 1s".to_owned()).into(),
            );
        }
        let client = common.client().await?;
        let queue = client.queue(&self.queue)?;
        let name = dueq::admin::shell_word(self.queue.as_bytes());
        let dashes = if self.queue.starts_with('-') {
            "-- "
        } else {
            ""
        };
        if client.queues().await?.contains(&self.queue) {
            bail!(
                "the queue {name} is in use: name another by --queue; \
                 if an earlier bench was killed, `dueq delete-queue --yes {dashes}{name}` removes its queue"
            );
        }
        let mut signals = EndSignals::listen()?;
        let stop = CancellationToken::new();
        let measuring = self.measure(&client, &queue, &stop);
        tokio::pin!(measuring);
        let measured = tokio::select! {
            measured = &mut measuring => measured,
            () = signals.recv() => interrupted(&stop, measuring).await,
        };
        // All pushes have ended, so none can create the queue again.
        let deleted = queue.delete().await;
        let report = measured?;
        deleted?;
        report.print(common.json)?;
        Ok(Outcome::Done)
    }

    async fn measure(
        &self,
        client: &Client,
        queue: &Queue,
        stop: &CancellationToken,
    ) -> anyhow::Result<Report> {
        let waiting = load::waiting(client, queue, stop).await?;
        let bar = bar(self.length);
        let load = Load::start(client.clone(), queue.clone(), stop.clone());
        let ticking = tokio::spawn({
            let bar = bar.clone();
            async move {
                loop {
                    bar.set_position(u64::try_from(bar.elapsed().as_millis()).unwrap_or(u64::MAX));
                    tokio::time::sleep(TICK).await;
                }
            }
        });
        let result = self.phases(waiting, &load, &bar).await;
        ticking.abort();
        bar.finish_and_clear();
        load.end().await?;
        result
    }

    async fn phases(
        &self,
        waiting: Option<Waiting>,
        load: &Load,
        bar: &ProgressBar,
    ) -> anyhow::Result<Report> {
        bar.set_message("throughput");
        let throughput = load.throughput(self.length.mul_f64(0.4)).await?;
        bar.set_message("lateness");
        let rate = self.rate.min((throughput.life_per_s / 2.0) as u64).max(1);
        let lateness = load.lateness(rate, self.length.mul_f64(0.6)).await?;
        Ok(Report {
            queue: self.queue.clone(),
            waiting,
            throughput,
            lateness,
        })
    }
}

/// Awaits the pushes in flight, so that none arrives after the removal of the queue.
async fn interrupted(
    stop: &CancellationToken,
    measuring: impl Future<Output = anyhow::Result<Report>>,
) -> anyhow::Result<Report> {
    stop.cancel();
    measuring.await?;
    bail!("interrupted before the end of the measurement; the queue was removed")
}

fn bar(length: Duration) -> ProgressBar {
    let bar = ProgressBar::new(u64::try_from(length.as_millis()).unwrap_or(u64::MAX));
    if let Ok(style) =
        ProgressStyle::with_template("{msg:10} {bar:40} {elapsed} of about {duration}")
    {
        bar.set_style(style);
    }
    bar
}
