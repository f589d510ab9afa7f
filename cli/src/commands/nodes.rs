//! `dueq nodes`: the live nodes of a queue.

use clap::Args;
use comfy_table::{Table, presets};

use crate::output::Outcome;
use crate::{Common, output};

#[derive(Args)]
#[command(after_help = "\
A node is the machinery of one worker. A live node reports every 0.9 s, unless it is parked; one
that was silent for 3 s is not listed. The leader promotes messages when they are due. Of a queue of
several partitions the list says how many a node leads and attends. At most 1,000 nodes of each
partition are listed.

Example:
  dueq nodes orders")]
pub(crate) struct Nodes {
    /// The queue
    queue: String,
}

impl Nodes {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let queue = common.existing_queue_to_read(&self.queue).await?;
        let nodes = queue.nodes().await?;
        if common.json {
            for node in &nodes {
                output::json_line(&serde_json::json!({
                    "node": node.id,
                    "silent_ms": node.silent_ms,
                    "parked_ms": node.parked_ms,
                    "leads": node.leads,
                    "attends": node.attends,
                    "drained": node.is_drained,
                }))?;
            }
            return Ok(Outcome::Done);
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["node", "reported", "leads", "attends", ""]);
        for node in &nodes {
            let reported = match node.parked_ms {
                0 => format!("{} ms ago", node.silent_ms),
                ms => format!("parked, again in {ms} ms"),
            };
            table.add_row([
                output::visible(node.id.as_bytes()),
                reported,
                node.leads.to_string(),
                node.attends.to_string(),
                if node.is_drained { "drained" } else { "" }.to_owned(),
            ]);
        }
        output::line(&table.trim_fmt())?;
        Ok(Outcome::Done)
    }
}
