//! `dueq stats`: the counts and limits of a queue, or of all queues.

use std::time::Duration;

use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use dueq::inspect::PartialRead;
use dueq::{Client, Error, Queue, QueueStats as Counts};
use tokio::signal::unix::{SignalKind, signal};

use crate::commands::limits;
use crate::output::Outcome;
use crate::{Common, existing, failure, output};

/// How often --watch reads the counts.
const EVERY: Duration = Duration::from_secs(1);

#[derive(Args)]
#[command(after_help = "\
Prints how many messages are in each state, how many each call has handled since the queue was
created, and the limits that `dueq configure` sets. Without a queue it prints a line for each queue.
Watch overdue_ms: the age of the oldest due message that no worker has claimed. If a queue or one of
its partitions does not reply within 2 s, the command says which and why, and prints the numbers of
the others; the exit code is 1.

If the queue delivers nothing at this moment, the last line, or the last column, says why:
  paused   until `dueq resume`
  paused in part: a pause, or its end, has reached only some of the partitions
  closed   for closed_ms: somebody paused it for some time, or a receiver asked for a break
  rate     the rate lets the next message start after closed_ms
  full     as many messages are leased as max_leased allows

Examples:
  dueq stats
  dueq stats orders --watch
  dueq stats orders --json | jq .overdue_ms")]
pub(crate) struct Stats {
    /// The queue [default: all queues]
    queue: Option<String>,
    /// Repeat every second, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

/// The output about some queues, and whether each of them could be read.
struct Shown {
    text: String,
    outcome: Outcome,
}

impl Stats {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let client = common.client_to_read().await?;
        // Catch the signal before the first output: a reader of the output may send it at once.
        let mut interrupt = signal(SignalKind::interrupt())?;
        loop {
            let Shown { text, outcome } = match &self.queue {
                Some(name) => one(&common.queue_of(&client, name)?, &client, common).await?,
                None => all(&client, common).await?,
            };
            if self.watch && !common.json {
                output::clear_screen()?;
            }
            if !text.is_empty() {
                output::line(text.trim_end_matches('\n'))?;
            }
            if !self.watch {
                return Ok(outcome);
            }
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                _ = interrupt.recv() => return Ok(outcome),
            }
        }
    }
}

async fn one(queue: &Queue, client: &Client, common: &Common) -> anyhow::Result<Shown> {
    let name = queue.name();
    let stats = match queue.stats_reached().await {
        Ok(stats) => stats,
        Err(error) => {
            common.complain(&anyhow::Error::msg(unread(name, &error, common)));
            return Ok(Shown {
                text: String::new(),
                outcome: Outcome::Refused,
            });
        }
    };
    match stats.gap() {
        Some(gap) => common.complain(&anyhow::anyhow!("{gap}")),
        None if stats.value == Counts::default() => existing::require(client, queue).await?,
        None => {}
    }
    let text = if common.json {
        object(name, &stats)
    } else {
        table_of(name, &stats.value)
    };
    Ok(Shown {
        text,
        outcome: Outcome::done_if(stats.unread.is_empty()),
    })
}

fn table_of(name: &str, stats: &Counts) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for (name, value, meaning) in counts(stats) {
        table.add_row([name.to_owned(), value.to_string(), meaning.to_owned()]);
    }
    for row in limits::rows(stats) {
        table.add_row([row.name.to_owned(), row.shown, row.meaning.to_owned()]);
    }
    align_right(&mut table, 1..2);
    format!("{}\n{}", table.trim_fmt(), limits::stop_line(name, stats))
}

async fn all(client: &Client, common: &Common) -> anyhow::Result<Shown> {
    let (mut lines, mut table, mut outcome) = (String::new(), Table::new(), Outcome::Done);
    table.load_style(presets::NOTHING);
    table.set_header([
        "queue",
        "scheduled",
        "due",
        "ready",
        "leased",
        "dead",
        "overdue_ms",
        "nodes",
        "",
    ]);
    let names = client.queues_reached().await?;
    if let Some(gap) = names.gap() {
        common.complain(&anyhow::anyhow!("{gap}"));
        outcome = Outcome::Refused;
    }
    for name in names.value {
        let reached = match client.queue(&name)?.stats_reached().await {
            Ok(reached) => reached,
            // Continue with the other queues.
            Err(error) => {
                let reason = unread(&name, &error, common);
                lines.push_str(&if common.json {
                    output::json(&serde_json::json!({ "queue": name, "error": reason }))
                } else {
                    output::visible(reason.as_bytes())
                });
                lines.push('\n');
                outcome = Outcome::Refused;
                continue;
            }
        };
        outcome = outcome.and(Outcome::done_if(reached.unread.is_empty()));
        if common.json {
            lines.push_str(&object(&name, &reached));
            continue;
        }
        let stats = &reached.value;
        let numbers = [
            stats.scheduled,
            stats.due,
            stats.ready,
            stats.leased,
            stats.dead,
            stats.overdue_ms,
            stats.nodes,
        ];
        let mut row = vec![output::visible(name.as_bytes())];
        row.extend(numbers.map(|number| number.to_string()));
        let stop = limits::stop(stats).unwrap_or_default();
        row.push(reached.gap().unwrap_or_else(|| stop.to_owned()));
        table.add_row(row);
    }
    align_right(&mut table, 1..8);
    let text = if common.json {
        lines
    } else {
        format!("{}\n{lines}", table.trim_fmt())
    };
    Ok(Shown { text, outcome })
}

