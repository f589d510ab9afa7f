//! `dueq partitions`: the partitions of a queue, or their number.

use clap::{Args, value_parser};
use comfy_table::{CellAlignment, Table, presets};
use dueq::inspect::PartitionInfo;

use crate::output::Outcome;
use crate::{Common, existing, output};

#[derive(Args)]
#[command(after_help = "\
Without COUNT the command prints a line for each partition: its index, the number that distinguishes
its keys, its slot, its server, and how many messages it holds.

With COUNT a queue that is new or empty gets so many partitions, spread evenly over the masters of a
Redis Cluster. A queue that holds messages is refused. The command waits up to 15 s until the queue has
forgotten the ids that ended last; pushes wait meanwhile. If it is interrupted, run it again: until
then pushes are refused.

One partition suffices until one server does not. About four for each master are a good number. Order
by due time holds within a partition. Upgrade all clients and workers of the queue first.

Examples:
  dueq partitions orders
  dueq partitions orders 12")]
pub(crate) struct Partitions {
    /// The queue
    queue: String,
    /// How many partitions the queue shall have: 1 to 256
    #[arg(value_parser = value_parser!(u16).range(1..=256))]
    count: Option<u16>,
}

impl Partitions {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let (client, queue) = common.client_and_queue(&self.queue).await?;
        match self.count {
            Some(count) => queue.partition_into(usize::from(count)).await?,
            None => existing::require(&client, &queue).await?,
        }
        let partitions = queue.partitions().await?;
        if common.json {
            for partition in &partitions {
                output::json_line(&object(&self.queue, partition))?;
            }
        } else {
            output::line(table(&partitions).trim_end())?;
        }
        Ok(Outcome::Done)
    }
}

fn held(partition: &PartitionInfo) -> u64 {
    let stats = &partition.stats;
    stats.scheduled + stats.ready + stats.leased + stats.dead
}

fn object(queue: &str, partition: &PartitionInfo) -> serde_json::Value {
    serde_json::json!({
        "queue": queue,
        "index": partition.index,
        "tag": partition.tag,
        "slot": partition.slot,
        "server": partition.server,
        "messages": held(partition),
    })
}

fn table(partitions: &[PartitionInfo]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["partition", "tag", "slot", "server", "messages"]);
    for partition in partitions {
        table.add_row([
            partition.index.to_string(),
            partition.tag.clone(),
            partition.slot.to_string(),
            partition.server.clone(),
            held(partition).to_string(),
        ]);
    }
    for index in [0, 1, 2, 4] {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!("{table}\n")
}
