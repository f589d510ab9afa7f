#![doc = include_str!("README.md")]

mod chunk;
mod drain;
mod expire;
mod filing;
mod full;
mod grow;
mod key;
mod level;
mod next;
mod overdue;
mod place;
mod run;
mod slab;
mod slots;
#[cfg(test)]
mod tests;

use std::fmt;

pub use drain::Drain;
pub use expire::{Due, Expired};
pub use full::Full;
pub use key::Key;

use overdue::Overdue;
use run::Run;
use slab::Slab;
use slots::Slots;

/// A set of timers, each a deadline and a value, that gives up those that are due.
///
/// See the [module](self) for what is guaranteed, what it costs, and how it works.
///
/// ```
/// use dueq::wheel::Wheel;
///
/// let mut wheel = Wheel::new();
/// let tea = wheel.insert(180_000, "tea").unwrap();
/// wheel.insert(240_000, "egg").unwrap();
/// wheel.reset(tea, 300_000);
///
/// assert_eq!(wheel.pop_expired(250_000).unwrap().value, "egg");
/// assert_eq!(wheel.pop_expired(250_000), None);
/// assert_eq!(wheel.deadline(tea), Some(300_000));
/// ```
pub struct Wheel<T> {
    slab: Slab<T>,
    slots: Slots,
    run: Run,
    overdue: Overdue,
    /// What the slots are relative to: every deadline in them is at or after it. It follows `now`, behind what has not been taken out.
    position: u64,
    /// The latest time that anybody has told.
    now: u64,
    limit: usize,
}

impl<T> Wheel<T> {
    /// Timers that a wheel can hold at most, whatever its limit: 2^30.
    pub const MAX_LEN: usize = 1 << 30;

    /// An empty wheel at time 0. It takes some 17 KiB for its slots at once, and about 27 bytes a timer (with a `u64`) as they come.
    ///
    /// If ticks do not begin near 0 (milliseconds since 1970, say), tell the wheel the time before the first insertion, by a
    /// [`pop_expired`](Self::pop_expired). Otherwise all timers are filed far ahead, in the same slot, and moved when the time is told.
    ///
    /// ```
    /// let wheel = dueq::wheel::Wheel::<()>::new();
    /// assert_eq!((wheel.len(), wheel.now(), wheel.next_expiration()), (0, 0, None));
    /// ```
    pub fn new() -> Self {
        Self::with_capacity_limit(Self::MAX_LEN)
    }

    /// An empty wheel that never holds more than `limit` timers: [`insert`](Self::insert) refuses the next.
    ///
    /// Nothing is allocated for them in advance. A limit above [`MAX_LEN`](Self::MAX_LEN) is `MAX_LEN`.
    ///
    /// ```
    /// use dueq::wheel::Wheel;
    ///
    /// let mut wheel = Wheel::with_capacity_limit(2);
    /// assert!(wheel.insert(1, ()).is_ok());
    /// assert!(wheel.insert(2, ()).is_ok());
    /// assert!(wheel.insert(3, ()).is_err());
    /// ```
    pub fn with_capacity_limit(limit: usize) -> Self {
        Self {
            slab: Slab::new(),
            slots: Slots::new(),
            run: Run::new(),
            overdue: Overdue::new(),
            position: 0,
            now: 0,
            limit: limit.min(Self::MAX_LEN),
        }
    }

    /// Adds a timer that is due at `when`. A `when` at or before [`now`](Self::now) is due at once, that is, at the next pop.
    ///
    /// **Cost.** Constant: one timer and one entry written. Now and then memory grows, which copies it.
    ///
    /// # Errors
    /// [`Full`], with the value in it, at the capacity limit.
    ///
    /// ```
    /// use dueq::wheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// wheel.insert(u64::MAX, "hardly ever").unwrap();
    /// wheel.insert(0, "at once").unwrap();
    /// assert_eq!(wheel.pop_expired(0).unwrap().value, "at once");
    /// assert_eq!(wheel.pop_expired(u64::MAX - 1), None);
    /// assert_eq!(wheel.pop_expired(u64::MAX).unwrap().value, "hardly ever");
    /// ```
    #[inline]
    pub fn insert(&mut self, when: u64, value: T) -> Result<Key, Full<T>> {
        if self.len() >= self.limit {
            return Err(Full(value));
        }
        let key = self.slab.insert(when, value).map_err(Full)?;
        self.file(key.index, when);
        Ok(key)
    }

