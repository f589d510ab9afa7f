//! `dueq work`: handles messages when they become due.

mod address;
mod batch;
mod breaks;
mod exec;
mod follow_ups;
mod handler;
mod http;
mod metrics;
mod plan;
mod print;
mod sender;
mod signature;
mod values;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use dueq::{Client, QueueLimits, Retry};
use dueq_opentelemetry::TraceLayer;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::commands::work::handler::{WorkHandler, serving};
use crate::commands::work::plan::Plan;
use crate::commands::work::values::{at_least_one, limit, not_blank};
use crate::log::Style;
use crate::output::Usage;
use crate::signals::EndSignals;
use crate::{Common, existing, group, output, service, time, traces};

/// After the grace period, how long handlers may take to end before the library drops them.
const ENDING: Duration = group::PATIENCE.saturating_add(Duration::from_secs(5));
/// The longest wait for the answer whether a queue exists.
const ABSENCE_LIMIT: Duration = Duration::from_secs(1);
const HOW: &str = "How to handle a message, one of";

/// How long a receiver may take to answer, without --timeout.
const HTTP_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Args)]
#[command(after_help = "\
Runs a worker: it claims messages when they become due, and handles each by --exec, --http or
--print. Any number of workers can share a queue. A message is delivered at least once: if a worker
dies, another one handles its messages again. So handling a message twice must do no harm; its id is
the same each time.

A PATTERN selects every queue whose name matches, also one that is created later: * matches any
characters, ? for one. Quote it, so that the shell leaves it alone. The worker scans the server for
them about every 30 s, so it finds a new queue that late. Its weight and --max are those of each
queue that it finds. A queue that is also named keeps its own; of several patterns, the first that
finds a queue keeps it. A pattern takes no --reserve and no --max-attempts.

Several queues share the handlers of --concurrency, by the time that their handlers run: with
orders=6 mails=3 bulk=1, while all have due messages, 60, 30 and 10 of 100 running handlers. With
fewer handlers than queues they take turns. --reserve keeps handlers for one queue.
--strict serves the queues in the order of the command line instead, those of patterns last in the
order in which they are found: while the first has a backlog, the others get a handler only for a
message that waits longer than MAX_WAIT.

