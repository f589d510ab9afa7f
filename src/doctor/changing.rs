//! Reports a change of the partitions or a deletion of the queue that is not complete.

use crate::doctor::checkup::Checkup;
use crate::doctor::shell::dueq;
use crate::error::Error;
use crate::protocol::partition_map::PartitionMap;
use crate::protocol::verbs::Verb;
use crate::router::Partitions;
use crate::router::plan::DRIVEN;
use crate::server::patience::Repeat;

/// A process that drives a change says so every 3 s, unless a server is away.
const STALLED_MS: u64 = 15_000;

/// How far a change of the partitions is.
#[derive(Debug, Default)]
struct Change {
    old: usize,
    new: usize,
    /// For how long the partitions have been changing.
    changing_ms: u64,
    /// How many messages are on their way.
    moving: u64,
    /// For how long no process has driven the change.
    idle_ms: u64,
    /// The other store, if messages move there (true) or from there.
    store: Option<(String, bool)>,
}

impl Checkup {
    /// Adds a finding if a deletion is not complete, or if messages are on their way to another
    /// partition and no process moves them. A change that runs is no fault.
    pub(super) async fn unfinished(
        &mut self,
        partitions: &Partitions,
        map: &PartitionMap,
    ) -> Result<(), Error> {
        let queue = partitions.home().queue_name();
        if map.new.is_empty() {
            let problem = "the queue is being deleted, and the deletion is not complete";
            let consequence = "pushes, and all calls that name an id, wait for 10 s and then fail";
            let remedy = dueq("delete-queue", &[queue.as_bytes()]);
            let remedy = format!("{remedy}    # unless that runs at this moment");
            self.wrong("changing", queue, problem.to_owned(), consequence, remedy);
            return Ok(());
        }
        let read = Change::read(partitions, map).await;
        if let Some(change) = self.allowed("the change of the partitions (HMGET)", read)? {
            self.change(queue, &change);
        }
        Ok(())
    }

    /// Adds a remark: the queue has left this store, and what follows is about where it is.
    pub(super) fn moved(&mut self, queue: &str, url: &str) {
        let problem = format!("the queue has moved to {url}");
        let consequence =
            "normal: clients that ask here follow it; workers of this store get no message";
        let remedy = dueq("delete-queue", &[queue.as_bytes()]);
        let remedy = format!("{remedy}    # once no client asks here any more");
        self.remark("moved", queue, problem, consequence, remedy);
    }

    fn change(&mut self, queue: &str, change: &Change) {
        let Change {
            old, new, moving, ..
        } = change;
        let seconds = change.changing_ms / 1_000;
        let (began, complete, abort) = match &change.store {
            None => (
                format!("the partitions are being changed from {old} to {new} for {seconds} s"),
                dueq(
                    "partitions",
                    &[queue.as_bytes(), new.to_string().as_bytes()],
                ),
                dueq("partitions --abort", &[queue.as_bytes()]),
            ),
            Some((url, true)) => (
                format!("the queue moves to {url} for {seconds} s"),
                dueq("move --to", &[url.as_bytes(), queue.as_bytes()]),
                dueq("move --abort", &[queue.as_bytes()]),
            ),
            Some((url, false)) => (
                format!("the queue moves here from {url} for {seconds} s"),
                dueq("move", &[queue.as_bytes()]),
                dueq("move --abort", &[queue.as_bytes()]),
            ),
        };
        let whose = match &change.store {
            Some((_, false)) => " at the store from which it was begun",
            _ => "",
        };
        let remedy =
            format!("{complete}    # completes the change; `{abort}` takes it back{whose}");
        if change.idle_ms < STALLED_MS {
            let problem = format!("{began}, and {moving} messages are on their way");
            let consequence = "normal while a process changes them: until then a call that names an \
                               id may need two calls to Redis";
            let remedy = format!("{remedy}; neither is needed while the change runs");
            self.remark("changing", queue, problem, consequence, remedy);
            return;
        }
        let problem = format!(
            "{began}, and no process has driven the change for {} s: {moving} messages are on their way",
            change.idle_ms / 1_000
        );
        let consequence = "all messages are delivered, those on their way once a worker that reaches both partitions puts them back; \
                           but the queue has only parts of its rate and max_leased, and calls that name an \
                           id may need two calls to Redis";
        self.wrong("changing", queue, problem, consequence, remedy);
    }
}

