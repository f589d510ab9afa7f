//! What a caller holds of a timer.

use std::num::NonZeroU32;

/// Names one timer of one [`Wheel`](super::Wheel): 8 bytes, and `Option<Key>` is 8 bytes too.
///
/// A key is good from [`insert`](super::Wheel::insert) until its timer fires, is removed or is drained.
/// After that it is *stale*: every method answers `None` or `false`, also when the timer's memory has been given to another timer,
/// because each use of a piece of memory has its own generation, and memory whose generations are used up is retired.
///
/// **Not guaranteed.** A key of *another* wheel is answered in the same way, but that rests on each wheel beginning at a generation of its own:
/// two wheels of one process could confuse keys only after one of them has reused the same memory a great many times
/// (over a thousand million with two wheels, over a million with a thousand).
/// Rely on it to survive a mistake, not as a check. The order of keys means nothing; it lets them live in sorted maps.
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