--exec runs the command by sh -c for each message.
  Input: the payload is the standard input. The environment has DUEQ_ID, DUEQ_ATTEMPT (1 is the
    first), DUEQ_DUE_MS (Unix milliseconds), DUEQ_QUEUE, and TRACEPARENT if the push had one
    or traces are exported (see below). The tick of a schedule also has DUEQ_SCHEDULE and DUEQ_NOMINAL_MS, the time for which the work is.
  Result: exit code 0 means done; 65 means hopeless, so the message is dead; any other code, or a
    signal, means retry. The message keeps the end of what the command wrote to stderr as its error.
  Follow-ups: with exit code 0, the lines that the command wrote to its file descriptor 3 are pushed
    to the queue in the same step in which the message is acked: {\"payload\": \"ship\", \"delay\":
    \"1h\"}, with the fields of push --ndjson. If one of them cannot be read or pushed, none is, and
    the message is retried. A line without id gets one from the message's id and its own number.
  End: the command has its own process group. When the command exits, when its lease is lost, at
    --timeout and at the end of the grace, the rest of the group gets SIGTERM, and SIGKILL 2 s
    later. A process that left the group (setsid) stays.

--http posts the payload to a URL, signed after https://www.standardwebhooks.com.
  Headers: webhook-id is the message's id, in which % and . and everything but visible ASCII is
    percent-encoded; webhook-timestamp is the time of this attempt; webhook-signature is an
    HMAC-SHA256; dueq-queue is the queue; traceparent is the push's, or that of this attempt if
    traces are exported. The tick of a schedule also has dueq-schedule and dueq-nominal-ms.
  Secret: whsec_ and base64, from --secret-file or DUEQ_WEBHOOK_SECRET. Several secrets, one a line,
    all sign, so that you can change them.
  Result: 2xx means done; 400, 410, 413, 415 and 422 mean hopeless, so the message is dead;
    everything else, also 401, 403 and 404, means retry, for 429 and 503 after Retry-After (1 s to a
    day). Redirects are not followed, proxies not used.
  Break: with --throttle-queue, a 429, or a 503 with Retry-After, closes the queue for that time, at
    most for the --max-throttle of dueq configure. Meanwhile no worker starts a message of it. The
    refused attempt is not counted, so the limit of attempts never ends such a message: push with
    --expires. A 429 without Retry-After closes the queue for 1 s, the next ones for 2 s, 4 s and so
    on up to 60 s, until a success. Give each receiver a queue of its own.

--batch N gives a command or a POST up to N messages of one queue. It closes a batch when it is full
or after --linger, and --concurrency counts batches. A message that failed before comes alone.
  --exec: the standard input has one JSON object a line: id (and id_base64 if it is not UTF-8),
    queue, attempt, due_ms, payload (if it is UTF-8), payload_base64, traceparent if the push had
    one, schedule and nominal_ms of a tick. The environment has DUEQ_QUEUE and DUEQ_BATCH, the number of messages.
    Exit code 0 acks all, any other retries all; 65 with a single message means hopeless.
    With exit code 0, lines on the standard output can settle single messages:
      {\"id\": \"order:42\", \"result\": \"retry\", \"after\": \"5s\", \"error\": \"busy\"}
    result is ack, retry, bury or release; after and error may be left out. id_base64 replaces an
    id that is not UTF-8. Any other line retries the whole batch; blank lines are ignored.
  --http: the body is an array of these objects. 2xx acks all. webhook-id is batch- and a hash,
    or the id of a single message.

--print writes a line for each message and acks it. If it cannot write, because the disk is full or
the reader has closed the pipe, it gives the message back and ends with exit code 1.

Retries: the first after --retry-min, each further one after twice the time, up to --retry-max. Up
to half of each delay is subtracted at random. After the limit of attempts, the message's or else
the queue's, the message is dead.

Standard error: the start, each failed attempt with its reason, the first answer of each break, and
the start and end of an outage of the server. An error has one line a minute (failed attempts and
breaks ten), with a count; --log-level error turns these lines off. While the server is unreachable,
also at the start, the worker keeps trying.

--metrics serves three pages, to everybody who reaches the address; they have no ids and no payloads.
  /metrics: what this worker did, for Prometheus. /healthz: 200 while the process runs, also while the
    server is away. /readyz: 200 while the server answers for each queue, 503 otherwise and once the
    worker stops.

Traces: with OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, each attempt is a span
`process QUEUE` with a link to the push, and each settlement a span `settle QUEUE`, exported by OTLP
(HTTP, protobuf). OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG apply as usual.
Commands and receivers get the context of the attempt. Nothing waits for the collector: spans that
it does not take are lost, with a warning a minute, and the end waits for it for at most 2 s.

Stop: Ctrl-C, SIGTERM, SIGQUIT or a closed terminal. The worker claims no more, lets its handlers
finish within the grace, and gives the rest back without counting an attempt. A second signal ends
the grace.
Reload: SIGHUP reads --secret-file, and tests the certificates and the password for Redis by a new
connection, and reports what cannot be used. A file that cannot be read leaves the old one in force;
a password that Redis refuses is what new connections send.

Examples:
  dueq work orders --print --json | jq .id
  dueq work critical=6 bulk=1 --reserve critical=2 --max bulk=16 --print
  dueq work orders=6 'mail-*' --max 'mail-*=4' --exec './handle \"$DUEQ_QUEUE\"'
  dueq work orders --exec './index-orders' --batch 100 --linger 200ms
  dueq work orders --exec 'jq -r .email | xargs ./rate-order \"$DUEQ_ID\"' --concurrency 8 --timeout 1m
  dueq work orders --exec './charge && echo \"{\\\"payload\\\": \\\"ship\\\"}\" >&3'
  dueq work orders --http https://example.com/hooks/orders --secret-file secret --max-attempts 8
  dueq work webhook:example.com --http https://example.com/hook --secret-file secret --throttle-queue")]
pub(crate) struct Work {
    /// The queues, or patterns such as 'mail-*', each with its weight: a number from 1, by default 1
    #[arg(required = true, value_name = "NAME_OR_PATTERN[=WEIGHT]")]
    queues: Vec<String>,
    #[command(flatten)]
    how: How,
    /// How many messages (with --batch, how many batches) of all queues are handled at once
    #[arg(long, value_name = "N", default_value_t = 64)]
    concurrency: usize,
    /// Keep N handlers for this queue: they serve no other one. May be repeated
    #[arg(long, value_name = "NAME=N")]
    reserve: Vec<String>,
    /// Give this queue at most N handlers. May be repeated
    #[arg(long, value_name = "NAME=N")]
    max: Vec<String>,
    /// Serve the queues in the order given, instead of by weight; a queue whose oldest due message
    /// waits longer than MAX_WAIT gets the next free handler [default: 30s]
    #[arg(long, value_name = "MAX_WAIT", value_parser = time::delay, num_args = 0..=1, require_equals = true, default_missing_value = "30s")]
    strict: Option<Duration>,
    /// Give up to N messages to one command or POST
    #[arg(long, value_name = "N", value_parser = at_least_one, conflicts_with = "print")]
    batch: Option<usize>,
    /// How long a batch waits for more messages, at most a third of the lease
    #[arg(long, value_name = "TIME", value_parser = time::delay, requires = "batch", default_value = "200ms")]
    linger: Duration,
    /// The lease: if the worker dies, another one gets the message after this time; a live worker
    /// renews it
    #[arg(long, value_parser = time::delay, default_value = "30s")]
    lease: Duration,
    /// How long handlers may continue after the stop
    #[arg(long, value_parser = time::delay, default_value = "30s")]
    grace: Duration,
    /// How long an attempt may take before it fails [default: no limit for --exec, 30s for --http]
    #[arg(long, value_parser = limit, conflicts_with = "print")]
    timeout: Option<Duration>,
    /// Set the limit of the named queues, for all their workers: a message is dead after N failed
    /// attempts. A message that was pushed with its own limit keeps that. Not with a pattern: use
    /// dueq configure for its queues [default: the queue's limit, which is 20 if never set]
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// The delay after the first failed attempt
    #[arg(long, value_parser = limit, value_name = "TIME", default_value = "1s")]
    retry_min: Duration,
    /// The longest delay between two attempts
    #[arg(long, value_parser = limit, value_name = "TIME", default_value = "1h")]
    retry_max: Duration,
    /// Serve /metrics, /healthz and /readyz at this address; without one, on loopback
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = metrics::address)]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    http: HttpOptions,
}

