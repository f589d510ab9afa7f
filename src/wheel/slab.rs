//! The timers themselves, at indices that stay put.

use std::mem;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

use super::chunk::NONE;
use super::grow::grow;
use super::key::Key;
use super::place::Place;

/// A live timer: 24 bytes with a `u64`, of which 8 are the value.
pub(super) struct Timer<T> {
    pub(super) when: u64,
    pub(super) value: T,
    pub(super) place: Place,
    generation: NonZeroU32,
}

/// Live or free, told apart by the generation that is never zero: no byte is spent on a tag.
enum Node<T> {
    Live(Timer<T>),
    Free {
        next: u32,
        /// Of the next timer that lives here.
        generation: NonZeroU32,
    },
}

/// Nodes and the list of free ones, last freed first, because that one is likeliest to be in the cache.
pub(super) struct Slab<T> {
    nodes: Vec<Node<T>>,
    free: u32,
    len: usize,
    first: NonZeroU32,
    last: NonZeroU32,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        let first = first_generation();
        let last = NonZeroU32::new(first.get() - 1).unwrap_or(NonZeroU32::MAX);
        Self {
            nodes: Vec::new(),
            free: NONE,
            len: 0,
            first,
            last,
        }
    }

    /// A slab whose nodes live `generations` times.
    #[cfg(test)]
    pub(super) fn with_generations(generations: u32) -> Self {
        let mut slab = Self::new();
        slab.last = (1..generations).fold(slab.first, |last, _| following(last));
        slab
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// One more than the largest index that may be live.
    pub(super) fn indices(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Stores a timer, which must then be filed somewhere; the value comes back if there are no indices left.
    #[inline]
    pub(super) fn insert(&mut self, when: u64, value: T) -> Result<Key, T> {
        let fresh = self.nodes.len();
        let (index, generation) = match self.nodes.get(self.free as usize) {
            Some(&Node::Free { next, generation }) => {
                (mem::replace(&mut self.free, next), generation)
            }
            _ if fresh < NONE as usize => (fresh as u32, self.first),
            _ => return Err(value),
        };
        let timer = Node::Live(Timer {
            when,
            value,
            place: Place::OVERDUE,
            generation,
        });
        match self.nodes.get_mut(index as usize) {
            Some(node) => *node = timer,
            None => {
                grow(&mut self.nodes);
                self.nodes.push(timer);
            }
        }
        self.len += 1;
        Ok(Key { index, generation })
    }

    #[inline]
    pub(super) fn get(&self, key: Key) -> Option<&Timer<T>> {
        match self.nodes.get(key.index as usize) {
            Some(Node::Live(timer)) if timer.generation == key.generation => Some(timer),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Timer<T>> {
        match self.nodes.get_mut(key.index as usize) {
            Some(Node::Live(timer)) if timer.generation == key.generation => Some(timer),
            _ => None,
        }
    }

    /// Takes out whatever lives at `index`.
    #[inline]
    pub(super) fn take(&mut self, index: u32) -> Option<(Key, Timer<T>)> {
        let node = self.nodes.get_mut(index as usize)?;
        let Node::Live(Timer { generation, .. }) = *node else {
            return None;
        };
        let retired = generation == self.last;
        let next = if retired { NONE } else { self.free };
        let Node::Live(timer) = mem::replace(
            node,
            Node::Free {
                next,
                generation: following(generation),
            },
        ) else {
            return None;
        };
        if !retired {
            self.free = index;
        }
        self.len -= 1;
        Some((Key { index, generation }, timer))
    }

    /// The deadline of the timer at `index`, if its valid entry is the one at `place`.
    #[inline]
    pub(super) fn when_at(&self, index: u32, place: Place) -> Option<u64> {
        match self.nodes.get(index as usize) {
            Some(Node::Live(timer)) if timer.place == place => Some(timer.when),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn set_place(&mut self, index: u32, place: Place) {
        if let Some(Node::Live(timer)) = self.nodes.get_mut(index as usize) {
            timer.place = place;
        }
    }

    /// Makes the timer at `index` overdue, and says which and since when.
    pub(super) fn place_overdue(&mut self, index: u32) -> Option<(Key, u64)> {
        let Some(Node::Live(timer)) = self.nodes.get_mut(index as usize) else {
            return None;
        };
        timer.place = Place::OVERDUE;
        Some((
            Key {
                index,
                generation: timer.generation,
            },
            timer.when,
        ))
    }

    #[cfg(test)]
    pub(super) const NODE_BYTES: usize = size_of::<Node<T>>();
}

#[inline]
fn following(generation: NonZeroU32) -> NonZeroU32 {
    generation.checked_add(1).unwrap_or(NonZeroU32::MIN)
}

/// Where a new wheel's generations begin: far from those of other wheels, so that their keys mean nothing here.
fn first_generation() -> NonZeroU32 {
    /// 2^32 divided by the golden ratio: its multiples stay as far apart as can be, however many there are.
    const STEP: u32 = 0x9E37_79B9;
    static NEXT: AtomicU32 = AtomicU32::new(STEP);
    NonZeroU32::new(NEXT.fetch_add(STEP, Ordering::Relaxed)).unwrap_or(NonZeroU32::MIN)
}