    /// Takes a timer out before it fires, due or not. `None`: the key is stale or of another wheel.
    ///
    /// **Cost.** Constant, and touches the one timer: its entry is left to go stale.
    /// When most entries of its slot are stale, each removal also looks at up to 128 of them, which pays for itself.
    ///
    /// ```
    /// use dueq::wheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// let key = wheel.insert(10, String::from("mine")).unwrap();
    /// assert_eq!(wheel.remove(key).as_deref(), Some("mine"));
    /// assert_eq!(wheel.remove(key), None);
    /// ```
    #[inline]
    pub fn remove(&mut self, key: Key) -> Option<T> {
        self.slab.get(key)?;
        let (_, timer) = self.slab.take(key.index)?;
        self.unfile(timer.place);
        Some(timer.value)
    }

    /// Makes a timer due at `when` instead, earlier or later, also if it is due and not yet popped.
    /// `false`: the key is stale or of another wheel. The key stays good, and the previous deadline is forgotten.
    ///
    /// **Cost.** Constant. To later: one field is rewritten, and the timer is moved when its old time comes.
    /// To earlier: as a removal and an insertion, unless it stays within its slot.
    ///
    /// ```
    /// use dueq::wheel::Wheel;
    ///
    /// let mut idle = Wheel::new();
    /// let connection = idle.insert(30_000, "peer").unwrap();
    /// assert!(idle.reset(connection, 41_500)); // a packet after 11.5 s
    /// assert_eq!(idle.pop_expired(41_499), None);
    /// assert_eq!(idle.pop_expired(41_500).unwrap().value, "peer");
    /// assert!(!idle.reset(connection, 50_000));
    /// ```
    #[inline]
    pub fn reset(&mut self, key: Key, when: u64) -> bool {
        let Some(timer) = self.slab.get_mut(key) else {
            return false;
        };
        let (before, place) = (timer.when, timer.place);
        timer.when = when;
        if place.is_in_slot() && when >= before
            || self
                .slot_of(place)
                .is_some_and(|slot| when >= slot.start(self.position))
        {
            // The slot is looked at when its time starts, and the timer may wait there until then.
            return true;
        }
        // Filed first, so that the old entry is stale when the old slot is cleared of stale entries.
        self.file(key.index, when);
        self.unfile(place);
        true
    }

    /// The value of a timer. `None`: the key is stale or of another wheel.
    ///
    /// ```
    /// let mut wheel = dueq::wheel::Wheel::new();
    /// let key = wheel.insert(10, 'a').unwrap();
    /// assert_eq!(wheel.get(key), Some(&'a'));
    /// ```
    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        self.slab.get(key).map(|timer| &timer.value)
    }

    /// The value of a timer, to change it. `None`: the key is stale or of another wheel.
    ///
    /// ```
    /// let mut wheel = dueq::wheel::Wheel::new();
    /// let key = wheel.insert(10, 1).unwrap();
    /// *wheel.get_mut(key).unwrap() += 1;
    /// assert_eq!(wheel.remove(key), Some(2));
    /// ```
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.slab.get_mut(key).map(|timer| &mut timer.value)
    }

    /// When a timer is due, as it was last set. `None`: the key is stale or of another wheel.
    ///
    /// ```
    /// let mut wheel = dueq::wheel::Wheel::new();
    /// let key = wheel.insert(10, ()).unwrap();
    /// wheel.reset(key, 20);
    /// assert_eq!(wheel.deadline(key), Some(20));
    /// ```
    #[inline]
    pub fn deadline(&self, key: Key) -> Option<u64> {
        self.slab.get(key).map(|timer| timer.when)
    }

    /// The latest time that the wheel was told; 0 at first.
    ///
    /// ```
    /// let mut wheel = dueq::wheel::Wheel::<()>::new();
    /// wheel.pop_expired(10);
    /// wheel.pop_expired(7); // backwards: a no-op
    /// assert_eq!(wheel.now(), 10);
    /// ```
    #[inline]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Timers in the wheel, those included that are due and have not been taken out.
    ///
    /// ```
    /// let mut wheel = dueq::wheel::Wheel::new();
    /// wheel.insert(10, ()).unwrap();
    /// assert_eq!(wheel.len(), 1);
    /// ```
    #[inline]
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether there is no timer in the wheel.
    ///
    /// ```
    /// assert!(dueq::wheel::Wheel::<()>::new().is_empty());
    /// ```
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Default for Wheel<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Wheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel")
            .field("len", &self.len())
            .field("now", &self.now)
            .field("next_expiration", &self.next_expiration())
            .finish_non_exhaustive()
    }
}
