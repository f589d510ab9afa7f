//! Chooses the tags of a queue's partitions so that every master serves an equal part of them.

use std::ops::RangeInclusive;

use crate::protocol::keys::{Prefix, SLOTS, hash_slot};
use crate::protocol::partition_map::{MAX_TAG, Tag};

/// From this tag on, a tag for any slot of the right master is taken. About 16 smaller tags belong
/// to each slot.
const PATIENT_TAGS: u32 = 16 * SLOTS as u32;

/// A client that cannot read the map at the home looks for a copy at each tag below this. `place`
/// puts at least one of these tags on another master than the home's.
pub(crate) const SEARCHED_TAGS: u32 = 64;

/// The tags of `partitions` partitions. Index 0 is the home.
///
/// Each master gets its share, rounded down or up; the home counts as one. The partitions of one
/// master are spread evenly over its slots, so that half of the slots have half of the partitions.
/// Neighbouring indexes are on different masters. `masters` has the slots of each master; without
/// any, the queue is on a single server and its partitions spread over all slots.
pub(crate) fn place(
    queue_name: &str,
    partitions: usize,
    masters: &[Vec<RangeInclusive<u16>>],
) -> Vec<Tag> {
    let home_slot = hash_slot(queue_name.as_bytes());
    let masters = masters_in_turn(masters, home_slot);
    let places = places(&masters, partitions);
    let mut search = Search {
        prefix: Prefix::of(format!("{queue_name}/").as_bytes()),
        masters: &masters,
        tags: vec![None; places.len()],
        open: (0..places.len()).collect(),
        places,
    };
    // Each slot has about 61,000 tags, so the loop ends long before its bound.
    for number in 0..=MAX_TAG {
        if search.open.is_empty() {
            break;
        }
        if number == SEARCHED_TAGS && !search.has_copy() {
            // Rarely needed: about one in 260 maps of two partitions, and hardly any larger map.
            let mut searched = 0..SEARCHED_TAGS;
            searched.any(|number| search.take(number, |place| place.master != 0));
        }
        search.take_near(number);
    }
    let home = [Tag::Home].into_iter().take(partitions);
    home.chain(search.tags.into_iter().flatten()).collect()
}

/// The search for the tag of each place.
struct Search<'a> {
    prefix: Prefix,
    masters: &'a [Master],
    places: Vec<Place>,
    tags: Vec<Option<Tag>>,
    /// The indexes of the places that have no tag yet.
    open: Vec<usize>,
}

impl Search<'_> {
    /// Whether a place on a master other than the home's has a tag.
    fn has_copy(&self) -> bool {
        let mut placed = self.places.iter().zip(&self.tags);
        placed.any(|(place, tag)| place.master != 0 && tag.is_some())
    }

    /// Gives this tag to the first open place of its master near its slot; if the number is large,
    /// to any open place of the master.
    fn take_near(&mut self, number: u32) {
        let Some((master, index)) = self.slot(number) else {
            return;
        };
        let slots = self.masters[master].slots;
        let is_patient = number < PATIENT_TAGS;
        self.take(number, |place| !is_patient || place.is_near(index, slots));
    }

    /// Gives this tag to the first open place of its master that suits. Returns whether there was
    /// one.
    fn take(&mut self, number: u32, suits: impl Fn(&Place) -> bool) -> bool {
        let Some((master, _)) = self.slot(number) else {
            return false;
        };
        let places = &self.places;
        let suits = |at: &usize| places[*at].master == master && suits(&places[*at]);
        let Some(at) = self.open.iter().position(suits) else {
            return false;
        };
        self.tags[self.open.remove(at)] = Some(Tag::Numbered(number));
        true
    }

    /// The master that serves the slot of this tag, and the slot's index among the slots of that
    /// master.
    fn slot(&self, number: u32) -> Option<(usize, usize)> {
        let slot = self.prefix.slot_with(number.to_string().as_bytes());
        let served = self.masters.iter().enumerate();
        let mut served = served.filter_map(|(at, master)| Some((at, master.index_of(slot)?)));
        served.next()
    }
}

/// A master that serves slots.
struct Master {
    /// The master's ranges of slots in ascending order, each with the number of slots before it.
    ranges: Vec<(usize, RangeInclusive<u16>)>,
    slots: usize,
    /// The index of the home's slot among the master's slots, if this master serves it.
    home: Option<usize>,
}

