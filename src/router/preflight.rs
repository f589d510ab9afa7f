//! What must hold before the number of partitions changes: each server takes writes, and has memory
//! for the messages that move to it.

use std::collections::BTreeMap;

use crate::error::{Applied, Error, ErrorKind};
use crate::partition::Partition;
use crate::protocol::partition_map::{PartitionMap, Tag};
use crate::router::{Partitions, Router};
use crate::server::info::Info;
use crate::server::patience::patiently;

/// How many entries of each key are measured. The server reads so many in about a millisecond.
const SAMPLES: usize = 1_000;

/// A server of old or new partitions.
struct Destination {
    info: Info,
    /// About how many bytes come to it, without those that leave it.
    arriving: f64,
}

impl Router {
    /// Checks the servers of all partitions of this map, before any of them gets it.
    ///
    /// # Errors
    /// `Unavailable` if a server refuses writes because too few replicas follow it; `Full` if one
    /// has no room for the messages that move to it.
    pub(super) async fn check_servers(
        &self,
        all: &Partitions,
        map: &PartitionMap,
    ) -> Result<(), Error> {
        let name = &self.queue_name;
        let (mut servers, mut addresses) = (BTreeMap::new(), BTreeMap::new());
        for partition in all.list() {
            let link = patiently(|| partition.route().link()).await?;
            let address = link.connector().address();
            if !servers.contains_key(&address) {
                let info = patiently(|| link.control.info(&["replication", "memory"])).await?;
                if let Some(good) = info.number("min_slaves_good_slaves") {
                    // Without the right to CONFIG, only a server without any replica is known.
                    let least = link.control.setting("min-replicas-to-write").await;
                    let least = least.ok().flatten().and_then(|number| number.parse().ok());
                    check_replicas(&address, good, least)?;
                }
                let arriving = 0.0;
                servers.insert(address.clone(), Destination { info, arriving });
            }
            addresses.insert(partition.tag(), address);
        }
        if servers.values().all(|server| free(&server.info).is_none()) {
            return Ok(());
        }
        for partition in map.old.iter().filter_map(|tag| all.of_tag(*tag)) {
            let Some(bytes) = used(partition).await? else {
                return Ok(());
            };
            for (tag, share) in shares(map, partition.tag()) {
                let (from, to) = (&addresses[&partition.tag()], &addresses[&tag]);
                if from != to {
                    let moving = bytes as f64 * share;
                    for (address, sign) in [(from, -1.0), (to, 1.0)] {
                        if let Some(server) = servers.get_mut(address) {
                            server.arriving += sign * moving;
                        }
                    }
                }
            }
        }
        for (address, server) in &servers {
            check_room(name, address, server)?;
        }
        Ok(())
    }
}

/// `least` is the setting `min-replicas-to-write`, if it could be read. It is at least 1.
fn check_replicas(address: &str, good: u64, least: Option<u64>) -> Result<(), Error> {
    if good >= least.unwrap_or(1) {
        return Ok(());
    }
    let least = least.map_or("more".to_owned(), |least| least.to_string());
    let message = format!(
        "server {address} refuses writes: {good} replicas follow in time, but min-replicas-to-write is \
         {least}: bring the replicas back; the partitions are unchanged"
    );
    Err(Error::new(ErrorKind::Unavailable, Applied::No, message))
}

fn check_room(queue: &str, address: &str, server: &Destination) -> Result<(), Error> {
    let Some(free) = free(&server.info) else {
        return Ok(());
    };
    let arriving = server.arriving.max(0.0) as u64;
    if arriving <= free {
        return Ok(());
    }
    let most = server.info.number("maxmemory").unwrap_or(0);
    let message = format!(
        "server {address} has no room for what would move to it from queue {queue}: about {arriving} bytes, \
         estimated from {SAMPLES} messages of each partition, and maxmemory leaves {free} of {most}: raise \
         maxmemory; the partitions are unchanged"
    );
    Err(Error::new(ErrorKind::Full, Applied::No, message))
}

/// How many bytes a server has left below `maxmemory`; `None` if that is not set.
fn free(info: &Info) -> Option<u64> {
    let most = info.number("maxmemory").filter(|most| *most > 0)?;
    let used = info.number("used_memory")?;
    // Buffers of replicas do not count.
    let uncounted = info.number("mem_not_counted_for_evict").unwrap_or(0);
    Some(most.saturating_sub(used.saturating_sub(uncounted)))
}

/// About how many bytes the partition takes. `None` if the user lacks the right to MEMORY USAGE,
/// which operators' users of earlier releases have not.
async fn used(partition: &Partition) -> Result<Option<u64>, Error> {
    let mut bytes = 0;
    for (key, _) in partition.keys().typed() {
        match patiently(|| partition.control().memory_usage(key, SAMPLES)).await {
            Ok(of_key) => bytes += of_key,
            Err(error) if error.kind() == ErrorKind::Denied => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(bytes))
}

/// Which part of the messages of the old partition with this tag belongs to each of the new ones, if
/// ids are spread evenly.
fn shares(map: &PartitionMap, own: Tag) -> Vec<(Tag, f64)> {
    let (old, new) = (map.old.len() as f64, map.new.len() as f64);
    let Some(index) = map.old.iter().position(|tag| *tag == own) else {
        return Vec::new();
    };
    let (from, to) = (index as f64 / old, (index + 1) as f64 / old);
    let share = |(index, tag): (usize, &Tag)| {
        let (new_from, new_to) = (index as f64 / new, (index + 1) as f64 / new);
        let overlap = (to.min(new_to) - from.max(new_from)).max(0.0);
        (*tag, overlap * old)
    };
    map.new.iter().enumerate().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(count: u32) -> Vec<Tag> {
        let others = (1..count).map(Tag::Numbered);
        [Tag::Home].into_iter().chain(others).collect()
    }

    #[test]
    fn shares_of_each_old_partition_add_up_to_all_its_messages() {
        for (old, new) in [(1, 12), (12, 5), (3, 3), (256, 1)] {
            let map = PartitionMap::changing(7, tags(old), tags(new));
            let mut of_new = vec![0.0; new as usize];
            for tag in &map.old {
                let shares = shares(&map, *tag);
                let sum: f64 = shares.iter().map(|(_, share)| share).sum();
                assert!((sum - 1.0).abs() < 1e-9, "{old} to {new}: {sum}");
                for (of_new, (_, share)) in of_new.iter_mut().zip(&shares) {
                    *of_new += share;
                }
            }
            let even = f64::from(old) / f64::from(new);
            assert!(of_new.iter().all(|share| (share - even).abs() < 1e-9));
        }
    }

    #[test]
    fn a_server_needs_room_only_if_maxmemory_is_set() {
        let server = |info: &str, arriving| Destination {
            info: Info(info.replace(' ', "\r\n")),
            arriving,
        };
        let full = "maxmemory:1000 used_memory:900";
        for (info, arriving, fits) in [
            ("maxmemory:0 used_memory:900", 1e9, true),
            (full, 100.0, true),
            (full, 101.0, false),
            (full, -5.0, true),
            ("maxmemory:1000 used_memory:1100", 1.0, false),
            (
                "maxmemory:1000 used_memory:1100 mem_not_counted_for_evict:200",
                100.0,
                true,
            ),
        ] {
            let checked = check_room("orders", "a:1", &server(info, arriving));
            assert_eq!(checked.is_ok(), fits, "{info}, {arriving}");
            if let Err(error) = checked {
                assert_eq!(error.kind(), ErrorKind::Full);
            }
        }
    }
}