/// The reason why a queue cannot be read.
fn unread(name: &str, error: &Error, common: &Common) -> String {
    let reason = common.remedy(&failure::with_queue(&error.to_string(), Some(name)));
    format!(
        "{name} cannot be read: {reason}; run dueq doctor {}",
        dueq::admin::shell_word(name.as_bytes())
    )
}

fn align_right(table: &mut Table, columns: std::ops::Range<usize>) {
    for column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

fn object(name: &str, reached: &PartialRead<Counts>) -> String {
    let stats = &reached.value;
    let mut object: serde_json::Map<_, _> = counts(stats)
        .into_iter()
        .map(|(name, value, _)| (name.to_owned(), value.into()))
        .collect();
    let fields = limits::rows(stats).into_iter().flat_map(|row| row.fields);
    object.extend(fields.map(|(name, value)| (name.to_owned(), value)));
    object.insert("queue".to_owned(), name.into());
    object.insert("paused".to_owned(), stats.paused.into());
    object.insert(
        "paused_partitions".to_owned(),
        stats.paused_partitions.into(),
    );
    object.insert("partitions".to_owned(), stats.partitions.into());
    object.insert("full".to_owned(), stats.full.into());
    let unread = reached.unread.iter();
    let unread =
        unread.map(|one| serde_json::json!({ "name": one.name, "error": one.error.to_string() }));
    object.insert("unread".to_owned(), unread.collect());
    format!("{}\n", output::json(&serde_json::Value::from(object)))
}

fn counts(stats: &Counts) -> [(&'static str, u64, &'static str); 30] {
    [
        ("scheduled", stats.scheduled, "wait for their due time"),
        ("due", stats.due, "of these, past their due time"),
        ("ready", stats.ready, "due, wait for a free handler"),
        ("leased", stats.leased, "with a handler"),
        ("dead", stats.dead, "given up"),
        (
            "moving",
            stats.moving,
            "on their way to another partition, while their number changes",
        ),
        (
            "changing_to",
            stats.changing_to,
            "so many partitions the queue gets; 0: their number does not change",
        ),
        (
            "overdue_ms",
            stats.overdue_ms,
            "age of the oldest due message that no worker has claimed",
        ),
        ("nodes", stats.nodes, "live workers"),
        (
            "drained_nodes",
            stats.drained_nodes,
            "of these, workers that an operator drained: they take nothing new",
        ),
        (
            "parked_ms",
            stats.parked_ms,
            "for this long a parked worker may send no beat; 0: none is parked",
        ),
        (
            "closed_ms",
            stats.closed_ms,
            "for this long nothing is claimed; 0: the queue is open",
        ),
        ("pushed", stats.pushed, "since the queue was created"),
        ("claimed", stats.claimed, ""),
        ("acked", stats.acked, ""),
        ("repeated", stats.repeated, ""),
        ("retried", stats.retried, ""),
        ("released", stats.released, ""),
        ("crashed", stats.crashed, "leases that ran out"),
        ("died", stats.died, ""),
        ("cancelled", stats.cancelled, ""),
        ("requeued", stats.requeued, ""),
        ("purged", stats.purged, ""),
        ("trimmed", stats.trimmed, ""),
        ("expired", stats.expired, "died or were removed unhandled"),
        (
            "throttled",
            stats.throttled,
            "given back because the receiver asked for a break",
        ),
        ("snoozed", stats.snoozed, ""),
        ("schedules", stats.schedules, "recurring schedules"),
        (
            "low_lists",
            stats.low_lists,
            "crons whose list of fires needs a refill: by a worker, or by dueq schedule keep",
        ),
        (
            "dry_lists",
            stats.dry_lists,
            "of these, crons whose list is empty: they make no ticks",
        ),
    ]
}
