//! The names of a queue's keys: the only place that builds them.

use crate::error::Error;
use crate::protocol::limits;
use crate::protocol::partition_map::Tag;

/// The suffixes in the order of the KEYS vector that every script takes.
const SUFFIXES: [&str; 10] = [
    "scheduled",
    "ready",
    "leases",
    "claims",
    "messages",
    "attrs",
    "dead",
    "recent",
    "nodes",
    "meta",
];

/// The keys of one partition. All share a hash tag, so that a cluster keeps them in one slot.
#[derive(Debug)]
pub(crate) struct Keys {
    /// In the order of the KEYS vector.
    pub(crate) vector: [String; 10],
    /// The list that idle nodes block on.
    pub(crate) wake: String,
    /// The shard channel of hints about the head, and the channel of the queue's creation.
    pub(crate) notice: String,
}

impl Keys {
    /// The keys of the queue of this name, if it is a valid one.
    pub(crate) fn of_queue(name: &str) -> Result<Self, Error> {
        Self::of_partition(name, Tag::Home)
    }

    /// The keys of one partition of the queue of this name, if it is a valid one.
    pub(crate) fn of_partition(name: &str, tag: Tag) -> Result<Self, Error> {
        limits::check_queue_name(name)?;
        let base = match tag {
            Tag::Home => format!("dueq:{{{name}}}"),
            Tag::Numbered(number) => format!("dueq:{{{name}/{number}}}"),
        };
        Ok(Self {
            vector: SUFFIXES.map(|suffix| format!("{base}:{suffix}")),
            wake: format!("{base}:wake"),
            notice: format!("{base}:notice"),
        })
    }

    /// The hash that exists as long as the queue does.
    pub(crate) fn meta(&self) -> &str {
        &self.vector[9]
    }

    /// All keys but the channel, each with the type that it has or will have.
    pub(crate) fn typed(&self) -> impl Iterator<Item = (&str, &'static str)> {
        let kinds = [
            "zset", "list", "zset", "hash", "hash", "hash", "zset", "zset", "zset", "hash", "list",
        ];
        self.vector
            .iter()
            .chain([&self.wake])
            .map(String::as_str)
            .zip(kinds)
    }

    /// The sorted set of what is remembered of calls and of ids that ended.
    pub(crate) fn recent(&self) -> &str {
        &self.vector[7]
    }

    /// The sorted set of the live nodes.
    pub(crate) fn nodes(&self) -> &str {
        &self.vector[8]
    }

    /// The hash of the attributes of messages.
    pub(crate) fn attrs(&self) -> &str {
        &self.vector[5]
    }
}

/// The placeholder: a field, member or entry that keeps each key from being empty, and its encoding
/// from being a listpack.
pub(crate) const PLACEHOLDER: [u8; 71] = {
    let mut placeholder = [b'-'; 71];
    placeholder[0] = 0;
    placeholder
};

/// The pattern with which SCAN finds the queues whose names match `glob`.
pub(crate) fn meta_glob(glob: &str) -> String {
    format!("dueq:{{{glob}}}:meta")
}

/// The pattern with which SCAN finds the meta hashes of a queue's partitions but for the home.
pub(crate) fn partitions_glob(queue_name: &str) -> String {
    let special = |c| matches!(c, '*' | '?' | '[' | ']' | '\\' | '^');
    let escape = |c| special(c).then_some('\\').into_iter().chain([c]);
    let name: String = queue_name.chars().flat_map(escape).collect();
    meta_glob(&format!("{name}/*"))
}

/// The pattern of the channels of the queues whose names match `glob`.
pub(crate) fn notice_glob(glob: &str) -> String {
    format!("dueq:{{{glob}}}:notice")
}

/// The queue that publishes on this channel.
pub(crate) fn queue_of_notice(channel: &str) -> Option<&str> {
    partition_of(channel, "}:notice").map(|(name, _)| name)
}

/// The queue of which this key is the meta hash of a partition, and the partition.
pub(crate) fn partition_of_key(key: &str) -> Option<(&str, Tag)> {
    partition_of(key, "}:meta")
}

fn partition_of<'a>(text: &'a str, suffix: &str) -> Option<(&'a str, Tag)> {
    let base = text.strip_prefix("dueq:{")?.strip_suffix(suffix)?;
    let (name, tag) = match base.split_once('/') {
        None => (base, Tag::Home),
        Some((name, tag)) => (name, Tag::parse(tag).filter(|tag| *tag != Tag::Home)?),
    };
    limits::check_queue_name(name)
        .is_ok()
        .then_some((name, tag))
}

/// The partition that this key is the meta hash of: `orders`, or `orders/17`.
#[cfg(feature = "harness")]
pub(crate) fn partition_of_meta(key: &str) -> Option<&str> {
    key.strip_prefix("dueq:{")?.strip_suffix("}:meta")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_found_by_the_meta_keys_of_its_partitions() {
        let found = |key| partition_of_key(key);
        assert_eq!(found("dueq:{orders}:meta"), Some(("orders", Tag::Home)));
        let numbered = Tag::Numbered(17);
        assert_eq!(found("dueq:{orders/17}:meta"), Some(("orders", numbered)));
        assert_eq!(queue_of_notice("dueq:{orders}:notice"), Some("orders"));
        assert_eq!(queue_of_notice("dueq:{orders/17}:notice"), Some("orders"));
        for other in [
            "dueq:{orders}:ready",
            "dueq:{}:meta",
            "dueq:{a/b}:meta",
            "dueq:{a/-}:meta",
            "dueq:{a/01}:meta",
            "orders",
            "dueq:{a}:b}:meta",
        ] {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn all_keys_share_the_hash_tag_of_their_queue() {
        let keys = Keys::of_queue("orders").expect("a valid name");
        for key in keys.vector.iter().chain([&keys.wake, &keys.notice]) {
            assert!(key.starts_with("dueq:{orders}:"), "{key}");
        }
    }

    #[test]
    fn keys_of_a_partition_share_its_tag() {
        let keys = Keys::of_partition("orders", Tag::Numbered(17)).expect("a valid name");
        for key in keys.vector.iter().chain([&keys.wake, &keys.notice]) {
            assert!(key.starts_with("dueq:{orders/17}:"), "{key}");
        }
    }
}
