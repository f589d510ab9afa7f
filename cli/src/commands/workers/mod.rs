//! `dueq workers`: the processes that work on the queues, and their drain.

mod drain;

use clap::Args;
use comfy_table::{Table, presets};
use dueq::inspect::{NodeInfo, WorkerProcess};

use crate::output::Outcome;
use crate::{Common, output};

#[derive(Args)]
#[command(after_help = "\
Prints a line for each process with live workers: its host, process id and program, since when it
works, how many handlers run and may run, its queues, and when it reported. A process of an older
release has the id of its worker instead. Without a queue the command asks all queues of the server.
`dueq nodes QUEUE` lists the workers of one queue, and who leads; `dueq ls QUEUE --state leased` the
messages that they have.

--drain makes a process take nothing new from these queues. It goes on with what it has, and its end
ends the drain. Other processes get the messages; if there is none, they wait. A process of an older
release is refused, because it would go on. A line for each queue says drained; or full: 100 other
workers are drained there.

Examples:
  dueq workers
  dueq workers --drain host-3:4711
  dueq workers orders --resume host-3:4711
  dueq workers orders mails --json | jq -r '[.host, .pid, .running] | @tsv'")]
pub(crate) struct Workers {
    /// The queues; all, if none is named
    queues: Vec<String>,
    /// Make this process take nothing new: HOST:PID, its process id if one process has it, or the id
    /// of a worker
    #[arg(long, value_name = "PROCESS", conflicts_with = "resume")]
    drain: Option<String>,
    /// Let a drained process take messages again
    #[arg(long, value_name = "PROCESS")]
    resume: Option<String>,
}

impl Workers {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let workers = self.workers(common).await?;
        if let Some(process) = self.drain.as_deref().or(self.resume.as_deref()) {
            return drain::drain(common, &workers, process, self.drain.is_some()).await;
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
            "host", "pid", "program", "since", "handlers", "queues", "reported", "",
        ]);
        for process in &processes {
            table.add_row(row(process));
        }
        output::line(&table.trim_fmt())?;
        Ok(Outcome::Done)
    }

    /// The live workers, each with the name of its queue.
    async fn workers(&self, common: &Common) -> anyhow::Result<Vec<(String, NodeInfo)>> {
        let mut workers = Vec::new();
        if self.queues.is_empty() {
            let client = common.client_to_read().await?;
            for name in client.queues().await? {
                let nodes = client.queue(&name)?.nodes().await?;
                workers.extend(nodes.into_iter().map(|node| (name.clone(), node)));
            }
        }
        for name in &self.queues {
            let nodes = common.existing_queue_to_read(name).await?.nodes().await?;
            workers.extend(nodes.into_iter().map(|node| (name.clone(), node)));
        }
        Ok(workers)
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
        "drained": process.drained,
        "leads": process.leads,
        "silent_ms": process.silent_ms,
    })
}

fn row(process: &WorkerProcess) -> [String; 8] {
    let queues = match process.queues.as_slice() {
        [queue] => output::visible(queue.as_bytes()),
        queues => queues.len().to_string(),
    };
    let reported = format!("{} ms ago", process.silent_ms);
    let drained = match (process.drained.len(), process.queues.len()) {
        (0, _) => String::new(),
        (drained, all) if drained >= all => "drained".to_owned(),
        (drained, all) => format!("drained in {drained} of {all} queues"),
    };
    match &process.info {
        Some(info) => [
            output::visible(info.host.as_bytes()),
            info.pid.to_string(),
            output::visible(info.program.as_bytes()),
            output::moment(info.started_ms),
            format!("{} of {}", info.running, info.concurrency),
            queues,
            reported,
            drained,
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
                drained,
            ]
        }
    }
}