impl Master {
    fn new(ranges: &[RangeInclusive<u16>], home_slot: u16) -> Self {
        let mut ranges = ranges.to_vec();
        ranges.retain(|range| !range.is_empty() && *range.end() < SLOTS);
        ranges.sort_unstable_by_key(|range| *range.start());
        let mut master = Self {
            ranges: Vec::new(),
            slots: 0,
            home: None,
        };
        for range in ranges {
            let before = master.slots;
            master.slots += range.len();
            master.ranges.push((before, range));
        }
        master.home = master.index_of(home_slot);
        master
    }

    /// The index of this slot among the master's slots, if the master serves it.
    fn index_of(&self, slot: u16) -> Option<usize> {
        let not_after = |(_, range): &(usize, RangeInclusive<u16>)| *range.start() <= slot;
        let at = self.ranges.partition_point(not_after).checked_sub(1)?;
        let (before, range) = &self.ranges[at];
        range
            .contains(&slot)
            .then(|| before + usize::from(slot - range.start()))
    }
}

/// The masters in the order in which they get partitions. The home's master is first, so that the
/// masters with one partition more differ between queues.
fn masters_in_turn(masters: &[Vec<RangeInclusive<u16>>], home_slot: u16) -> Vec<Master> {
    let new = |ranges: &Vec<_>| Master::new(ranges, home_slot);
    let mut masters: Vec<_> = masters.iter().map(new).collect();
    masters.retain(|master| master.slots > 0);
    if masters.is_empty() {
        masters.push(Master::new(&[0..=SLOTS - 1], home_slot));
    }
    let first = masters.iter().position(|master| master.home.is_some());
    // If no master serves the home's slot, that slot's number decides which master is first.
    let first = first.unwrap_or(usize::from(home_slot) % masters.len());
    masters.rotate_left(first);
    masters
}

/// A place for a partition other than the home: where it should be.
struct Place {
    master: usize,
    /// The index of the ideal slot among the master's slots.
    centre: usize,
    /// How far from the ideal slot still counts as near: 1/8 of the spacing.
    reach: usize,
}

impl Place {
    /// Place number `round` of the `share` places of a master. They are counted from the home's
    /// slot if the master serves it.
    fn new(master: usize, of: &Master, round: usize, share: usize) -> Self {
        let spacing = of.slots / share;
        let first = of.home.unwrap_or(spacing / 2);
        Self {
            master,
            centre: (first + round * of.slots / share) % of.slots,
            reach: spacing / 8,
        }
    }

    /// Whether a slot is near, by its index among the master's `slots`, which form a circle.
    fn is_near(&self, index: usize, slots: usize) -> bool {
        let off = index.abs_diff(self.centre);
        off.min(slots - off) <= self.reach
    }
}

