//! Examines the map of a queue's partitions.

use crate::doctor::checkup::{Checkup, Finding};
use crate::doctor::shell::{dueq, redis_cli, shell_word};
use crate::error::Error;
use crate::protocol::partition_map::{PartitionMap, Tag};
use crate::router::Partitions;

impl Checkup {
    /// Compares the maps of all partitions, and repairs differences if `repair` is set.
    pub(super) async fn maps(
        &mut self,
        partitions: &Partitions,
        queue_name: &str,
        repair: bool,
    ) -> Result<(), Error> {
        let Some(map) = partitions.map() else {
            return Ok(());
        };
        self.fact("partitions", map.old.len());
        if !map.is_settled() {
            return self.unfinished(partitions, map).await;
        }
        for partition in &partitions.list()[1..] {
            let stored = partition.stored_map().await;
            let Some(stored) = self.allowed("maps of the partitions (HMGET)", stored)? else {
                return Ok(());
            };
            let stored = stored.map;
            let place = (partition.index(), partition.tag());
            let Some(mut finding) = differing(queue_name, map, place, stored.as_ref()) else {
                continue;
            };
            if repair {
                // Of two maps, the one with the larger epoch is valid.
                match stored.filter(|stored| stored.epoch > map.epoch) {
                    Some(newer) => partitions.home().forward(&newer).await?,
                    None => partition.forward(map).await?,
                }
                (finding.repaired, finding.remedy) = (true, String::new());
            }
            self.found(finding);
        }
        Ok(())
    }

    /// Adds a finding: a part of the queue does not reply.
    pub(super) fn unread(&mut self, gap: String) {
        let consequence = "messages of these partitions are not delivered until they reply; the \
                           other partitions were not audited";
        let remedy = format!("{}    # names the master", dueq("doctor", &[]));
        self.wrong("unread", "partitions", gap, consequence, remedy);
    }

    /// Adds a finding: the home has no map, but the other partitions have this one.
    pub(super) fn lost_home(&mut self, queue_name: &str, map: &PartitionMap, repaired: bool) {
        let count = map.new.len().to_string();
        self.found(Finding {
            code: "map",
            subject: Tag::Home.to_string().into_bytes(),
            problem: format!(
                "the home has no map, and other partitions have that of epoch {}: the home's \
                 master came back empty, or its meta was removed",
                map.epoch
            ),
            consequence: "clients that know no map take the home for the whole queue: they find no \
                          message of another partition, and workers of earlier releases deliver \
                          none",
            remedy: match repaired {
                true => String::new(),
                false => dueq("partitions", &[queue_name.as_bytes(), count.as_bytes()]),
            },
            repaired,
        });
    }

    /// Adds a finding: the map at the home cannot be read.
    pub(super) fn unreadable_map(&mut self, queue_name: &str, home_meta: &str, error: &Error) {
        let consequence = "every call that names an id fails";
        let others = home_meta.replace("}:meta", "/TAG}:meta");
        let remedy = format!(
            "{} shows the other partitions, each of which has the map: {}; then {}",
            redis_cli(&format!(
                "--scan --pattern {}",
                shell_word(others.replace("TAG", "*").as_bytes())
            )),
            redis_cli(&format!("HGET {} map", shell_word(others.as_bytes()))),
            redis_cli(&format!(
                "HSET {} map 'MAP'",
                shell_word(home_meta.as_bytes())
            )),
        );
        self.wrong("map", queue_name, error.to_string(), consequence, remedy);
    }
}

/// Adds a finding: a partition has another map than the home.
fn differing(
    queue_name: &str,
    at_home: &PartitionMap,
    (index, tag): (usize, Tag),
    stored: Option<&PartitionMap>,
) -> Option<Finding> {
    let of = format!("partition {index} ({tag})");
    let problem = match stored {
        Some(map) if map.epoch == at_home.epoch => return None,
        Some(map) if map.epoch < at_home.epoch => format!(
            "{of} has the map of epoch {}, and the home that of {}",
            map.epoch, at_home.epoch
        ),
        Some(map) => format!(
            "{of} has the map of epoch {}, newer than the home's {}: the home's master came back \
             with older data",
            map.epoch, at_home.epoch
        ),
        None => format!("{of} has no map: its master came back empty, or its meta was removed"),
    };
    let count = at_home.new.len().to_string();
    let remedy = match stored {
        // The repair writes the newer map to the home, as any client that knows this map would.
        Some(map) if map.epoch > at_home.epoch => dueq("doctor --repair", &[queue_name.as_bytes()]),
        _ => dueq("partitions", &[queue_name.as_bytes(), count.as_bytes()]),
    };
    Some(Finding {
        code: "map",
        subject: tag.to_string().into_bytes(),
        problem,
        consequence: "the first call to the partition is refused and repeated with the newest \
                      map; clients that only follow the protocol's minimum fail",
        remedy,
        repaired: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_of_other_epochs_are_findings() {
        let tags = vec![Tag::Home, Tag::Numbered(4)];
        let home = PartitionMap::settled(7, tags.clone());
        let of = |epoch: Option<u64>| {
            let stored = epoch.map(|epoch| PartitionMap::settled(epoch, tags.clone()));
            differing("orders", &home, (1, tags[1]), stored.as_ref())
        };
        assert_eq!(of(Some(7)), None);
        let (mend, restore) = ("dueq partitions orders 2", "dueq doctor --repair orders");
        for (epoch, words, remedy) in [
            (Some(6), "epoch 6", mend),
            (Some(8), "older data", restore),
            (None, "no map", mend),
        ] {
            let finding = of(epoch).expect("a finding");
            assert!(finding.problem.contains(words), "{finding:?}");
            assert!(finding.problem.contains("partition 1 (4)"), "{finding:?}");
            assert_eq!(finding.remedy, remedy);
        }
    }
}
