//! `dueq stats`: what a queue, or each queue, holds and has done.

use std::time::Duration;

use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use dueq::{Client, Stats as Counts};
use tokio::signal::unix::{SignalKind, signal};

use crate::output::Outcome;
use crate::{Common, existing, output};

/// How often --watch looks.
const EVERY: Duration = Duration::from_secs(1);

#[derive(Args)]
#[command(after_help = "\
overdue_ms is the one to watch: the age of the oldest message that is due and that nobody has claimed.

Examples:
  dueq stats
  dueq stats orders --watch
  dueq stats orders --json | jq .overdue_ms")]
pub(crate) struct Stats {
    /// The queue; all of them if not given
    queue: Option<String>,
    /// Look again each second, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

impl Stats {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let client = common.client().await?;
        if let Some(name) = &self.queue {
            existing::require(&client, &client.queue(name)?).await?;
        }
        // From before the first output on: who has read it may stop us.
        let mut interrupt = signal(SignalKind::interrupt())?;
        loop {
            let text = match &self.queue {
                Some(name) => one(&client, name, common.json).await?,
                None => all(&client, common.json).await?,
            };
            if self.watch && !common.json {
                output::clear_screen()?;
            }
            if !text.is_empty() {
                output::line(text.trim_end_matches('\n'))?;
            }
            if !self.watch {
                return Ok(Outcome::Done);
            }
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                _ = interrupt.recv() => return Ok(Outcome::Done),
            }
        }
    }
}

async fn one(client: &Client, name: &str, json: bool) -> anyhow::Result<String> {
    let stats = client.queue(name)?.stats().await?;
    if json {
        return Ok(object(name, &stats));
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for (name, value, meaning) in rows(&stats) {
        table.add_row([name.to_owned(), value.to_string(), meaning.to_owned()]);
    }
    align_right(&mut table, 1..2);
    let paused = if stats.paused { "paused: nothing is claimed until `dueq resume`\n" } else { "" };
    Ok(format!("{}\n{paused}", table.trim_fmt()))
}

async fn all(client: &Client, json: bool) -> anyhow::Result<String> {
    let (mut lines, mut table) = (String::new(), Table::new());
    table.load_style(presets::NOTHING);
    table.set_header(["queue", "scheduled", "due", "ready", "leased", "dead", "overdue_ms", "nodes", ""]);
    for name in client.queues().await? {
        let stats = client.queue(&name)?.stats().await?;
        if json {
            lines.push_str(&object(&name, &stats));
            continue;
        }
        let numbers =
            [stats.scheduled, stats.due, stats.ready, stats.leased, stats.dead, stats.overdue_ms, stats.nodes];
        let mut row = vec![output::visible(name.as_bytes())];
        row.extend(numbers.map(|number| number.to_string()));
        row.push(if stats.paused { "paused" } else { "" }.to_owned());
        table.add_row(row);
    }
    align_right(&mut table, 1..8);
    Ok(if json { lines } else { format!("{}\n", table.trim_fmt()) })
}

fn align_right(table: &mut Table, columns: std::ops::Range<usize>) {
    for column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

fn object(name: &str, stats: &Counts) -> String {
    let mut object: serde_json::Map<_, _> =
        rows(stats).into_iter().map(|(name, value, _)| (name.to_owned(), value.into())).collect();
    object.insert("queue".to_owned(), name.into());
    object.insert("paused".to_owned(), stats.paused.into());
    format!("{}\n", output::json(&serde_json::Value::from(object)))
}

fn rows(stats: &Counts) -> [(&'static str, u64, &'static str); 19] {
    [
        ("scheduled", stats.scheduled, "wait for their time"),
        ("due", stats.due, "of these, past their time"),
        ("ready", stats.ready, "due, wait for a free handler"),
        ("leased", stats.leased, "with a handler"),
        ("dead", stats.dead, "given up"),
        ("overdue_ms", stats.overdue_ms, "age of the oldest due message that nobody has claimed"),
        ("nodes", stats.nodes, "live workers"),
        ("pushed", stats.pushed, "since the queue was made"),
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
    ]
}
