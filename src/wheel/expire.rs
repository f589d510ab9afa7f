//! Takes out due timers.

use std::iter::FusedIterator;

use super::{Key, Wheel};

/// A timer that fired.
///
/// ```
/// use dueq::wheel::{Expired, Wheel};
///
/// let mut wheel = Wheel::new();
/// let key = wheel.insert(7, "tea").unwrap();
/// let expired = wheel.pop_expired(9).unwrap();
/// assert_eq!(expired, Expired { key, deadline: 7, value: "tea" });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired<T> {
    /// The timer's key. It is stale, but the caller may use it to look up its own data.
    pub key: Key,
    /// The timer's deadline, which is not after the wheel's [`now`](Wheel::now).
    pub deadline: u64,
    /// The value that was inserted.
    pub value: T,
}

/// An iterator that takes out the due timers, earliest deadline first.
///
/// Created by [`Wheel::advance`] and [`Wheel::advance_limited`]. Timers that it has not taken out
/// when it is dropped or forgotten stay in the wheel and due; their keys stay valid.
#[derive(Debug)]
#[must_use = "timers fire as the iterator is consumed"]
pub struct Advance<'wheel, T> {
    wheel: &'wheel mut Wheel<T>,
    work: usize,
}

impl<T> Advance<'_, T> {
    /// The units of work not yet spent. At 0, more timers may be due. Above 0 after a `None`, no
    /// timer is due.
    ///
    /// ```
    /// use dueq::wheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// wheel.insert(1, ()).unwrap();
    /// let mut due = wheel.advance_limited(1, 100);
    /// assert_eq!(due.by_ref().count(), 1);
    /// assert!(due.work_left() > 0); // so that was all
    /// ```
    pub fn work_left(&self) -> usize {
        self.work
    }
}

impl<T> Iterator for Advance<'_, T> {
    type Item = Expired<T>;

    #[inline]
    fn next(&mut self) -> Option<Expired<T>> {
        self.wheel.pop_due(&mut self.work)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.wheel.len().min(self.work)))
    }
}

impl<T> FusedIterator for Advance<'_, T> {}

impl<T> Wheel<T> {
    /// Sets the wheel's time to `now`, and returns an iterator that takes out the due timers,
    /// earliest deadline first.
    ///
    /// A timer is due when its deadline is at or before `now`. Timers that the iterator does not
    /// yield stay due. A `now` before the time of the wheel does not change the time.
    ///
    /// **Cost.** Firing touches a timer once. Before that it is moved at most once per level,
    /// usually once or twice in all. The first item may take long if a slot with many timers has to
    /// be spread; see [`advance_limited`](Self::advance_limited).
    ///
    /// ```
    /// use dueq::wheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// for deadline in [30, 10, 20, 40] {
    ///     wheel.insert(deadline, ()).unwrap();
    /// }
    /// let fired: Vec<u64> = wheel.advance(35).map(|expired| expired.deadline).take(2).collect();
    /// assert_eq!(fired, [10, 20]);
    ///
    /// let fired: Vec<u64> = wheel.advance(35).map(|expired| expired.deadline).collect();
    /// assert_eq!(fired, [30]); // was left, and stayed due
    /// ```
    #[inline]
    pub fn advance(&mut self, now: u64) -> Advance<'_, T> {
        self.advance_limited(now, usize::MAX)
    }

    /// Like [`advance`](Self::advance), but touches at most `work` entries, which bounds the
    /// duration of the call.
    ///
    /// One unit is one entry fired, moved towards the lowest level, or found stale. The iterator
    /// ends when nothing more is due or the work is spent. In the second case
    /// [`next_expiration`](Self::next_expiration) is at or before `now`, and the next call
    /// continues. Any `work` above 0 makes progress; 0 only sets the time. A timer that is not
    /// reset takes at most 12 units in all.
    ///
    /// ```
    /// use dueq::wheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// for value in 0..100_000 {
    ///     wheel.insert(5_000, value).unwrap();
    /// }
    /// let mut fired = 0;
    /// while wheel.next_expiration().is_some_and(|due| due <= 5_000) {
    ///     fired += wheel.advance_limited(5_000, 1_000).count();
    ///     // … see to other things here …
    /// }
    /// assert_eq!(fired, 100_000);
    /// ```
    pub fn advance_limited(&mut self, now: u64, work: usize) -> Advance<'_, T> {
        self.set_now(now);
        Advance { wheel: self, work }
    }

    /// Takes out the timer with the earliest deadline, if that is at or before `now`: one step of
    /// [`advance`](Self::advance).
    ///
    /// Between two calls the wheel may be changed in any way, including timers that are due.
    ///
    /// ```
    /// use dueq::wheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// wheel.insert(10, 'a').unwrap();
    /// let second = wheel.insert(11, 'b').unwrap();
    /// assert_eq!(wheel.pop_expired(9), None);
    /// assert_eq!(wheel.pop_expired(11).map(|expired| expired.value), Some('a'));
    ///
    /// wheel.reset(second, 15); // in time
    /// assert_eq!(wheel.pop_expired(11), None);
    /// ```
    #[inline]
    pub fn pop_expired(&mut self, now: u64) -> Option<Expired<T>> {
        self.set_now(now);
        self.pop_due(&mut { usize::MAX })
    }

    #[inline]
    fn set_now(&mut self, now: u64) {
        self.now = self.now.max(now);
        if self.next_expiration().is_none_or(|next| next > self.now) {
            // No timer is skipped. The closer the position is to now, the lower the levels of new
            // timers.
            self.position = self.now;
        }
    }

    /// Fires the timer with the earliest deadline, if that is due by [`now`](Self::now) and found
    /// before `work` runs out.
    ///
    /// The timer is overdue, in the run, or in a slot. Overdue timers have deadlines before the
    /// position, all others at or after it. The run is sorted and due. A slot that starts before
    /// the run's first deadline may hold an earlier one, so it is opened first.
    #[inline]
    fn pop_due(&mut self, work: &mut usize) -> Option<Expired<T>> {
        while *work > 0 {
            if !self.overdue.is_empty() {
                *work -= 1;
                match self.overdue.pop(&self.slab) {
                    Some(index) => return self.fire(index),
                    None => continue,
                }
            }
            let slot = self.slots.first(self.position);
            if let Some(deadline) = self.run.first()
                && slot.is_none_or(|(_, start)| deadline <= start)
            {
                *work -= 1;
                match self.run.pop(&self.slab) {
                    Some(index) => return self.fire(index),
                    None => continue,
                }
            }
            let Some((slot, start)) = slot.filter(|&(_, start)| start <= self.now) else {
                self.position = self.now;
                return None;
            };
            let single = self.slots.len(slot) == 1 || !self.run.is_empty();
            if slot.level() == 0 && single {
                *work -= 1;
                if let Some(index) = self.take_one(slot, start) {
                    return self.fire(index);
                }
            } else if self.can_run(slot, start, *work) {
                self.gather(slot, start, work);
            } else {
                self.cascade(slot, work);
            }
        }
        None
    }

    #[inline]
    fn fire(&mut self, index: u32) -> Option<Expired<T>> {
        let (key, timer) = self.slab.take(index)?;
        debug_assert!(timer.when <= self.now);
        Some(Expired {
            key,
            deadline: timer.when,
            value: timer.value,
        })
    }
}
