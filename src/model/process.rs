//! What a worker tells with its beats of the process that it runs in.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{LazyLock, OnceLock};
use std::time::Instant;

use crate::model::stats::NodeInfo;

/// The most bytes of a host's name.
const HOST_BYTES: usize = 64;
/// The most bytes of a program's name and version.
const PROGRAM_BYTES: usize = 64;

/// The process of a worker, as the worker told it with a beat: see
/// [`NodeInfo::process`](crate::inspect::NodeInfo::process). A worker tells it about every 4 s, and
/// of a parked queue with each beat.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ProcessInfo {
    /// The name of its host.
    pub host: String,
    /// Its process id on that host.
    pub pid: u32,
    /// The program, and its version if [`name_program`](crate::inspect::name_program) told it.
    pub program: String,
    /// When the worker started, in Unix milliseconds, by the server's clock.
    pub started_ms: u64,
    /// How many handlers of the worker may run at once. 0 for a worker that only serves pulls.
    pub concurrency: usize,
    /// How many handlers of the worker ran. They may be of any of its queues.
    pub running: usize,
    /// When the worker told this, in Unix milliseconds, by the server's clock.
    pub told_ms: u64,
}

impl ProcessInfo {
    /// Reads what META keeps of a beat: `<ms> @<up ms> <pid> <concurrency> <running> <host> <program>`.
    /// `None` if another client told something else.
    pub(crate) fn parse(kept: &str) -> Option<Self> {
        let (told_ms, text) = kept.split_once(" @")?;
        let told_ms: u64 = told_ms.parse().ok()?;
        let mut words = text.splitn(6, ' ');
        let up_ms: u64 = words.next()?.parse().ok()?;
        Some(Self {
            pid: words.next()?.parse().ok()?,
            concurrency: words.next()?.parse().ok()?,
            running: words.next()?.parse().ok()?,
            host: words.next()?.to_owned(),
            program: words.next()?.to_owned(),
            started_ms: told_ms.saturating_sub(up_ms),
            told_ms,
        })
    }

    /// Adds what another worker of the process told.
    fn with(self, other: Self) -> Self {
        let (newest, older) = if self.told_ms < other.told_ms {
            (other, self)
        } else {
            (self, other)
        };
        Self {
            started_ms: newest.started_ms.min(older.started_ms),
            concurrency: newest.concurrency.saturating_add(older.concurrency),
            running: newest.running.saturating_add(older.running),
            ..newest
        }
    }
}

/// A process and its live workers, in all queues that were asked for them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerProcess {
    /// What the workers told, with the handlers of all of them, and the earliest start. `None` if
    /// the worker told nothing: then each such worker counts as a process.
    pub info: Option<ProcessInfo>,
    /// The ids of its workers, sorted: see [`NodeInfo::id`].
    pub workers: Vec<String>,
    /// The names of the queues that they attend, sorted.
    pub queues: Vec<String>,
    /// How many partitions of these queues they lead.
    pub leads: usize,
    /// How many milliseconds ago the last beat was; 0 while they have parked all queues.
    pub silent_ms: u64,
}

impl WorkerProcess {
    /// The processes of these workers, each with the name of its queue: workers of one host and
    /// process id share one. Sorted by host, process id and the id of the first worker.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// use dueq::inspect::WorkerProcess;
    ///
    /// let mut workers = Vec::new();
    /// for name in client.queues().await? {
    ///     let nodes = client.queue(&name)?.nodes().await?;
    ///     workers.extend(nodes.into_iter().map(|node| (name.clone(), node)));
    /// }
    /// println!("{} processes", WorkerProcess::group(workers).len());
    /// # });
    /// ```
    pub fn group(workers: impl IntoIterator<Item = (String, NodeInfo)>) -> Vec<Self> {
        type Key = (String, u32, String);
        let mut all: BTreeMap<Key, BTreeMap<String, NodeInfo>> = BTreeMap::new();
        let mut queues: BTreeMap<Key, BTreeSet<String>> = BTreeMap::new();
        for (queue, node) in workers {
            let key = match &node.process {
                Some(told) => (told.host.clone(), told.pid, String::new()),
                None => (String::new(), 0, node.id.clone()),
            };
            queues.entry(key.clone()).or_default().insert(queue);
            match all.entry(key).or_default().entry(node.id.clone()) {
                Entry::Vacant(new) => drop(new.insert(node)),
                Entry::Occupied(mut known) => known.get_mut().merge(node),
            }
        }
        let process = |(key, workers): (Key, BTreeMap<String, NodeInfo>)| Self {
            info: workers
                .values()
                .filter_map(|node| node.process.clone())
                .reduce(ProcessInfo::with),
            silent_ms: workers
                .values()
                .map(|node| node.silent_ms)
                .min()
                .unwrap_or(0),
            leads: workers.values().map(|node| node.leads).sum(),
            workers: workers.into_keys().collect(),
            queues: queues
                .remove(&key)
                .unwrap_or_default()
                .into_iter()
                .collect(),
        };
        all.into_iter().map(process).collect()
    }
}