#[derive(Args)]
#[command(next_help_heading = "Options of --http")]
struct HttpOptions {
    /// The file with the secret for signatures, instead of DUEQ_WEBHOOK_SECRET
    #[arg(long, value_name = "FILE", requires = "http")]
    secret_file: Option<PathBuf>,
    /// Allow private, loopback and link-local addresses
    #[arg(long, requires = "http")]
    allow_private: bool,
    /// Close the queue when the receiver answers 429, or 503 with Retry-After, instead of retrying
    /// that message alone
    #[arg(long, requires = "http")]
    throttle_queue: bool,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct How {
    /// Run this command for each message: exit code 0 done, 65 hopeless, any other retry
    #[arg(long, help_heading = HOW, value_name = "CMD", value_parser = not_blank)]
    exec: Option<String>,
    /// Print each message and ack it
    #[arg(long, help_heading = HOW)]
    print: bool,
    /// Post each message to this URL: 2xx done; 400, 410, 413, 415 and 422 hopeless; any other
    /// retry
    #[arg(long, help_heading = HOW, value_name = "URL")]
    http: Option<String>,
}

impl Work {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<()> {
        let retry = Retry::exponential(self.retry_min, self.retry_max)
            .map_err(|_| Usage("--retry-min must not be above --retry-max".to_owned()))?;
        // Catch signals from now on: a signal must not kill the worker while a command runs.
        let mut signals = EndSignals::of_service()?;
        // Check the name and the options before waiting for the server.
        let plan = Plan::read(&plan::Request {
            queues: &self.queues,
            reserves: &self.reserve,
            maxima: &self.max,
            concurrency: self.concurrency,
        })?;
        for served in &plan.served {
            dueq::admin::queue_keys(&served.name)?;
        }
        if let (Some(_), Some(pattern)) = (self.max_attempts, plan.pattern()) {
            let pattern = output::visible(pattern.as_bytes());
            anyhow::bail!(Usage(format!(
                "--max-attempts sets the limit of queues that are named, and {pattern} is a pattern; \
                 set the limit of each of its queues: dueq configure NAME --max-attempts N"
            )));
        }
        let (stop, over) = (CancellationToken::new(), CancellationToken::new());
        let handler = Arc::new(match self.how {
            How {
                exec: Some(command),
                ..
            } => WorkHandler::Exec(exec::Exec::new(command, self.timeout, over.clone())?),
            How {
                http: Some(url), ..
            } => {
                let url = http::parse(&url)?;
                let environment = std::env::var("DUEQ_WEBHOOK_SECRET").ok();
                let secrets = signature::Secrets::load(
                    self.http.secret_file.as_deref(),
                    environment.as_deref(),
                )?;
                let timeout = self.timeout.unwrap_or(HTTP_TIMEOUT);
                let (private, throttle) = (self.http.allow_private, self.http.throttle_queue);
                let http =
                    http::Http::new(url, secrets, timeout, private, throttle, over.clone()).await?;
                WorkHandler::Http(Box::new(http))
            }
            How { .. } => WorkHandler::Print(print::Print::new(
                common.json,
                plan.is_plural(),
                stop.clone(),
            )),
        });
        // Before the connection to the server: a probe must find the process alive while that is away.
        let probes = metrics::listen(common, self.metrics, &stop).await?;
        let client = tokio::select! {
            client = common.client_when_up() => client?,
            () = signals.recv_reloading(async || service::reload_files(|| handler.reload())) => return Ok(()),
        };
        let batch = self.batch.map(|max| (max, self.linger));
        let mut worker = client.worker();
        // A handler of batches takes no layer: it makes its spans itself.
        if traces::is_on() && batch.is_none() {
            worker = worker.layer(TraceLayer::new());
        }
        for served in &plan.served {
            worker = serving(worker, &client, served, batch, &handler)?;
        }
        for served in plan.served.iter().filter(|served| !served.is_pattern) {
            let queue = match plan.is_plural() {
                true => client.queue(&served.name)?,
                false => common.queue_of(&client, &served.name)?,
            };
            // With a limit: an unreachable master of one queue must not delay the start of the others.
            let absence = timeout(ABSENCE_LIMIT, existing::absence(&client, &queue)).await;
            if let Ok(Ok(Some(absence))) = absence {
                tracing::warn!("{absence}; waiting for its first push");
            }
            if let Some(max_attempts) = self.max_attempts {
                queue
                    .configure(QueueLimits::new().max_attempts(max_attempts))
                    .await?;
            }
        }

