//! The map of a queue's partitions: the tag of each partition, and the partition of each id.

mod tag;

use std::collections::HashSet;
use std::fmt;

use crate::error::{Applied, Error, ErrorKind, printable};
use crate::model::message::DIGITS;

pub(crate) use tag::{MAX_TAG, Tag};

/// The most partitions of a queue.
pub(crate) const MAX_PARTITIONS: usize = 256;
/// The bound of epochs. Scripts read them as floating-point numbers, which are exact below it.
const EPOCH_LIMIT: u64 = 1 << 53;

/// The map of a queue: the tags of its partitions by index, before and after a change.
///
/// As text: `EPOCH|OLD TAGS|NEW TAGS`, and while a queue moves between two stores, `|URL` of the other
/// one. The other store has the same map, as seen from there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionMap {
    pub(crate) epoch: u64,
    pub(crate) old: Vec<Tag>,
    /// The tags after the change. Empty while the queue is being deleted.
    pub(crate) new: Vec<Tag>,
    /// The store of the far tags, without user and password.
    pub(crate) url: Option<String>,
}

impl PartitionMap {
    pub(crate) fn settled(epoch: u64, tags: Vec<Tag>) -> Self {
        Self {
            epoch,
            old: tags.clone(),
            new: tags,
            url: None,
        }
    }

    pub(crate) fn changing(epoch: u64, old: Vec<Tag>, new: Vec<Tag>) -> Self {
        let url = None;
        Self {
            epoch,
            old,
            new,
            url,
        }
    }

    /// The map of a home whose queue is at this URL.
    pub(crate) fn moved(epoch: u64, url: &str) -> Self {
        Self {
            url: Some(url.to_owned()),
            ..Self::settled(epoch, vec![Tag::FarHome])
        }
    }

    /// Whether the whole queue is in the other store.
    pub(crate) fn is_moved(&self) -> bool {
        self.old == [Tag::FarHome] && self.is_settled()
    }

    /// Whether both describe one change. The other store may be named by another URL.
    pub(crate) fn describes_change_of(&self, other: &Self) -> bool {
        (self.epoch, &self.old, &self.new) == (other.epoch, &other.old, &other.new)
    }

    /// This map as the other store has it; `url` is that of this store.
    pub(crate) fn flipped(&self, url: &str) -> Self {
        let flipped = |tags: &[Tag]| tags.iter().map(|tag| tag.flipped()).collect();
        Self {
            epoch: self.epoch,
            old: flipped(&self.old),
            new: flipped(&self.new),
            url: Some(url.to_owned()),
        }
    }

    /// Whether messages move to another store, or from one.
    pub(crate) fn is_of_two_stores(&self) -> bool {
        self.url.is_some() && self.moves()
    }

    /// Whether both lists of tags are the same.
    pub(crate) fn is_settled(&self) -> bool {
        self.old == self.new
    }

    /// Whether messages move from the partitions of the old list to those of the new one.
    pub(crate) fn moves(&self) -> bool {
        !self.is_settled() && !self.new.is_empty()
    }

    /// Reads the map that is stored at the home of `queue_name`.
    ///
    /// # Errors
    /// `Server` if it is not well formed.
    pub(crate) fn parse(queue_name: &str, text: &str) -> Result<Self, Error> {
        Self::read(text).map_err(|reason| {
            let message = format!(
                "the map of the partitions of queue {queue_name} cannot be read: {reason} in {:?} \
                 (`dueq doctor {queue_name}` says how to mend it)",
                printable(text)
            );
            Error::new(ErrorKind::Server, Applied::No, message)
        })
    }

    /// Reads a map; otherwise returns what is wrong with it.
    pub(crate) fn read(text: &str) -> Result<Self, &'static str> {
        let mut parts = text.split('|');
        let (Some(epoch), Some(old), Some(new), url, None) = (
            parts.next(),
            parts.next(),
            parts.next(),
            parts.next(),
            parts.next(),
        ) else {
            return Err("not three parts EPOCH|OLD TAGS|NEW TAGS");
        };
        let known = |number: &u64| (1..EPOCH_LIMIT).contains(number) && number.to_string() == epoch;
        let epoch = epoch.parse().ok().filter(known).ok_or("no epoch")?;
        let map = Self {
            epoch,
            old: tags(old)?,
            new: tags(new)?,
            url: url.map(str::to_owned),
        };
        let is_far = |tags: &[Tag]| tags.first().is_some_and(|tag| tag.is_far());
        match (&map.url, is_far(&map.old), is_far(&map.new)) {
            _ if map.old.is_empty() => Err("no partition 0"),
            (None, false, false) => Ok(map),
            (Some(_), true, true) if map.is_moved() => Ok(map),
            (Some(url), old, new) if old != new && !map.new.is_empty() && !url.is_empty() => {
                Ok(map)
            }
            _ => Err("a wrong URL of another store"),
        }
    }
}

