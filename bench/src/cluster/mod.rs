//! Measurements on a Redis Cluster of this machine.

pub(crate) mod cost;
pub(crate) mod failovers;
pub(crate) mod load;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use dueq::{Client, Queue};
use dueq_testkit::cluster::Cluster;

/// Lets the remaining masters serve their slots while another is away.
const OPTIONS: [&str; 2] = ["--cluster-require-full-coverage", "no"];

/// Starts masters, each with a replica.
async fn replicated(masters: usize) -> Result<Cluster> {
    let mut cluster = Cluster::start_with(masters, &OPTIONS).await?;
    for master in 0..masters {
        cluster.add_replica(master).await?;
    }
    Ok(cluster)
}

/// A queue with this number of partitions. For each partition, by its tag: a part in braces with
/// which an id leads to it.
async fn partitioned(url: &str, count: usize) -> Result<(Queue, BTreeMap<String, String>)> {
    let queue = Client::connect(url).await?.queue("bench")?;
    queue.partition_into(count).await?;
    let mut parts: BTreeMap<String, String> = BTreeMap::new();
    let mut candidates = 0_u32..;
    while parts.len() < count {
        let part = candidates.next().context("a candidate")?.to_string();
        let keys = queue.keys_of(&part).await?;
        parts.entry(tag_of(&keys[0])).or_insert(part);
    }
    Ok((queue, parts))
}

/// The tag in the name of a partition's key; `-` for the home, whose keys have none.
fn tag_of(key: &str) -> String {
    let tag = key
        .split_once('/')
        .and_then(|(_, rest)| rest.split_once('}'));
    tag.map_or("-", |(tag, _)| tag).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_of_a_partition_is_read_from_a_key() {
        assert_eq!(tag_of("dueq:{bench}:meta"), "-");
        assert_eq!(tag_of("dueq:{bench/12}:meta"), "12");
    }
}
