//! `dueq work`: handles messages as they become due.

mod address;
mod exec;
mod http;
mod print;
mod signature;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use dueq::{Client, Delivery, ErrorKind, Limits, Retry, Settlement};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::log::{self, Style};
use crate::output::Usage;
use crate::{Common, existing, group, output, time};

/// What the ends of handlers may take after the grace, before the library drops them.
const ENDING: Duration = group::PATIENCE.saturating_add(Duration::from_secs(5));
const HOW: &str = "What to do with a message, one of";

/// A receiver that says nothing for so long has failed.
const HTTP_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to wait before connecting is tried again at the start.
const START_AGAIN: Duration = Duration::from_secs(1);

#[derive(Args)]
#[command(after_help = "\
--exec runs the command by sh -c, once a message. The payload is its standard input; its environment has
  DUEQ_ID, DUEQ_ATTEMPT (1 is the first), DUEQ_DUE_MS (Unix milliseconds) and DUEQ_QUEUE; and TRACEPARENT, if the push
  had one.
  Exit code 0: done. 65: hopeless, set aside as dead. Anything else, or a signal: retried after a growing delay, until
  the limit of attempts. The end of what it writes to stderr is remembered with the message.
  It has a process group of its own. When it ends, when its lease is lost, at --timeout and at the end of the grace, all
  that is left of the group gets SIGTERM, and SIGKILL 2 seconds later. Only what leaves the group (setsid) stays.

--http posts the payload to a URL, signed after https://www.standardwebhooks.com: webhook-id is the message's id (what is
  not visible ASCII, % and . percent-encoded), webhook-timestamp the time of this attempt, webhook-signature an
  HMAC-SHA256; traceparent, if there is one, the push's. The secret, whsec_ and base64, comes from --secret-file or
  DUEQ_WEBHOOK_SECRET; several, one a line, sign side by side while you change them.
  2xx: done. 400, 410, 413, 415 and 422: hopeless, set aside as dead. Everything else, 401, 403 and 404 included, is
  retried; 429 and 503 after what Retry-After says (1 second to a day). Redirects are not followed, proxies not used.

A failed attempt is retried after --retry-min, and after twice as long each time, up to --retry-max; each delay is
  shortened by a random part of up to half of it. The limit of attempts is the message's, else the queue's.

It writes to standard error that it has started, which attempts failed and why, and when an outage of the server begins
  and ends. One error has one line a minute (failed attempts ten), with a count. --log-level error leaves out all that.
  While the server is away, at the start too, it keeps trying.

--print: a line that cannot be written, as the disk is full or the reader gone, gives its message back and ends the
worker with exit code 1.

A message is delivered at least once: should a worker die, its messages run again elsewhere. So what handles a message
must do no harm when it is done twice; the id tells.

Stop it with Ctrl-C or SIGTERM: it claims no more, finishes what it has within the grace, and gives back the rest,
uncharged. A second one ends the grace.

Examples:
  dueq work orders --print --json | jq .id
  dueq work orders --exec 'jq -r .email | xargs ./rate-order \"$DUEQ_ID\"' --concurrency 8 --timeout 1m
  dueq work orders --http https://example.com/hooks/orders --secret-file secret --max-attempts 8")]
pub(crate) struct Work {
    /// The queue
    queue: String,
    #[command(flatten)]
    how: How,
    /// How many messages are handled at once
    #[arg(long, value_name = "N", default_value_t = 64)]
    concurrency: usize,
    /// How long a message is this worker's without a sign of life; it is renewed while the handler runs
    #[arg(long, value_parser = time::delay, default_value = "30s")]
    lease: Duration,
    /// How long to let handlers finish after the stop
    #[arg(long, value_parser = time::delay, default_value = "30s")]
    grace: Duration,
    /// How long one message may take; then it has failed and is retried [default: none for --exec, 30s for --http]
    #[arg(long, value_parser = limit, conflicts_with = "print")]
    timeout: Option<Duration>,
    /// Set the queue's limit, for all its workers and until it is set again: dead after so many failed attempts (20 if
    /// never set). A message pushed with a limit of its own keeps that
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// The delay after the first failed attempt of a message
    #[arg(long, value_parser = limit, value_name = "TIME", default_value = "1s")]
    retry_min: Duration,
    /// The longest delay between two attempts
    #[arg(long, value_parser = limit, value_name = "TIME", default_value = "1h")]
    retry_max: Duration,
    #[command(flatten)]
    http: HttpOptions,
}

