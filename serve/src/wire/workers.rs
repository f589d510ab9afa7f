//! The workers of queues, and their processes.

use dueq::inspect::{NodeInfo, ProcessInfo};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::wire::queues::Unread;

/// The live workers of a queue.
#[derive(Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct Nodes {
    pub(crate) queue: String,
    pub(crate) nodes: Vec<Node>,
    /// What could not be read. Missing if everything was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unread: Vec<Unread>,
}

/// A live node: the machinery of one worker.
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct Node {
    /// Unique to the worker.
    pub(crate) id: String,
    /// How long ago it last reported that it lives.
    pub(crate) silent_ms: u64,
    /// In how many milliseconds it reports again, if it has announced a silence; 0 if not.
    pub(crate) parked_ms: u64,
    /// How many partitions it leads.
    pub(crate) leads: usize,
    /// How many partitions it attends.
    pub(crate) attends: usize,
    /// Whether an operator drained it: it takes nothing new of this queue.
    #[serde(default)]
    pub(crate) drained: bool,
    /// Its process; missing if it did not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) process: Option<ToldProcess>,
}

impl From<NodeInfo> for Node {
    fn from(node: NodeInfo) -> Self {
        Self {
            id: node.id,
            silent_ms: node.silent_ms,
            parked_ms: node.parked_ms,
            leads: node.leads,
            attends: node.attends,
            drained: node.is_drained,
            process: node.process.map(ToldProcess::from),
        }
    }
}

/// The process of a worker, as the worker told it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Process)]
pub(crate) struct ToldProcess {
    pub(crate) host: String,
    pub(crate) pid: u32,
    /// The program, and its version if it told it.
    pub(crate) program: String,
    /// When its worker started.
    pub(crate) started_ms: u64,
    /// How many handlers may run at once; 0 if it only serves pulls and HTTP.
    pub(crate) concurrency: usize,
    /// How many handlers ran.
    pub(crate) running: usize,
    /// When it told this.
    pub(crate) told_ms: u64,
}

impl From<ProcessInfo> for ToldProcess {
    fn from(info: ProcessInfo) -> Self {
        Self {
            host: info.host,
            pid: info.pid,
            program: info.program,
            started_ms: info.started_ms,
            concurrency: info.concurrency,
            running: info.running,
            told_ms: info.told_ms,
        }
    }
}

/// The worker that has a message.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct Holder {
    /// Its node id.
    pub(crate) id: String,
    /// Whether it is alive: it reported within 3 s.
    pub(crate) is_alive: bool,
    /// How long ago it last reported.
    pub(crate) silent_ms: u64,
    /// Its process; missing if it did not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) process: Option<ToldProcess>,
}

impl From<NodeInfo> for Holder {
    fn from(node: NodeInfo) -> Self {
        Self {
            is_alive: node.is_alive(),
            silent_ms: node.silent_ms,
            process: node.process.map(ToldProcess::from),
            id: node.id,
        }
    }
}

/// The processes that work on the caller's queues.
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct Processes {
    /// Sorted by host and process id.
    pub(crate) processes: Vec<ListedProcess>,
    /// How many queues have workers that were not read yet: ask again soon.
    pub(crate) unread: u64,
    /// How old the counts of the queues are that say which ones have workers.
    pub(crate) age_ms: u64,
}

/// A process with live workers.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = WorkerProcess)]
pub(crate) struct ListedProcess {
    /// With the handlers of all its workers. Missing if the worker did not tell it: then each such
    /// worker counts as a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) process: Option<ToldProcess>,
    /// The node ids of its workers.
    pub(crate) workers: Vec<String>,
    /// The queues that it attends, of those that the caller may use.
    pub(crate) queues: Vec<String>,
    /// Those of its queues of which it takes nothing new, because an operator drained it.
    #[serde(default)]
    pub(crate) drained: Vec<String>,
    /// How many partitions it leads.
    pub(crate) leads: usize,
    /// How long ago it last reported that it lives.
    pub(crate) silent_ms: u64,
}

impl From<dueq::inspect::WorkerProcess> for ListedProcess {
    fn from(process: dueq::inspect::WorkerProcess) -> Self {
        Self {
            process: process.info.map(ToldProcess::from),
            workers: process.workers,
            queues: process.queues,
            drained: process.drained,
            leads: process.leads,
            silent_ms: process.silent_ms,
        }
    }
}

impl ListedProcess {
    /// Whether one of its workers has the messages of a lease with this end of a node id.
    pub(crate) fn has(&self, node: &str) -> bool {
        let unique = |id: &str| id.rsplit_once('#').map_or(id, |(unique, _)| unique).len();
        let mut workers = self.workers.iter();
        workers.any(|id| id[..unique(id)].ends_with(node))
    }
}
