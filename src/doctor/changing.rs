//! Reports a change of the partitions or a deletion of the queue that is not complete.

use crate::doctor::checkup::Checkup;
use crate::doctor::shell::dueq;
use crate::error::Error;
use crate::protocol::partition_map::{PartitionMap, Tag};
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

    fn change(&mut self, queue: &str, change: &Change) {
        let Change {
            old, new, moving, ..
        } = change;
        let seconds = change.changing_ms / 1_000;
        let began = format!("the partitions are being changed from {old} to {new} for {seconds} s");
        let complete = dueq(
            "partitions",
            &[queue.as_bytes(), new.to_string().as_bytes()],
        );
        let abort = dueq("partitions --abort", &[queue.as_bytes()]);
        let remedy = format!("{complete}    # completes the change; `{abort}` takes it back");
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
        let consequence = "all messages are delivered, those on their way once a worker puts them back; \
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
            ..Self::default()
        };
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
            if partition.tag() == Tag::Home {
                change.idle_ms = age_of(driven_ms).map_or(age_ms, |idle_ms| idle_ms.min(age_ms));
            }
            change.moving += moving.as_deref().map_or(0, messages_of);
        }
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
    fn a_change_is_a_fault_once_nobody_drives_it() {
        for (idle_ms, findings, remarks) in [(0, 0, 1), (14_999, 0, 1), (15_000, 1, 0)] {
            let (mut checkup, changing_ms) = (Checkup::default(), 12_345);
            let change = Change {
                old: 1,
                new: 3,
                changing_ms,
                moving: 256,
                idle_ms,
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
