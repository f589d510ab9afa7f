//! Reports a change of the partitions or a deletion of the queue that is not complete.

use crate::doctor::checkup::Checkup;
use crate::doctor::shell::dueq;
use crate::error::Error;
use crate::protocol::partition_map::PartitionMap;
use crate::protocol::verbs::Verb;
use crate::router::Partitions;
use crate::server::patience::Repeat;

/// A batch that a process moves is on its way for less than this. Otherwise a worker ends it.
const STALLED_MS: u64 = 10_000;

/// How far a change of the partitions is.
#[derive(Debug, Default)]
struct Change {
    old: usize,
    new: usize,
    /// For how long the partitions have been changing.
    changing_ms: u64,
    /// How many messages are on their way.
    moving: u64,
    /// For how long the batch that left first has been on its way.
    oldest_ms: u64,
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
        if change.oldest_ms < STALLED_MS {
            let problem = format!("{began}, and {moving} messages are on their way");
            let consequence = "normal while a process changes them: until then a call that names an \
                               id may need two calls to Redis";
            let remedy = format!("{remedy}; neither is needed while the change runs");
            self.remark("changing", queue, problem, consequence, remedy);
            return;
        }
        let problem = format!(
            "{began}, and nobody moves messages: {moving} are on their way, some for {} s",
            change.oldest_ms / 1_000
        );
        let consequence = "the messages on their way are not delivered until a worker puts them back, \
                           and calls that name them fail after 10 s; all others are delivered";
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
            let (meta, names) = (partition.keys().meta(), ["moving", "mapped_ms"]);
            let [moving, mapped_ms] = partition.control().fields(meta, names).await?;
            let reply = partition.call(Verb::Stats, &[], Repeat::Harmless).await?;
            let now_us = u64::try_from(reply.header.now_us).unwrap_or(0);
            let mapped_ms = mapped_ms.and_then(|text| text.parse().ok());
            let age_ms =
                mapped_ms.map_or(0, |mapped_ms| (now_us / 1_000).saturating_sub(mapped_ms));
            change.changing_ms = change.changing_ms.max(age_ms);
            if let Some((left_us, messages)) = moving.as_deref().and_then(batch) {
                change.moving += messages;
                let oldest_ms = now_us.saturating_sub(left_us) / 1_000;
                change.oldest_ms = change.oldest_ms.max(oldest_ms);
            }
        }
        Ok(change)
    }
}

/// When the batch on its way left its partition, by the server's clock in microseconds, and how many
/// messages it has. Its number is that time.
fn batch(moving: &str) -> Option<(u64, u64)> {
    let mut parts = moving.split(' ');
    let number = parts.next()?.parse().ok()?;
    Some((number, parts.nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_a_fault_once_its_messages_wait() {
        for (oldest_ms, findings, remarks) in [(0, 0, 1), (9_999, 0, 1), (10_000, 1, 0)] {
            let (mut checkup, changing_ms) = (Checkup::default(), 12_345);
            let change = Change {
                old: 1,
                new: 3,
                changing_ms,
                moving: 256,
                oldest_ms,
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

    #[test]
    fn the_number_of_a_batch_says_when_it_left() {
        assert_eq!(
            batch("1700000000000000 17 256"),
            Some((1_700_000_000_000_000, 256))
        );
        assert_eq!(batch("17"), None);
    }
}
