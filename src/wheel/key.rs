//! The key of a timer.

use std::num::NonZeroU32;

/// Names one timer of one [`Wheel`](super::Wheel): 8 bytes, and `Option<Key>` is 8 bytes too.
///
/// A key is valid from [`insert`](super::Wheel::insert) until its timer fires, is removed or is
/// drained. After that it is *stale*: every method returns `None` or `false`, even if another timer
/// reuses the memory. Each use of a piece of memory has its own generation, and memory whose
/// generations are used up is retired.
///
/// **Not guaranteed.** A key of *another* wheel usually counts as stale, too, because each wheel
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