static PROGRAM: OnceLock<String> = OnceLock::new();

/// Sets what the workers and pullers of this process tell of it, such as `"shop 1.4.2"`: at most 64
/// bytes, of which others than printable ASCII become `_`. The default is the name of the
/// executable. Call it before the first worker starts: later calls change nothing.
///
/// ```
/// dueq::inspect::name_program(concat!("shop ", env!("CARGO_PKG_VERSION")));
/// ```
pub fn name_program(name: &str) {
    // A second call is documented to change nothing.
    let _ = PROGRAM.set(printable(name, PROGRAM_BYTES));
}

/// The host and the program of this process, as each beat tells them.
static THIS: LazyLock<String> = LazyLock::new(|| {
    let host = printable(&gethostname::gethostname().to_string_lossy(), HOST_BYTES);
    let program = PROGRAM.get_or_init(|| {
        let path = std::env::current_exe().unwrap_or_default();
        let name = path.file_stem().unwrap_or_default();
        printable(&name.to_string_lossy(), PROGRAM_BYTES)
    });
    format!("{} {program}", host.replace(' ', "_"))
});

/// What a worker that runs since `started` tells of itself with a beat: at most 200 bytes.
pub(crate) fn told(started: Instant, concurrency: usize, running: usize) -> String {
    let mut text = String::with_capacity(100);
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "@{} {} {concurrency} {running} {}",
        started.elapsed().as_millis(),
        std::process::id(),
        *THIS
    );
    text
}

/// The text with at most so many bytes, all of them printable ASCII; `-` if it is empty.
fn printable(text: &str, most: usize) -> String {
    let plain = |c: char| if matches!(c, ' '..='~') { c } else { '_' };
    let text: String = text.trim().chars().map(plain).take(most).collect();
    if text.is_empty() {
        "-".to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_tells_is_short_and_read_again() {
        let started = Instant::now();
        let text = told(started, usize::MAX, usize::MAX);
        assert!(text.len() <= 200, "{text}");
        let told = ProcessInfo::parse(&format!("1700000000000 {text}")).expect("a process");
        assert_eq!(
            (told.pid, told.told_ms),
            (std::process::id(), 1_700_000_000_000)
        );
        assert!(told.started_ms <= told.told_ms && !told.host.is_empty());
        assert!(told.program.contains("dueq"), "{}", told.program);
    }

    #[test]
    fn workers_of_one_process_are_one_process_in_all_queues() {
        let node = |id: &str, told: Option<&str>| {
            NodeInfo::silent(id.to_owned(), told.and_then(ProcessInfo::parse), 0)
        };
        let [old, new, other, second] = [
            Some("5000 @1000 7 4 1 h p"),
            Some("9000 @5000 7 4 3 h p"),
            Some("9000 @1 8 1 0 h p"),
            Some("8000 @6000 7 2 2 h p"),
        ];
        let workers = [
            ("q", node("a", old)),
            ("r", node("a", new)),
            ("q", node("b", second)),
            ("q", node("c", other)),
            ("q", node("d", None)),
        ];
        let workers = workers.map(|(queue, node)| (queue.to_owned(), node));
        let found = WorkerProcess::group(workers);
        let ids: Vec<_> = found
            .iter()
            .map(|process| process.workers.join(" "))
            .collect();
        assert_eq!(ids, ["d", "a b", "c"]);
        let info = found[1].info.as_ref().expect("a process");
        assert_eq!(
            (info.concurrency, info.running, info.started_ms),
            (6, 5, 2_000)
        );
        assert_eq!(found[1].queues, ["q", "r"]);
    }

    #[test]
    fn other_texts_tell_no_process() {
        for kept in [
            "",
            "5",
            "5 @",
            "5 @1 2 3 4",
            "5 @1 2 3 4 host",
            "x @1 2 3 4 h p",
        ] {
            assert_eq!(ProcessInfo::parse(kept), None, "{kept}");
        }
    }

    #[test]
    fn names_are_cut_and_printable() {
        assert_eq!(printable(" shop\n1.2\u{e9} ", 64), "shop_1.2_");
        assert_eq!(printable("", 64), "-");
        assert_eq!(printable(&"a".repeat(99), 64).len(), 64);
    }
}