        announce(common, &client, &plan, self.concurrency, self.lease);
        // The library releases messages at the end of its grace period; commands must end before
        // that.
        if let Some(max_wait) = self.strict {
            worker = worker.strict(max_wait);
        }
        let worker = worker
            .concurrency(self.concurrency)
            .lease(self.lease)
            .retry(retry)
            .grace(self.grace.saturating_add(ENDING))
            .spawn()?;
        service::ready();
        let _probes = probes.inspect(|probes| probes.observe(&client, &worker));
        let ending = async {
            let reload = async || service::reload(common, || handler.reload()).await;
            tokio::select! {
                () = signals.recv_reloading(reload) => {}
                () = stop.cancelled() => {}
            }
            service::stopping();
            stop.cancel();
            tokio::select! {
                biased; // the first poll of the shutdown stops the worker, even if a signal waits
                _ = worker.shutdown() => {}
                () = signals.recv() => {}
                () = tokio::time::sleep(self.grace) => {}
            }
            over.cancel();
            std::future::pending::<()>().await;
        };
        let result = tokio::select! {
            result = worker.wait() => result,
            () = ending => Ok(()),
        };
        if let WorkHandler::Exec(exec) = &*handler {
            exec.finish().await;
        }
        result?;
        match &*handler {
            WorkHandler::Print(print) => print.failure().map_or(Ok(()), |error| {
                Err(anyhow!("cannot write to standard output: {error}; the unwritten messages were given back, without counting an attempt"))
            }),
            _ => Ok(()),
        }
    }
}

/// Announces the start on standard error, unless the log shows only errors.
fn announce(common: &Common, client: &Client, plan: &Plan, concurrency: usize, lease: Duration) {
    if !tracing::enabled!(target: "dueq", tracing::Level::WARN) {
        return;
    }
    let address = client.address();
    output::note(&match common.log {
        Style::Text => format!(
            "dueq: working {} at {}: {concurrency} at once, lease {lease:?}; Ctrl-C stops",
            plan.shown(),
            output::visible(address.as_bytes())
        ),
        Style::Json => output::json(&serde_json::json!({
            "level": "INFO", "message": "working", "queue": plan.names().join(", "), "server": address, "concurrency": concurrency,
            "lease_ms": u64::try_from(lease.as_millis()).unwrap_or(u64::MAX),
        })),
    });
}