/// The places of all partitions except the home, by index.
fn places(masters: &[Master], partitions: usize) -> Vec<Place> {
    let others = partitions.saturating_sub(1);
    let homes = usize::from(masters[0].home.is_some());
    let total = others + homes;
    let share = |master| (total + masters.len() - 1 - master) / masters.len();
    let turns = (homes..total).map(|turn| (turn / masters.len(), turn % masters.len()));
    turns
        .map(|(round, master)| Place::new(master, &masters[master], round, share(master)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    type Ranges = Vec<RangeInclusive<u16>>;

    /// The slots in contiguous, equal parts for this many masters, as `redis-cli --cluster create`
    /// assigns them.
    fn equal(masters: u16) -> Vec<Ranges> {
        let bound = |n: u16| (u32::from(n) * u32::from(SLOTS) / u32::from(masters)) as u16;
        (0..masters)
            .map(|n| vec![bound(n)..=bound(n + 1) - 1])
            .collect()
    }

    fn slot(queue: &str, tag: Tag) -> u16 {
        match tag {
            Tag::Numbered(number) => hash_slot(format!("{queue}/{number}").as_bytes()),
            _ => hash_slot(queue.as_bytes()),
        }
    }

    /// The slots that hold partitions, for each master in ascending order.
    fn by_master(queue: &str, partitions: usize, masters: &[Ranges]) -> Vec<Vec<u16>> {
        let tags = place(queue, partitions, masters);
        assert_eq!(tags.len(), partitions);
        assert_eq!(tags[0], Tag::Home);
        let distinct: HashSet<_> = tags.iter().collect();
        assert_eq!(distinct.len(), partitions, "{tags:?}");
        let mut slots: Vec<_> = tags.iter().map(|tag| slot(queue, *tag)).collect();
        slots.sort_unstable();
        let serves = |ranges: &Ranges, slot: u16| ranges.iter().any(|range| range.contains(&slot));
        let of = |ranges| {
            slots
                .iter()
                .copied()
                .filter(|slot| serves(ranges, *slot))
                .collect()
        };
        masters.iter().map(of).collect()
    }

    fn assert_shares(queue: &str, partitions: usize, masters: &[Ranges]) {
        let counts: Vec<_> = by_master(queue, partitions, masters)
            .iter()
            .map(Vec::len)
            .collect();
        let with_slots = masters.iter().filter(|ranges| !ranges.is_empty()).count();
        let least = partitions / with_slots;
        let most = partitions.div_ceil(with_slots);
        for (ranges, count) in masters.iter().zip(&counts) {
            let range = if ranges.is_empty() {
                0..=0
            } else {
                least..=most
            };
            assert!(range.contains(count), "{queue}, {partitions}: {counts:?}");
        }
        assert_eq!(counts.iter().sum::<usize>(), partitions);
    }

    #[test]
    fn every_master_gets_its_share_of_the_partitions() {
        for name in 0..200 {
            let queue = format!("queue-{name}");
            for masters in 3..=6 {
                for partitions in [4, 12, 16, 64] {
                    assert_shares(&queue, partitions, &equal(masters));
                }
            }
        }
    }

    #[test]
    fn uneven_and_fragmented_masters_get_equal_shares() {
        let odd = |n: u16| 2 * n + 1;
        let fragmented = vec![
            (0..4_000).map(|n| 2 * n..=2 * n).collect(),
            (0..4_000).map(|n| odd(n)..=odd(n)).collect(),
            vec![8_000..=16_383],
        ];
        let uneven = vec![vec![0..=999], vec![1_000..=1_099], vec![1_100..=16_383]];
        let without_slots = vec![vec![], vec![0..=9_999], vec![10_000..=16_383]];
        for masters in [fragmented, uneven, without_slots] {
            for queue in ["orders", "mail", "a:b-c_d.e"] {
                for partitions in [1, 2, 3, 12, 64, 256] {
                    assert_shares(queue, partitions, &masters);
                }
            }
        }
    }

    #[test]
    fn a_searched_tag_is_on_another_master_than_the_home() {
        let masters = equal(3);
        for name in 0..1_000 {
            let queue = format!("queue-{name}");
            let home = hash_slot(queue.as_bytes());
            for partitions in [2, 3] {
                let is_copy = |tag: &Tag| {
                    let mut others = masters.iter().filter(|ranges| !ranges[0].contains(&home));
                    matches!(tag, Tag::Numbered(..SEARCHED_TAGS))
                        && others.any(|ranges| ranges[0].contains(&slot(&queue, *tag)))
                };
                let tags = place(&queue, partitions, &masters);
                assert!(tags.iter().any(is_copy), "{queue}: {tags:?}");
            }
        }
    }

    #[test]
    fn partitions_are_spread_evenly_within_a_master() {
        for masters in [1, 3] {
            let ranges = equal(masters);
            for queue in ["orders", "mail", "x"] {
                for (owned, slots) in ranges.iter().zip(by_master(queue, 48, &ranges)) {
                    let all = owned[0].len();
                    let spacing = all as f64 / slots.len() as f64;
                    let rest = slots[0] + all as u16 - slots[slots.len() - 1];
                    let gaps = slots.windows(2).map(|pair| pair[1] - pair[0]);
                    for gap in gaps.chain([rest]) {
                        let off = (f64::from(gap) - spacing).abs();
                        // Each of two neighbours may be off by 1/8, and slots are whole numbers.
                        assert!(off <= spacing / 4.0 + 2.0, "{queue}: {slots:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_single_server_has_all_slots() {
        assert_eq!(place("orders", 1, &[]), [Tag::Home]);
        assert_eq!(place("orders", 64, &[]), place("orders", 64, &equal(1)));
    }

    #[test]
    fn placement_ends_with_few_slots_or_an_unserved_home() {
        let home = hash_slot(b"orders");
        let one_slot = vec![vec![home..=home], vec![0..=0]];
        assert_shares("orders", 12, &one_slot);
        // The only slot must take 128 tags, but fewer than 64 of its tags are below PATIENT_TAGS.
        assert_shares("orders", 256, &one_slot);
        let without_home: Vec<Ranges> = vec![vec![0..=home - 1], vec![home + 1..=SLOTS - 1]];
        let counts = by_master("orders", 13, &without_home);
        assert_eq!(counts.iter().map(Vec::len).collect::<Vec<_>>(), [6, 6]);
    }

    #[test]
    fn masters_with_one_partition_more_differ_by_queue() {
        let masters = equal(3);
        let mut extra = [0; 3];
        for name in 0..60 {
            let slots = by_master(&format!("queue-{name}"), 4, &masters);
            for (count, slots) in extra.iter_mut().zip(slots) {
                *count += slots.len() - 1;
            }
        }
        assert!(extra.iter().all(|count| *count >= 10), "{extra:?}");
    }
}
