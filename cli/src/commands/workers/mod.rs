//! `dueq workers`: the processes that work on the queues.

use clap::Args;
use comfy_table::{Table, presets};
use dueq::inspect::WorkerProcess;

use crate::output::Outcome;
use crate::{Common, output};

#[derive(Args)]
#[command(after_help = "\
Prints a line for each process with live workers: its host, process id and program, since when it
works, how many handlers run and may run, its queues, and when it reported. A process of an older
release has the id of its worker instead. Without a queue the command asks all queues of the server.
`dueq nodes QUEUE` lists the workers of one queue, and who leads; `dueq ls QUEUE --state leased` the
messages that they have.

Examples:
  dueq workers
  dueq workers orders mails --json | jq -r '[.host, .pid, .running] | @tsv'")]
pub(crate) struct Workers {
    /// The queues; all, if none is named
    queues: Vec<String>,
}

impl Workers {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let mut workers = Vec::new();
        if self.queues.is_empty() {
            let client = common.client_to_read().await?;
            for name in client.queues().await? {
                let nodes = client.queue(&name)?.nodes().await?;
                workers.extend(nodes.into_iter().map(|node| (name.clone(), node)));
            }
        }
        for name in self.queues {
            let nodes = common.existing_queue_to_read(&name).await?.nodes().await?;
            workers.extend(nodes.into_iter().map(|node| (name.clone(), node)));
        }
        let processes = WorkerProcess::group(workers);
        if common.json {
            for process in processes {
                output::json_line(&json(process))?;
            }
            return Ok(Outcome::Done);
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header([
            "host", "pid", "program", "since", "handlers", "queues", "reported",
        ]);
        for process in &processes {
            table.add_row(row(process));
        }
        output::line(&table.trim_fmt())?;
        Ok(Outcome::Done)
    }
}

fn json(process: WorkerProcess) -> serde_json::Value {
    let info = process.info.as_ref();
    serde_json::json!({
        "host": info.map(|info| &info.host),
        "pid": info.map(|info| info.pid),
        "program": info.map(|info| &info.program),
        "started_ms": info.map(|info| info.started_ms),
        "concurrency": info.map(|info| info.concurrency),
        "running": info.map(|info| info.running),
        "workers": process.workers,
        "queues": process.queues,
        "leads": process.leads,
        "silent_ms": process.silent_ms,
    })
}

fn row(process: &WorkerProcess) -> [String; 7] {
    let queues = match process.queues.as_slice() {
        [queue] => output::visible(queue.as_bytes()),
        queues => queues.len().to_string(),
    };
    let reported = format!("{} ms ago", process.silent_ms);
    match &process.info {
        Some(info) => [
            output::visible(info.host.as_bytes()),
            info.pid.to_string(),
            output::visible(info.program.as_bytes()),
            output::moment(info.started_ms),
            format!("{} of {}", info.running, info.concurrency),
            queues,
            reported,
        ],
        None => {
            let worker = output::visible(process.workers.join(" ").as_bytes());
            let unknown = || "-".to_owned();
            [
                worker,
                unknown(),
                unknown(),
                unknown(),
                unknown(),
                queues,
                reported,
            ]
        }
    }
}