impl Change {
    async fn read(partitions: &Partitions, map: &PartitionMap) -> Result<Self, Error> {
        let mut change = Self {
            old: map.old.len(),
            new: map.new.len(),
            store: map.url.clone().map(|url| (url, map.new[0].is_far())),
            ..Self::default()
        };
        let mut driven = Vec::new();
        for partition in partitions.list() {
            let (meta, names) = (partition.keys().meta(), ["moving", "mapped_ms", DRIVEN]);
            let [moving, mapped_ms, driven_ms] = partition.control().fields(meta, names).await?;
            let reply = partition.call(Verb::Stats, &[], Repeat::Harmless).await?;
            let now_us = u64::try_from(reply.header.now_us).unwrap_or(0);
            let now_ms = now_us / 1_000;
            let age_of = |text: Option<String>| {
                let ms = text.and_then(|text| text.parse().ok());
                ms.map(|ms| now_ms.saturating_sub(ms))
            };
            let age_ms = age_of(mapped_ms).unwrap_or(0);
            change.changing_ms = change.changing_ms.max(age_ms);
            // Only the home where the change was begun knows this.
            driven.extend(age_of(driven_ms).filter(|_| partition.tag().is_home()));
            change.moving += moving.as_deref().map_or(0, messages_of);
        }
        let idle_ms = driven.into_iter().min();
        change.idle_ms = idle_ms.map_or(change.changing_ms, |ms| ms.min(change.changing_ms));
        Ok(change)
    }
}

/// How many messages the batch on its way has.
fn messages_of(moving: &str) -> u64 {
    let messages = moving.split(' ').nth(2);
    messages.and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_names_the_other_store_and_its_remedy() {
        for (goes, problem, remedy) in [
            (
                true,
                "moves to redis://b/",
                "dueq move --to redis://b/ orders",
            ),
            (
                false,
                "moves here from redis://b/",
                "at the store from which",
            ),
        ] {
            let mut checkup = Checkup::default();
            let change = Change {
                store: Some(("redis://b/".to_owned(), goes)),
                idle_ms: STALLED_MS,
                ..Change::default()
            };
            checkup.change("orders", &change);
            let one = &checkup.findings[0];
            assert!(one.problem.contains(problem), "{one:?}");
            assert!(one.remedy.contains(remedy), "{one:?}");
        }
    }

    #[test]
    fn a_change_is_a_fault_once_nobody_drives_it() {
        for (idle_ms, findings, remarks) in [(0, 0, 1), (14_999, 0, 1), (15_000, 1, 0)] {
            let (mut checkup, changing_ms) = (Checkup::default(), 12_345);
            let change = Change {
                old: 1,
                new: 3,
                changing_ms,
                moving: 256,
                idle_ms,
                store: None,
            };
            checkup.change("orders", &change);
            let counts = (checkup.findings.len(), checkup.remarks.len());
            assert_eq!(counts, (findings, remarks), "{checkup:?}");
            let one = checkup.findings.iter().chain(&checkup.remarks).next();
            let one = one.expect("a finding or a remark");
            assert!(one.problem.contains("from 1 to 3 for 12 s"), "{one:?}");
            assert!(one.problem.contains("256"), "{one:?}");
            assert!(
                one.remedy.starts_with("dueq partitions orders 3"),
                "{one:?}"
            );
            assert!(
                one.remedy.contains("`dueq partitions --abort orders`"),
                "{one:?}"
            );
        }
    }
}
