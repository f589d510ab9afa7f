//! Queues with several partitions: whether each call that names an id came to the partition of that
//! id by the call's map, and whether every partition was attended.

use std::collections::{BTreeMap, HashMap};

use crate::check::collect::Collection;
use crate::check::liveness::faults::{Span, after, outside_us};
use crate::check::verdict::{Kind, Verdict};
use crate::history::{Answer, Call, Verb};
use crate::queues::partition_name;

/// The longest time without a beat, a promote or a reap at a partition, while workers run.
const LONGEST_US: u64 = 4_000_000;
/// How long after a fault of its master a partition may lack them: clients must first find the new
/// master.
const SETTLE_US: u64 = 4_000_000;
/// How long a partition remembers an id that was cancelled.
const REMEMBERED_US: u64 = 12_000_000;

/// How a call came to the ids that it named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Call,
    /// A call that may create nothing: the ids belong elsewhere by the new list.
    Probe,
    /// The partition granted them.
    Claim,
}

/// An answered call that named an id.
#[derive(Debug)]
struct Named {
    /// The whole queue; and the partition, as a queue of its own.
    queue: u16,
    partition: u16,
    by: By,
    epoch: u64,
    /// The CRC of the part of the id that decides the partition.
    crc: u32,
    id: u32,
    /// Whether the call stored the message.
    made: bool,
}

/// A map: the names of the partitions by index, in the old and the new list; and when a process
/// first gave it to a partition.
#[derive(Debug)]
struct Map {
    old: Vec<String>,
    new: Vec<String>,
    since_us: u64,
}

impl Map {
    fn place(partitions: &[String], crc: u32) -> &str {
        let index = (u64::from(crc) * partitions.len() as u64) >> 32;
        &partitions[usize::try_from(index).unwrap_or(0)]
    }

    fn names(&self, partition: &str) -> bool {
        let mut all = self.old.iter().chain(&self.new);
        all.any(|name| name == partition)
    }
}

/// What the histories say about partitions.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    named: Vec<Named>,
    /// For each queue, by epoch.
    maps: HashMap<u16, BTreeMap<u64, Map>>,
    /// For each partition: the times at which a worker's beat, promote or reap was answered.
    attended: HashMap<u16, Vec<u64>>,
    /// For each partition: the spans in which a fault touched its master or its slot.
    touched: HashMap<u16, Vec<(u64, u64)>>,
    /// For each partition and incarnation, by the server's clock: when ids ended that it remembers;
    /// below, when another map replaced its map, which needs that it remembers no id.
    ended: HashMap<(u16, String), Vec<u64>>,
    changed: Vec<((u16, String), u64)>,
    /// When the producers were asked to end.
    pub(crate) calm_us: Option<u64>,
}

impl Partitions {
    /// A map as the home has it: `EPOCH|OLD TAGS|NEW TAGS`.
    pub(crate) fn map(&mut self, (queue, name): (u16, &str), map: &str, since_us: u64) {
        let mut parts = map.split('|');
        let (Some(Ok(epoch)), Some(old), Some(new)) =
            (parts.next().map(str::parse), parts.next(), parts.next())
        else {
            return;
        };
        // While a queue is being deleted, no call is routed.
        if new.is_empty() {
            return;
        }
        let list = |tags: &str| {
            let names = tags.split(' ').map(|tag| partition_name(name, tag));
            names.collect()
        };
        let maps = self.maps.entry(queue).or_default();
        let known = maps.entry(epoch).or_insert_with(|| Map {
            old: list(old),
            new: list(new),
            since_us,
        });
        known.since_us = known.since_us.min(since_us);
    }

