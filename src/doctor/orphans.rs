//! Reports partitions in Redis that the queue's map does not have.

use std::sync::Arc;

use crate::doctor::checkup::{Checkup, Finding, UncheckedPart};
use crate::doctor::shell::{dueq, redis_cli, shell_word};
use crate::error::Error;
use crate::partition::{Partition, StoredMap};
use crate::protocol::results::administer::Remapped;
use crate::protocol::results::inspect;
use crate::protocol::verbs::Verb;
use crate::router::{Partitions, Router};
use crate::server::patience::Repeat;

impl Checkup {
    /// Adds a finding for each partition that the map does not have. With `repair` set, removes
    /// those without messages.
    pub(super) async fn orphans(
        &mut self,
        router: &Router,
        partitions: &Partitions,
        repair: bool,
    ) -> Result<(), Error> {
        let found = match read(router, partitions).await {
            Ok(found) => found,
            Err(error) => {
                self.unchecked.push(UncheckedPart {
                    what: "partitions that the map does not have (HMGET)",
                    why: error.to_string(),
                });
                return Ok(());
            }
        };
        for orphan in found {
            let Orphan {
                partition, stored, ..
            } = &orphan;
            let repaired = match (&stored.map, repair) {
                (_, false) => false,
                (Some(map), true) if orphan.is_newer => {
                    partitions.home().forward(map).await?;
                    true
                }
                // Only an operator knows whether the messages were handled: a process that was
                // stopped may have stored them a second time.
                (_, true) if orphan.messages > 0 => false,
                (_, true) => partition.remove(stored.epoch).await? == Remapped::Done,
            };
            let mut finding = finding(&orphan);
            if repaired {
                (finding.repaired, finding.remedy) = (true, String::new());
            }
            self.found(finding);
        }
        Ok(())
    }
}

/// A partition that the queue's map does not have.
struct Orphan {
    partition: Arc<Partition>,
    stored: StoredMap,
    /// Whether its map is newer than the home's: then the home's master has lost its last writes. A
    /// single server loses those of all partitions together.
    is_newer: bool,
    /// Its messages in any state, and those on their way to another partition.
    messages: u64,
}

async fn read(router: &Router, partitions: &Partitions) -> Result<Vec<Orphan>, Error> {
    let mut orphans = Vec::new();
    for (partition, stored) in router.orphans(partitions).await? {
        let mut reply = partition.call(Verb::Stats, &[], Repeat::Harmless).await?;
        let stats = inspect::stats(&mut reply)?;
        let known = partitions.epoch();
        let is_newer = known.is_some_and(|known| known < stored.epoch);
        orphans.push(Orphan {
            is_newer: is_newer && partition.route().is_one_of_many(),
            messages: stats.scheduled + stats.ready + stats.leased + stats.dead + stats.moving,
            partition,
            stored,
        });
    }
    Ok(orphans)
}

fn finding(orphan: &Orphan) -> Finding {
    let (partition, messages) = (&orphan.partition, orphan.messages);
    let (queue, tag) = (partition.queue_name(), partition.tag());
    let repair = dueq("doctor --repair", &[queue.as_bytes()]);
    let (code, problem, consequence, remedy) = if orphan.is_newer {
        (
            "map",
            format!(
                "partition {tag} has the map of epoch {}, newer than the home's: the home's \
                 master came back with older data",
                orphan.stored.epoch
            ),
            "clients that know no map find no message of this partition",
            repair,
        )
    } else if messages == 0 {
        (
            "orphan",
            format!("partition {tag} is empty, and the map of the queue does not have it"),
            "it takes a few kB of memory",
            repair,
        )
    } else {
        let of = partition.keys().messages();
        let look = redis_cli(&format!("-c HKEYS {}", shell_word(of.as_bytes())));
        let names: Vec<_> = partition.keys().typed().map(|(key, _)| key).collect();
        let words: Vec<_> = names.iter().map(|key| shell_word(key.as_bytes())).collect();
        let remove = redis_cli(&format!("-c UNLINK {}", words.join(" ")));
        (
            "orphan",
            format!(
                "partition {tag} has {messages} messages, and the map of the queue does not have it: a \
                 process that was stopped during a change of the partitions has made it again"
            ),
            "its messages are not delivered, and calls that name their ids do not find them; some may \
             have been handled, or be in the queue as well",
            format!(
                "{look}    # their ids; push again what is neither in the queue nor handled, then remove the \
                 partition: {remove}"
            ),
        )
    };
    Finding {
        code,
        subject: tag.to_string().into_bytes(),
        problem,
        consequence,
        remedy,
        repaired: false,
    }
}
