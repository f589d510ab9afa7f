#![doc = include_str!("README.md")]

mod chunk;
mod drain;
mod expire;
mod filing;
mod level;
mod location;
mod next;
mod overdue;
mod run;
mod slab;
mod slots;
#[cfg(test)]
mod tests;

use std::fmt;

pub use drain::Drain;
pub use expire::{Advance, Expired};
pub use slab::{Full, Key};

use overdue::Overdue;
use run::Run;
use slab::Slab;
use slots::Slots;

/// A set of timers, each with a deadline and a value, from which due timers are taken out.
///
/// The [module](self) documents guarantees, costs and the algorithm.
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
    /// The reference time of the slots: every deadline in them is at or after it. It follows `now`,
    /// but stays before due timers that have not been taken out.
    position: u64,
    /// The latest time that the caller has passed in.
    now: u64,
    limit: usize,
}

impl<T> Wheel<T> {
    /// The most timers that any wheel can hold: 2^30.
    pub const MAX_LEN: usize = 1 << 30;

    /// An empty wheel at time 0. Its slots take 17 KiB; each timer takes about 27 bytes (with a
    /// `u64`).
    ///
    /// If ticks do not start near 0, such as milliseconds since 1970, set the time before the first
    /// insertion with [`pop_expired`](Self::pop_expired). Otherwise all timers go into one slot far
    /// ahead, and are moved at the first advance.
    ///
    /// ```
    /// let wheel = dueq::wheel::Wheel::<()>::new();
    /// assert_eq!((wheel.len(), wheel.now(), wheel.next_expiration()), (0, 0, None));
    /// ```
    pub fn new() -> Self {
        Self::with_capacity_limit(Self::MAX_LEN)
    }

    /// An empty wheel that holds at most `limit` timers: at the limit, [`insert`](Self::insert)
    /// fails.
    ///
    /// It allocates no memory for them in advance. A limit above [`MAX_LEN`](Self::MAX_LEN) is
    /// lowered to `MAX_LEN`.
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

    /// Adds a timer that is due at `when`. If `when` is at or before [`now`](Self::now), the next
    /// pop takes it out.
    ///
    /// **Cost.** Constant: one timer and one entry are written. When memory grows, it is copied.
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

    /// Takes a timer out before it fires, due or not. Returns `None` if the key is stale or of
    /// another wheel.
    ///
    /// **Cost.** Constant: it touches this timer only, and its entry becomes stale. When most
    /// entries of its slot are stale, each removal also reads up to 128 of them.
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
        self.unfile(timer.location);
        Some(timer.value)
    }

    /// Changes the deadline of a timer to `when`, earlier or later, even if it is due and not yet
    /// popped. The key stays valid. Returns `false` if the key is stale or of another wheel.
    ///
    /// **Cost.** Constant. A later deadline writes one field, and the timer is moved at its old
    /// deadline. An earlier one costs a removal and an insertion, unless the timer stays within its
    /// slot.
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
        let (before, location) = (timer.when, timer.location);
        timer.when = when;
        if location.is_in_slot() && when >= before
            || self
                .slot_of(location)
                .is_some_and(|slot| when >= slot.start(self.position))
        {
            // The slot is visited at its first tick, which is not after `when`, so the timer may
            // stay in the slot.
            return true;
        }
        // Filed before `unfile`, so that the old entry counts as stale when `unfile` removes stale
        // entries.
        self.file(key.index, when);
        self.unfile(location);
        true
    }

    /// The value of a timer. `None` if the key is stale or of another wheel.
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

    /// The value of a timer, to change it. `None` if the key is stale or of another wheel.
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

    /// The deadline of a timer, as it was last set. `None` if the key is stale or of another wheel.
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

    /// The wheel's time: the latest that was passed in, or 0.
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

    /// The number of timers in the wheel, including due ones that have not been taken out.
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

    /// Whether the wheel holds no timer.
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