    /// Notes what an answered call says about the maps of a partition.
    pub(crate) fn answered(
        &mut self,
        (queue, name): (u16, &str),
        partition: (u16, &str),
        call: &Call,
        answer: &Answer,
        (asked_us, now_us): (u64, u64),
    ) {
        let partition = || (partition.0, partition.1.to_owned());
        match (call, answer) {
            (Call::Other { verb, args }, Answer::Other(words))
                if verb == "remap" && words.first().is_some_and(|word| word == "DONE") =>
            {
                let map = args.last().map_or("", |map| map);
                self.map((queue, name), map, asked_us);
                if args.first().is_some_and(|form| form == "change") {
                    self.changed.push((partition(), now_us));
                }
            }
            (Call::Settle { .. } | Call::Change { .. }, Answer::Items(words)) => {
                let ends = |word: &String| word == "CANCELLED";
                if words.iter().any(ends) {
                    self.ended.entry(partition()).or_default().push(now_us);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn attended(&mut self, partition: u16, call: &Call, at_us: u64) {
        if let Call::Other { verb, .. } = call
            && ["beat", "promote", "reap"].contains(&verb.as_str())
        {
            self.attended.entry(partition).or_default().push(at_us);
        }
    }

    /// The spans in which the map of the queue does not name this partition.
    fn unnamed(&self, queue: u16, partition: &str) -> Vec<Span> {
        let (mut spans, mut since_us) = (Vec::new(), Some(0).filter(|_| partition.contains('/')));
        for map in self.maps.get(&queue).into_iter().flat_map(BTreeMap::values) {
            match (map.names(partition), since_us) {
                (true, Some(from_us)) => spans.push((from_us, map.since_us)),
                (false, None) => {
                    since_us = Some(map.since_us);
                    continue;
                }
                (false, _) => continue,
                _ => {}
            }
            since_us = None;
        }
        spans.extend(since_us.map(|from_us| (from_us, u64::MAX)));
        spans
    }

    pub(crate) fn touched(&mut self, partition: u16, since_us: u64, until_us: u64) {
        let touched = self.touched.entry(partition).or_default();
        touched.push((since_us, until_us));
    }

    /// The spans in which a fault touched the master or the slot of a partition.
    pub(crate) fn touched_us(&self, partition: u16) -> &[Span] {
        self.touched.get(&partition).map_or(&[], Vec::as_slice)
    }
}

impl Collection {
    /// Notes an answered call with an id: the epoch that it was sent with, and that of the
    /// partition.
    pub(crate) fn named(
        &mut self,
        (queue, partition): (u16, u16),
        (by, sent, epoch): (By, u64, u64),
        ids: &[(&str, bool)],
    ) {
        if sent != epoch {
            let name = self.queues[usize::from(partition)].name.clone();
            self.verdict.found(Kind::OldMapAccepted, || {
                let ids: Vec<_> = ids.iter().take(3).map(|(id, _)| id).collect();
                format!("{name} with epoch {epoch} answered a call with epoch {sent} for {ids:?}")
            });
        }
        if epoch == 0 {
            return;
        }
        for (id, made) in ids {
            let number = self.id(partition, id);
            self.partitions.named.push(Named {
                queue,
                partition,
                by,
                epoch,
                crc: crc32(deciding_part(id.as_bytes())),
                id: number,
                made: *made,
            });
        }
    }
}

/// The ids of a call that is routed by its ids.
pub(crate) fn ids_of(call: &Call) -> Option<Vec<&str>> {
    match call {
        Call::Push { items, .. } => Some(items.iter().map(|item| &*item.0).collect()),
        Call::Change {
            verb: Verb::Cancel | Verb::Reschedule | Verb::RunNow | Verb::Requeue | Verb::Get,
            items,
        } => Some(items.iter().map(|item| &*item.0).collect()),
        _ => None,
    }
}

pub(crate) fn judge(all: &Collection, verdict: &mut Verdict) {
    places(all, verdict);
    memory(all, verdict);
    attendance(all, verdict);
}

/// Judges that each id was used where its map has it: while the partitions change, a probe may look
/// for it in either of two, and a claim may grant it in either.
fn places(all: &Collection, verdict: &mut Verdict) {
    for named in &all.partitions.named {
        let name = &all.queues[usize::from(named.partition)].name;
        let maps = all.partitions.maps.get(&named.queue);
        let Some(map) = maps.and_then(|maps| maps.get(&named.epoch)) else {
            continue;
        };
        let [old, new] = [&map.old, &map.new].map(|list| Map::place(list, named.crc));
        let creates = named.by == By::Probe && named.made;
        if !creates && (new == name || named.by != By::Call && old == name) {
            continue;
        }
        let kind = if named.made {
            Kind::InTwoPartitions
        } else {
            Kind::InNone
        };
        verdict.found(kind, || {
            let (id, by, epoch) = (all.name_of(named.id), named.by, named.epoch);
            format!("{id} belongs to {new}, before to {old}, by epoch {epoch}: {by:?}")
        });
    }
}

/// Judges that each message that remains is where the last map has it.
pub(crate) fn judge_left(all: &Collection, verdict: &mut Verdict) {
    for (number, _, item) in &all.left {
        let queue = &all.queues[usize::from(all.queue_of[*number as usize])];
        let maps = all.partitions.maps.get(&queue.whole);
        let Some((epoch, map)) = maps.and_then(|maps| maps.last_key_value()) else {
            continue;
        };
        let crc = crc32(deciding_part(item.0.as_bytes()));
        let right = Map::place(&map.new, crc);
        if right != queue.name {
            verdict.found(Kind::InTwoPartitions, || {
                let id = all.name_of(*number);
                format!("{id} is left, and belongs to {right} by epoch {epoch}")
            });
        }
    }
}

/// Judges that a map changed only after the partition had forgotten which ids ended: otherwise a
/// repeated call would act again in another partition.
fn memory(all: &Collection, verdict: &mut Verdict) {
    for (partition, now_us) in &all.partitions.changed {
        let ended = all.partitions.ended.get(partition).into_iter().flatten();
        let is_remembered = |at_us: &&u64| **at_us <= *now_us && **at_us + REMEMBERED_US > *now_us;
        if let Some(at_us) = ended
            .copied()
            .collect::<Vec<_>>()
            .iter()
            .find(is_remembered)
        {
            let name = &all.queues[usize::from(partition.0)].name;
            verdict.found(Kind::OldMapAccepted, || {
                format!(
                    "{name} has another map at {now_us} us, and an id was cancelled at {at_us} us"
                )
            });
        }
    }
}

/// Judges that every partition, and every queue with one partition, always had a beat, promote or
/// reap within the limit.
fn attendance(all: &Collection, verdict: &mut Verdict) {
    let Some(calm_us) = all.partitions.calm_us else {
        return;
    };
    for (partition, times) in &all.partitions.attended {
        let name = &all.queues[usize::from(*partition)].name;
        if crate::queues::is_found(name) {
            continue; // its nodes park it
        }
        let mut spans = all.unreachable(*partition);
        spans.extend(
            all.partitions
                .unnamed(all.queues[usize::from(*partition)].whole, name),
        );
        let mut excused = after(spans, SETTLE_US);
        excused.sort_unstable();
        let mut times = times.clone();
        times.retain(|at_us| *at_us <= calm_us);
        times.push(calm_us);
        times.sort_unstable();
        for pair in times.windows(2) {
            let alone_us = outside_us((pair[0], pair[1]), &excused);
            if alone_us > LONGEST_US {
                verdict.found(Kind::Unattended, || {
                    format!("{name} from {} to {} us", pair[0], pair[1])
                });
            }
        }
    }
}

/// The part of an id between the first `{` and the next `}`; the whole id if that is empty.
fn deciding_part(id: &[u8]) -> &[u8] {
    let inner = id.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &id[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        Some(&rest[..close])
    });
    inner.filter(|part| !part.is_empty()).unwrap_or(id)
}

/// CRC-32 bit by bit, as the standard defines it. The library uses a table, so this is independent.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _: u32| (crc >> 1) ^ (0xEDB8_8320 * (crc & 1));
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), step)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_gives_ids_the_partition_of_the_protocol() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        for (id, part) in [
            ("order:1", "order:1"),
            ("a{b}c", "b"),
            ("a{}b", "a{}b"),
            ("a}b{c", "a}b{c"),
            ("{{x}}", "{x"),
        ] {
            assert_eq!(deciding_part(id.as_bytes()), part.as_bytes(), "{id}");
        }
    }
}