#[derive(Args)]
#[command(next_help_heading = "Options of --http")]
struct HttpOptions {
    /// A file with the secret that signs; else it is in DUEQ_WEBHOOK_SECRET
    #[arg(long, value_name = "FILE", requires = "http")]
    secret_file: Option<PathBuf>,
    /// Post also to private, loopback and link-local addresses
    #[arg(long, requires = "http")]
    allow_private: bool,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct How {
    /// Run this command for each message: exit 0 done, 65 hopeless, anything else retry
    #[arg(long, help_heading = HOW, value_name = "CMD", value_parser = not_blank)]
    exec: Option<String>,
    /// Print each message and ack it
    #[arg(long, help_heading = HOW)]
    print: bool,
    /// Post each message to this URL: 2xx done, 400, 410, 413, 415 and 422 hopeless, anything else retry
    #[arg(long, help_heading = HOW, value_name = "URL")]
    http: Option<String>,
}

/// A command of nothing would succeed, and ack every message.
fn not_blank(command: &str) -> Result<String, String> {
    match command.trim().is_empty() {
        true => Err("the command is empty: is the variable set that it comes from?".to_owned()),
        false => Ok(command.to_owned()),
    }
}

/// A time limit: no message could keep one of nothing.
fn limit(text: &str) -> Result<Duration, String> {
    match time::delay(text)? {
        Duration::ZERO => Err("the limit must be above zero; leave it out for none".to_owned()),
        limit => Ok(limit),
    }
}

/// What is done with a message.
enum Handler {
    Exec(exec::Exec),
    Http(http::Http),
    Print(print::Print),
}

impl Handler {
    async fn handle(&self, delivery: &Delivery) -> Settlement {
        match self {
            Self::Exec(exec) => exec.handle(delivery).await,
            Self::Http(http) => http.handle(delivery).await,
            Self::Print(print) => print.handle(delivery),
        }
    }
}

impl Work {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<()> {
        let retry = Retry::exponential(self.retry_min, self.retry_max)
            .map_err(|_| Usage("--retry-min must not be above --retry-max".to_owned()))?;
        // Heard from now on: a signal must not kill us with a command half done.
        let (mut interrupt, mut terminate) = (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        );
        let client = tokio::select! {
            client = connected(common) => client?,
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => return Ok(()),
        };
        let (queue, fails) = (common.queue_of(&client, &self.queue)?, !self.how.print);
        if let Ok(Some(absence)) = existing::absence(&client, &queue).await {
            tracing::warn!("{absence}; waiting for its first push");
        }
        let (stop, over) = (CancellationToken::new(), CancellationToken::new());
        let handler = Arc::new(match self.how {
            How {
                exec: Some(command),
                ..
            } => Handler::Exec(exec::Exec::new(
                command,
                self.queue,
                self.timeout,
                over.clone(),
            )?),
            How {
                http: Some(url), ..
            } => {
                let environment = std::env::var("DUEQ_WEBHOOK_SECRET").ok();
                let secrets = signature::Secrets::load(
                    self.http.secret_file.as_deref(),
                    environment.as_deref(),
                )?;
                let timeout = self.timeout.unwrap_or(HTTP_TIMEOUT);
                let http = http::Http::new(
                    &url,
                    secrets,
                    timeout,
                    self.http.allow_private,
                    over.clone(),
                )
                .await?;
                Handler::Http(http)
            }
            How { .. } => Handler::Print(print::Print::new(common.json, stop.clone())),
        });
        if let Some(max_attempts) = self.max_attempts {
            queue
                .configure(Limits::new().max_attempts(max_attempts))
                .await?;
        }

        announce(common, &client, queue.name(), self.concurrency, self.lease);
        let handling = Arc::clone(&handler);
        // The library would release a message as soon as the grace is over; here its command is ended before.
        let worker = queue
            .worker()
            .concurrency(self.concurrency)
            .lease(self.lease)
            .retry(retry)
            .grace(self.grace.saturating_add(ENDING))
            .run(
                move |delivery: Delivery| {
                    let handler = Arc::clone(&handling);
                    async move {
                        let settlement = handler.handle(&delivery).await;
                        if let Settlement::Retry { error, .. } = &settlement
                            && fails
                        {
                            tell_failure(&delivery, error);
                        }
                        settlement
                    }
                },
                stop.cancelled(),
            );
        let signals = async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                () = stop.cancelled() => {}
            }
            stop.cancel();
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                () = tokio::time::sleep(self.grace) => {}
            }
            over.cancel();
            std::future::pending::<()>().await;
        };
        let result = tokio::select! {
            result = worker => result,
            () = signals => Ok(()),
        };
        if let Handler::Exec(exec) = &*handler {
            exec.finish().await;
        }
        result?;
        match &*handler {
            Handler::Print(print) => print.failure().map_or(Ok(()), |error| {
                Err(anyhow!("cannot write to standard output: {error}; what was not written is given back, uncharged"))
            }),
            _ => Ok(()),
        }
    }
}

/// Says on standard error what is worked, where and how; not to those who want errors alone.
fn announce(common: &Common, client: &Client, queue: &str, concurrency: usize, lease: Duration) {
    if !tracing::enabled!(target: "dueq", tracing::Level::WARN) {
        return;
    }
    let address = client.address();
    output::note(&match common.log {
        Style::Text => format!(
            "dueq: working {} at {}: {concurrency} at once, lease {lease:?}; Ctrl-C stops",
            output::visible(queue.as_bytes()),
            output::visible(address.as_bytes())
        ),
        Style::Json => output::json(&serde_json::json!({
            "level": "INFO", "message": "working", "queue": queue, "server": address, "concurrency": concurrency,
            "lease_ms": u64::try_from(lease.as_millis()).unwrap_or(u64::MAX),
        })),
    });
}

/// A client, once the server can be reached: a worker that starts while it is away waits, as one does that is at work.
async fn connected(common: &Common) -> anyhow::Result<Client> {
    loop {
        match common.client().await {
            Err(error) if error.downcast_ref::<dueq::Error>().is_some_and(is_away) => {
                let error = common.explained(&error);
                tracing::warn!(name: log::NOT_STARTED, target: "dueq", error, "not started yet: it goes on trying");
                tokio::time::sleep(START_AGAIN).await;
            }
            result => return result,
        }
    }
}

fn is_away(error: &dueq::Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout)
}

fn tell_failure(delivery: &Delivery, error: &str) {
    let (id, attempt) = (delivery.id(), delivery.attempt());
    tracing::warn!(name: log::ATTEMPT_FAILED, target: "dueq", %id, attempt, error, "an attempt failed");
}
