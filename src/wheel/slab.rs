//! Stores the timers at indexes that do not change. Also has their keys, and the error of a full
//! wheel.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{error, fmt, mem};

use super::level::NONE;
use super::location::Location;

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

/// All nodes, and a list of the free ones. The node freed last is used first, because it is likely
/// in the cache.
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

    /// Makes a slab whose nodes are each used `generations` times.
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

    /// One more than the largest index that was ever used.
    pub(super) fn indices(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Stores a timer, which the caller must then file. Returns the value if every index is in use.
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

/// The first generation of a new wheel. It is far from those of other wheels, so that their keys
/// are stale here.
fn first_generation() -> NonZeroU32 {
    /// 2^32 divided by the golden ratio, because the multiples of this number are spread evenly.
    const STEP: u32 = 0x9E37_79B9;
    static NEXT: AtomicU32 = AtomicU32::new(STEP);
    NonZeroU32::new(NEXT.fetch_add(STEP, Ordering::Relaxed)).unwrap_or(NonZeroU32::MIN)
}

/// Makes room for one more element: doubles up to 16 MiB, then adds an eighth.
///
/// Doubling a large block leaves up to half of it unused, and system allocators grow large blocks
/// without copying.
#[inline]
pub(super) fn grow<E>(entries: &mut Vec<E>) {
    const LARGE: usize = 16 << 20;
    if entries.len() == entries.capacity() && size_of_val(entries.as_slice()) >= LARGE {
        entries.reserve_exact(entries.len() / 8);
    }
}

/// The wheel is at its capacity limit; the value is returned.
///
/// The error of [`Wheel::insert`](super::Wheel::insert). A timer that fires or is removed makes
/// room at once.
///
/// ```
/// use dueq::wheel::{Full, Wheel};
///
/// let mut wheel = Wheel::with_capacity_limit(1);
/// let first = wheel.insert(10, "first").unwrap();
///
/// let Err(Full(value)) = wheel.insert(20, "second") else { panic!("the limit is one") };
/// assert_eq!(value, "second");
///
/// wheel.remove(first);
/// assert!(wheel.insert(20, value).is_ok());
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Full<T>(pub T);

/// Does not show the value, so that `T` need not implement `Debug`.
impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Full(..)")
    }
}

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the wheel is at its capacity limit")
    }
}

impl<T> error::Error for Full<T> {}

/// Names one timer of one [`Wheel`](super::Wheel): 8 bytes, and `Option<Key>` is 8 bytes too.
///
/// A key is valid from [`insert`](super::Wheel::insert) until its timer fires, is removed or is
/// drained. After that it is *stale*: every method returns `None` or `false`, even if another timer
/// reuses the memory. Each use of a piece of memory has its own generation, and memory whose
/// generations are used up is retired.
///
/// **Not guaranteed.** A key of *another* wheel usually counts as stale as well, because each wheel
/// starts at its own generation. Two wheels of one process could confuse keys only after one of
/// them has reused the same memory very often: over 1,000 million times with two wheels, over a
/// million times with a thousand wheels. Do not use this as a check.
///
/// The order of keys has no meaning; it allows keys in sorted maps.
///
/// ```
/// use dueq::wheel::Wheel;
///
/// let mut wheel = Wheel::new();
/// let stale = wheel.insert(5, 'a').unwrap();
/// wheel.remove(stale);
/// let fresh = wheel.insert(5, 'b').unwrap(); // in the memory of 'a'
///
/// assert_eq!(wheel.get(stale), None);
/// assert_eq!(wheel.get(fresh), Some(&'b'));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub(super) index: u32,
    pub(super) generation: NonZeroU32,
}
