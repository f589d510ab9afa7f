//! Builds the names of a queue's keys, their hash slots, and the ids of nodes. No other file builds
//! them.

use crate::error::Error;
use crate::protocol::limits;
use crate::protocol::partition_map::Tag;

/// The suffixes of the keys, in the order of the KEYS that every script takes.
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
    /// The ten keys in the order of KEYS.
    pub(crate) vector: [String; 10],
    /// The wake-up list, on which idle nodes block.
    pub(crate) wake: String,
    /// The channel for notices about the head, and for the notice that the queue was created.
    pub(crate) notice: String,
}

impl Keys {
    /// The keys of the queue of this name. Refuses an invalid name.
    pub(crate) fn of_queue(name: &str) -> Result<Self, Error> {
        Self::of_partition(name, Tag::Home)
    }

    /// The keys of one partition of the queue of this name. Refuses an invalid name.
    pub(crate) fn of_partition(name: &str, tag: Tag) -> Result<Self, Error> {
        limits::check_queue_name(name)?;
        let base = match tag {
            Tag::Home | Tag::FarHome => format!("dueq:{{{name}}}"),
            Tag::Numbered(number) | Tag::FarNumbered(number) => {
                format!("dueq:{{{name}/{number}}}")
            }
        };
        Ok(Self {
            vector: SUFFIXES.map(|suffix| format!("{base}:{suffix}")),
            wake: format!("{base}:wake"),
            notice: format!("{base}:notice"),
        })
    }

    /// The hash `meta`, which exists as long as the queue does.
    pub(crate) fn meta(&self) -> &str {
        &self.vector[9]
    }

    /// All keys, without the channel, each with its Redis type.
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

    /// The deduplication memory: the sorted set of remembered calls and ended ids.
    pub(crate) fn messages(&self) -> &str {
        &self.vector[4]
    }

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

/// The SCAN pattern for the meta hashes of queues whose names match `glob`.
pub(crate) fn meta_glob(glob: &str) -> String {
    format!("dueq:{{{glob}}}:meta")
}

/// The SCAN pattern for the meta hashes of a queue's partitions, without the home.
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

/// The name of the queue that publishes on this channel.
pub(crate) fn queue_of_notice(channel: &str) -> Option<&str> {
    partition_of(channel, "}:notice").map(|(name, _)| name)
}

/// The queue and the partition whose meta hash this key is; `None` for another key.
pub(crate) fn partition_of_key(key: &str) -> Option<(&str, Tag)> {
    partition_of(key, "}:meta")
}

fn partition_of<'a>(text: &'a str, suffix: &str) -> Option<(&'a str, Tag)> {
    let base = text.strip_prefix("dueq:{")?.strip_suffix(suffix)?;
    let (name, tag) = match base.split_once('/') {
        None => (base, Tag::Home),
        Some((name, tag)) => (
            name,
            Tag::parse(tag).filter(|tag| matches!(tag, Tag::Numbered(_)))?,
        ),
    };
    limits::check_queue_name(name)
        .is_ok()
        .then_some((name, tag))
}

/// The partition whose meta hash this key is, as `orders` or `orders/17`; `None` for another key.
#[cfg(feature = "harness")]
pub(crate) fn partition_of_meta(key: &str) -> Option<&str> {
    key.strip_prefix("dueq:{")?.strip_suffix("}:meta")
}

/// How many slots a cluster has.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a key: the CRC-16 of the part between its first `{` and the next `}`, or of the
/// whole key if there is none or nothing between them.
pub(crate) fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| {
        let (tag, _) = rest.split_once('}')?;
        (!tag.is_empty()).then_some(tag)
    });
    hash_slot(tag.unwrap_or(key).as_bytes())
}

/// The slot of the keys with this hash tag.
pub(crate) fn hash_slot(tag: &[u8]) -> u16 {
    Prefix::of(tag).slot_with(b"")
}

/// The common beginning of many hash tags, with its CRC, so that the slots of all of them are
/// computed fast.
#[derive(Clone, Copy)]
pub(crate) struct Prefix {
    crc: u16,
}

impl Prefix {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self {
            crc: crc16(0, bytes),
        }
    }

    /// The slot of the keys whose hash tag is this prefix followed by `rest`.
    pub(crate) fn slot_with(self, rest: &[u8]) -> u16 {
        crc16(self.crc, rest) % SLOTS
    }
}

/// The CRC-16/XMODEM of bytes that follow others with the CRC `before`.
fn crc16(before: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(before, |crc, byte| {
        CRC_TABLE[usize::from((crc >> 8) as u8 ^ byte)] ^ (crc << 8)
    })
}

static CRC_TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut value, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            value = (value << 1) ^ (0x1021 * (value >> 15));
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
};

/// Nodes of this or a later revision obey a queue's rate, `max_leased` and expiries in their
/// claims.
const WITH_LIMITS: u32 = 2;

/// Makes the id of a node of this release.
pub(crate) fn node_id(unique: &str) -> String {
    format!("{unique}#{WITH_LIMITS}")
}

/// Whether the claims of the node with this id obey the limits.
pub(crate) fn obeys_limits(id: &str) -> bool {
    let revision = id
        .rsplit_once('#')
        .map(|(_, revision)| revision.parse::<u32>());
    matches!(revision, Some(Ok(revision)) if revision >= WITH_LIMITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meta_key_names_its_queue_and_partition() {
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

#[cfg(test)]
mod slot_tests {
    use super::*;

    #[test]
    fn computed_slots_equal_those_of_redis() {
        // Expected values from CLUSTER KEYSLOT.
        for (key, slot) in [
            ("123456789", 12_739),
            ("foo", 12_182),
            ("foo{}bar", 14_292),
            ("{foo}bar", 12_182),
            ("a{foo}{bar}", 12_182),
            ("foo{bar", 15_278),
        ] {
            assert_eq!(slot_of(key), slot, "{key}");
        }
    }
}

#[cfg(test)]
mod node_id_tests {
    use super::*;

    #[test]
    fn node_ids_of_this_and_newer_releases_obey_limits() {
        for id in [&*node_id("a"), "#2", "a#3", "a#b#10"] {
            assert!(obeys_limits(id), "{id}");
        }
        for id in ["", "a", "a#1", "a#", "a#x", "a#2b", "2"] {
            assert!(!obeys_limits(id), "{id}");
        }
    }
}
