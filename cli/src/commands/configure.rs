//! `dueq configure`: the limits of a queue.

use std::time::Duration;

use clap::Args;
use dueq::QueueLimits;

use crate::commands::limits::{self, Starts};
use crate::output::Outcome;
use crate::{Common, existing, output, time};

#[derive(Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Sets the named limits and keeps the others. Without a limit it prints the limits of the queue. If
the queue does not exist, the command creates it, and the first line of the output says so.

--rate, --max-leased and --max-throttle concern the claims of all workers together. A retry starts
again, so it counts again. A message that was pushed with --cost uses so many starts. Partitions
share the rate and --max-leased, which must therefore be no less than their number. Workers of
release 0.1 ignore these limits.

Examples:
  dueq configure orders
  dueq configure orders --max-attempts 5
  dueq configure orders --max-messages 1000000 --keep-dead-for 7d
  dueq configure webhook:example.com --rate 50/1s --burst 5 --max-leased 32 --max-throttle 1h
  dueq configure webhook:example.com --no-rate --no-max-leased"
)]
pub(crate) struct Configure {
    /// The queue
    queue: String,
    #[command(flatten)]
    limits: Flags,
}

#[derive(Args)]
struct Flags {
    /// A message is dead after N failed attempts, unless it was pushed with its own limit [default:
    /// 20]
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// A message survives N crashes, which are leases that ran out [default: 5]
    #[arg(long, value_name = "N")]
    max_crashes: Option<u32>,
    /// The queue holds at most N messages in all states, and refuses more; none for no limit
    /// [default: none]
    #[arg(long, value_name = "N", value_parser = number_or_none)]
    max_messages: Option<MaxMessages>,
    /// The largest accepted payload, at most 16777216 [default: 1048576]
    #[arg(long, value_name = "BYTES")]
    max_payload_bytes: Option<u32>,
    /// Dead messages are removed after this time [default: 30d]
    #[arg(long, value_name = "TIME", value_parser = time::delay)]
    keep_dead_for: Option<Duration>,
    /// The N youngest dead messages are kept, older ones removed [default: 100000]
    #[arg(long, value_name = "N")]
    keep_dead: Option<u64>,
    #[command(flatten)]
    starts: Starts,
    /// The queue remembers at most N ids and calls; beyond it, pushes with a window are refused
    /// [default: 1000000]
    #[arg(long, value_name = "N")]
    max_remembered: Option<u64>,
    /// Keep what happened to each message until it ends, and for this time after that; 0s for its end,
    /// none to keep nothing. It raises the queue to layout 5, which clients and workers that do not
    /// know it refuse, and which cannot be taken back [default: none]
    #[arg(long, value_name = "TIME", value_parser = time_or_none)]
    keep_life_for: Option<KeepLife>,
    /// Raises the queue to layout 3, which push --on-conflict next needs. Releases before 0.2 refuse
    /// such a queue, and it cannot be taken back: first update all clients and workers
    #[arg(long, value_name = "3", value_parser = ["3"])]
    layout: Option<String>,
}

/// `None` removes the limit.
#[derive(Clone, Copy)]
struct MaxMessages(Option<u64>);

fn number_or_none(text: &str) -> Result<MaxMessages, String> {
    match text {
        "none" => Ok(MaxMessages(None)),
        _ => text
            .parse()
            .map(|number| MaxMessages(Some(number)))
            .map_err(|_| "write a number, or none".to_owned()),
    }
}

/// `None` keeps no lives.
#[derive(Clone, Copy)]
struct KeepLife(Option<Duration>);

fn time_or_none(text: &str) -> Result<KeepLife, String> {
    match text {
        "none" => Ok(KeepLife(None)),
        _ => time::delay(text)
            .map(|time| KeepLife(Some(time)))
            .map_err(|error| error.to_string()),
    }
}

impl Configure {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let (flags, mut limits) = (self.limits, QueueLimits::new());
        if flags.are_none() {
            return show(&self.queue, common).await;
        }
        if let Some(number) = flags.max_attempts {
            limits = limits.max_attempts(number);
        }
        if let Some(number) = flags.max_crashes {
            limits = limits.max_crashes(number);
        }
        if let Some(MaxMessages(number)) = flags.max_messages {
            limits = limits.max_messages(number);
        }
        if let Some(bytes) = flags.max_payload_bytes {
            limits = limits.max_payload_bytes(bytes);
        }
        if let Some(time) = flags.keep_dead_for {
            limits = limits.keep_dead_for(time);
        }
        if let Some(number) = flags.keep_dead {
            limits = limits.keep_dead(number);
        }
        limits = flags.starts.add_to(limits)?;
        if let Some(number) = flags.max_remembered {
            limits = limits.max_remembered(number);
        }
        limits = match flags.keep_life_for {
            Some(KeepLife(Some(time))) => limits.keep_life_for(time),
            Some(KeepLife(None)) => limits.keep_no_life(),
            None => limits,
        };
        if flags.layout.is_some() {
            limits = limits.layout3();
        }
        let (client, queue) = common.client_and_queue(&self.queue).await?;
        let made = !queue.exists().await?;
        queue.configure(limits).await?;
        if common.json {
            let object =
                serde_json::json!({ "queue": self.queue, "outcome": "configured", "made": made });
            output::json_line(&object)?;
            return Ok(Outcome::Done);
        }
        if made {
            output::queue(false, &self.queue, existing::MADE, None)?;
            existing::note_near(common, &client, &self.queue).await;
        }
        output::queue(false, &self.queue, "configured", None)?;
        Ok(Outcome::Done)
    }
}

impl Flags {
    fn are_none(&self) -> bool {
        let Self {
            max_attempts,
            max_crashes,
            max_messages,
            max_payload_bytes,
            keep_dead_for,
            keep_dead,
            starts,
            max_remembered,
            keep_life_for,
            layout,
        } = self;
        max_attempts.is_none()
            && max_crashes.is_none()
            && max_messages.is_none()
            && max_payload_bytes.is_none()
            && keep_dead_for.is_none()
            && keep_dead.is_none()
            && starts.are_none()
            && max_remembered.is_none()
            && keep_life_for.is_none()
            && layout.is_none()
    }
}

/// Prints the limits of a queue.
async fn show(name: &str, common: &Common) -> anyhow::Result<Outcome> {
    let stats = common.existing_queue_to_read(name).await?.stats().await?;
    if common.json {
        let mut object: serde_json::Map<_, _> = limits::rows(&stats)
            .into_iter()
            .flat_map(|row| row.fields)
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        object.insert("queue".to_owned(), name.into());
        output::json_line(&object.into())?;
        return Ok(Outcome::Done);
    }
    for row in limits::rows(&stats) {
        output::line(&format!(
            "{:17} {:>20}  {}",
            row.name, row.shown, row.meaning
        ))?;
    }
    Ok(Outcome::Done)
}
