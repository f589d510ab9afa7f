//! Measurements on a Redis Cluster of this machine.

pub(crate) mod cost;
pub(crate) mod failovers;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use dueq::{Client, Queue};
use dueq_testkit::cluster::Cluster;

/// So that masters that are left serve their slots while another one is away.
const OPTIONS: [&str; 2] = ["--cluster-require-full-coverage", "no"];

/// Masters, each with a replica.
async fn replicated(masters: usize) -> Result<Cluster> {
    let mut cluster = Cluster::start_with(masters, &OPTIONS).await?;
    for master in 0..masters {
        cluster.add_replica(master).await?;
    }
    Ok(cluster)
}

/// A queue with so many partitions, and for each of them, by its tag, the part in braces that leads
/// an id to it.
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

/// `-` of the first partition, whose keys have no tag.
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
    fn a_tag_is_read_from_the_name_of_a_key() {
        assert_eq!(tag_of("dueq:{bench}:meta"), "-");
        assert_eq!(tag_of("dueq:{bench/12}:meta"), "12");
    }
}
