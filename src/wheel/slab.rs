//! The timers, at indices that do not change.

use std::mem;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

use super::grow::grow;
use super::key::Key;
use super::location::Location;
use super::sizes::NONE;

/// A live timer: 24 bytes with a `u64`, of which 8 are the value.
pub(super) struct Timer<T> {
    pub(super) when: u64,
    pub(super) value: T,
    pub(super) location: Location,
    generation: NonZeroU32,
}

/// Live or free. The generation is never 0, so the enum needs no byte for a tag.
enum Node<T> {
    Live(Timer<T>),
    Free {
        next: u32,
        /// The generation of the next timer at this index.
        generation: NonZeroU32,
    },
}

/// Nodes, and a list of the free ones. The one freed last is used first: it is likely in the cache.
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

    /// A slab whose nodes are used `generations` times.
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

    /// One more than the largest index in use.
    pub(super) fn indices(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Stores a timer; the caller must file it. Returns the value if every index is in use.
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
            location: Location::OVERDUE,
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

    /// Removes the timer at `index`, if there is one.
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

    /// The deadline of the timer at `index`, if its valid entry is at `location`.
    #[inline]
    pub(super) fn when_at(&self, index: u32, location: Location) -> Option<u64> {
        match self.nodes.get(index as usize) {
            Some(Node::Live(timer)) if timer.location == location => Some(timer.when),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn set_location(&mut self, index: u32, location: Location) {
        if let Some(Node::Live(timer)) = self.nodes.get_mut(index as usize) {
            timer.location = location;
        }
    }

    /// Marks the timer at `index` as overdue. Returns its key and deadline.
    pub(super) fn make_overdue(&mut self, index: u32) -> Option<(Key, u64)> {
        let Some(Node::Live(timer)) = self.nodes.get_mut(index as usize) else {
            return None;
        };
        timer.location = Location::OVERDUE;
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

/// The first generation of a new wheel: far from those of other wheels, so that their keys are
/// stale here.
fn first_generation() -> NonZeroU32 {
    /// 2^32 divided by the golden ratio: any number of its multiples are spread evenly.
    const STEP: u32 = 0x9E37_79B9;
    static NEXT: AtomicU32 = AtomicU32::new(STEP);
    NonZeroU32::new(NEXT.fetch_add(STEP, Ordering::Relaxed)).unwrap_or(NonZeroU32::MIN)
}