impl fmt::Display for PartitionMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |tags: &[Tag]| {
            let tags: Vec<_> = tags.iter().map(Tag::to_string).collect();
            tags.join(" ")
        };
        write!(f, "{}|{}|{}", self.epoch, list(&self.old), list(&self.new))?;
        self.url.iter().try_for_each(|url| write!(f, "|{url}"))
    }
}

/// Reads a list of tags, which is empty or begins with the home.
fn tags(text: &str) -> Result<Vec<Tag>, &'static str> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let tags: Option<Vec<_>> = text.split(' ').map(Tag::parse).collect();
    let tags = tags.ok_or("a tag that is neither - nor a number up to 999999999")?;
    if !matches!(tags[0], Tag::Home | Tag::FarHome) {
        return Err("no partition 0");
    }
    if tags.iter().any(|tag| tag.is_far() != tags[0].is_far()) {
        return Err("tags of two stores in one list");
    }
    if tags.len() > MAX_PARTITIONS {
        return Err("more than 256 partitions");
    }
    let mut seen = HashSet::new();
    if !tags.iter().all(|tag| seen.insert(tag)) {
        return Err("a tag twice");
    }
    Ok(tags)
}

/// The index of the partition that holds `id` in a queue of this many partitions.
pub(crate) fn index_of(id: &[u8], partitions: usize) -> usize {
    index_of_crc(crc32(routing_part(id)), partitions)
}

fn index_of_crc(crc: u32, partitions: usize) -> usize {
    // The high part of the product decides: the low bits of a CRC are linear in the id, and
    // unevenly distributed.
    ((u64::from(crc) * partitions as u64) >> 32) as usize
}

/// Changes the last two characters of an id of base-62 digits so that it falls into the partition
/// with this index. Returns false in the rare case that no two characters achieve that.
pub(crate) fn steer(id: &mut [u8], index: usize, partitions: usize) -> bool {
    let Some(start) = id.len().checked_sub(2) else {
        return false;
    };
    let state = extended(!0, &id[..start]);
    let (first, second) = (id[start], id[start + 1]);
    // The id's own characters are tried first, so that the ids in one partition use all characters.
    let order = |own: u8| {
        let at = DIGITS.iter().position(|digit| *digit == own).unwrap_or(0);
        DIGITS[at..].iter().chain(&DIGITS[..at]).copied()
    };
    for one in order(first) {
        let state = extended(state, &[one]);
        for other in order(second) {
            if index_of_crc(!extended(state, &[other]), partitions) == index {
                id[start..].copy_from_slice(&[one, other]);
                return true;
            }
        }
    }
    false
}

/// The id of follow-up number `number` of the message `parent`. It contains the routing part of the
/// parent, and so belongs to the parent's partition, unless the parent has a `}` and no part in
/// braces.
pub(crate) fn id_of_follow_up(parent: &[u8], number: usize) -> Vec<u8> {
    let mut id = Vec::with_capacity(parent.len() + 6);
    if routing_part(parent).len() < parent.len() {
        id.extend(parent);
    } else {
        id.push(b'{');
        id.extend(parent);
        id.push(b'}');
    }
    id.extend(format!("/{number}").bytes());
    id
}

/// The part of an id that decides its partition: the bytes between the first `{` and the next `}`,
/// if there are any, else the whole id. Ids with the same part share a partition.
fn routing_part(id: &[u8]) -> &[u8] {
    let part = id.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &id[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        Some(&rest[..close])
    });
    part.filter(|part| !part.is_empty()).unwrap_or(id)
}

/// The CRC-32 that zlib computes.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    !extended(!0, bytes)
}

fn extended(state: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(state, |state, byte| {
        CRC_TABLE[usize::from(state as u8 ^ byte)] ^ (state >> 8)
    })
}

static CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut value, mut bit) = (byte as u32, 0);
        while bit < 8 {
            value = (value >> 1) ^ (0xEDB8_8320 * (value & 1));
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32_has_the_check_value_of_zlib() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn ids_with_the_same_part_in_braces_share_a_partition() {
        for partitions in [1, 2, 12, 256] {
            let of = |id: &str| index_of(id.as_bytes(), partitions);
            assert_eq!(of("{order:1}:rate"), of("order:1"));
            assert_eq!(of("x{order:1}{y}"), of("order:1"));
            assert!(of("order:1") < partitions);
        }
        // The whole id counts if the braces are not closed or enclose nothing.
        for whole in ["{}a", "a{b", "a}b{", "}{"] {
            assert_eq!(routing_part(whole.as_bytes()), whole.as_bytes());
        }
    }

    #[test]
    fn follow_ups_have_the_routing_part_of_their_parent() {
        for (parent, expected) in [
            ("order:42", "{order:42}/1"),
            ("{order:42}/1", "{order:42}/1/1"),
            ("eu:{order:42}:pay", "eu:{order:42}:pay/1"),
            ("a{b", "{a{b}/1"),
        ] {
            let id = id_of_follow_up(parent.as_bytes(), 1);
            assert_eq!(String::from_utf8_lossy(&id), expected);
            for partitions in [1, 12, 256] {
                let of = |id: &[u8]| index_of(id, partitions);
                assert_eq!(of(&id), of(parent.as_bytes()), "{expected}");
            }
        }
    }

    #[test]
    fn ids_that_count_up_spread_evenly_within_ten_percent() {
        let (ids, partitions) = (120_000, 12);
        let mut counts = vec![0_usize; partitions];
        for n in 0..ids {
            counts[index_of(format!("order:{n}").as_bytes(), partitions)] += 1;
        }
        let share = ids / partitions;
        let near = |count: &usize| count.abs_diff(share) * 10 <= share;
        assert!(counts.iter().all(near), "{counts:?}");
    }

    #[test]
    fn library_ids_are_steered_into_any_partition() {
        for partitions in [1, 12, 256] {
            for index in 0..partitions {
                let mut id = crate::model::message::new_id();
                let before = id.clone();
                assert!(steer(&mut id, index, partitions));
                assert_eq!(index_of(&id, partitions), index);
                assert_eq!((id.len(), &id[..20]), (22, &before[..20]));
            }
        }
    }

    #[test]
    fn a_map_reads_back_as_it_was_written() {
        let tags = vec![Tag::Home, Tag::Numbered(203), Tag::Numbered(0)];
        let near = vec![Tag::Home, Tag::Numbered(7)];
        let far = vec![Tag::FarHome, Tag::FarNumbered(203)];
        let moving = PartitionMap {
            url: Some("redis://new/".to_owned()),
            ..PartitionMap::changing(10, near, far)
        };
        let maps = [
            PartitionMap::settled(7, tags.clone()),
            PartitionMap::changing(8, vec![Tag::Home], tags.clone()),
            PartitionMap::changing(9, tags, vec![]),
            moving.clone(),
            moving.flipped("redis://old/"),
            PartitionMap::moved(11, "redis://new/"),
        ];
        assert_eq!(maps[1].to_string(), "8|-|- 203 0");
        assert_eq!(maps[3].to_string(), "10|- 7|@- @203|redis://new/");
        assert_eq!(maps[4].to_string(), "10|@- @7|- 203|redis://old/");
        assert_eq!(maps[5].to_string(), "11|@-|@-|redis://new/");
        for map in maps {
            let read = PartitionMap::parse("orders", &map.to_string());
            assert_eq!(read.expect("a map"), map);
        }
    }

    #[test]
    fn malformed_maps_are_refused_with_the_reason() {
        let many: Vec<_> = (0..256).map(|n| n.to_string()).collect();
        let many = format!("7|-|- {}", many.join(" "));
        for (text, reason) in [
            ("", "three parts"),
            ("7|-", "three parts"),
            ("7|-|-|-", "wrong URL"),
            ("7|-|@-", "wrong URL"),
            ("7|-|@-|", "wrong URL"),
            ("7|-||redis://a/", "wrong URL"),
            ("7|@- @4|@- @4|redis://a/", "wrong URL"),
            ("7|-|@- 4|redis://a/", "two stores"),
            ("7|-|@- @@4|redis://a/", "neither"),
            ("7|-|@-|redis://a/|", "three parts"),
            ("0|-|-", "no epoch"),
            ("x|-|-", "no epoch"),
            ("07|-|-", "no epoch"),
            ("9007199254740992|-|-", "no epoch"),
            ("7|| -", "neither"),
            ("7||-", "no partition 0"),
            ("7|4|- 4", "no partition 0"),
            ("7|-|4 -", "no partition 0"),
            ("7|-|- 4 4", "a tag twice"),
            ("7|-|- -", "a tag twice"),
            ("7|-|- 04", "neither"),
            ("7|-|- +4", "neither"),
            ("7|-|-  4", "neither"),
            ("7|-|- 1000000000", "neither"),
            (&many, "more than 256"),
        ] {
            let error = PartitionMap::parse("orders", text).expect_err(text);
            assert!(error.to_string().contains(reason), "{text}: {error}");
            assert!(error.to_string().contains("queue orders"), "{error}");
        }
    }
}
