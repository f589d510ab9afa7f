//! `dueq stats`: what a queue holds and has done.

use std::io::{self, Write};

use clap::Args;
use comfy_table::{CellAlignment, Table, presets};

use crate::Common;

#[derive(Args)]
pub(crate) struct Stats {
    /// The queue
    queue: String,
}

impl Stats {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<()> {
        let stats = common.queue(&self.queue).await?.stats().await?;
        let rows = [
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
        ];
        if common.json {
            let mut object: serde_json::Map<_, _> =
                rows.iter().map(|&(name, value, _)| (name.to_owned(), value.into())).collect();
            object.insert("queue".to_owned(), self.queue.into());
            object.insert("paused".to_owned(), stats.paused.into());
            writeln!(io::stdout(), "{}", serde_json::Value::from(object))?;
            return Ok(());
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        for (name, value, meaning) in rows {
            table.add_row([name.to_owned(), value.to_string(), meaning.to_owned()]);
        }
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(io::stdout(), "{table}")?;
        if stats.paused {
            writeln!(io::stdout(), "paused: nothing is claimed until it is resumed")?;
        }
        Ok(())
    }
}
