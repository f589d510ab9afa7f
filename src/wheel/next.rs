//! Computes when to advance the wheel next.

use super::Wheel;

impl<T> Wheel<T> {
    /// When to advance the wheel next: **a lower bound** of the earliest deadline, and `None`
    /// exactly if the wheel is empty.
    ///
    /// Guaranteed:
    /// - The result is not later than any deadline in the wheel: a caller that sleeps until then
    ///   misses no timer.
    /// - If it is at or before [`now`](Self::now), a timer is due or work is unfinished, and
    ///   advancing makes progress.
    /// - Once every due timer has been taken out, it is *after* `now`: a loop that sleeps until
    ///   then and advances does not spin.
    /// - A timer causes at most 11 wake-ups, the last at its deadline; typically 3 for a timer half
    ///   a minute ahead. After a reset to later, the wheel still wakes up for the old deadline
    ///   first.
    ///
    /// Not guaranteed: that a timer fires then, and that the value only grows. An insertion,
    /// removal or reset may change it: call this again afterwards.
    ///
    /// **Cost.** A few instructions, whatever the number of timers.
    ///
    /// ```
    /// use dueq::wheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// wheel.insert(100_000, "far").unwrap();
    ///
    /// let (mut wakeups, mut fired) = (0, None);
    /// while let Some(wake_at) = wheel.next_expiration() {
    ///     assert!(wake_at <= 100_000);
    ///     wakeups += 1; // sleep until then
    ///     fired = wheel.pop_expired(wake_at);
    /// }
    /// assert_eq!(fired.map(|expired| expired.value), Some("far"));
    /// assert!(wakeups <= 3, "and not 100,000 ticks");
    /// ```
    #[inline]
    pub fn next_expiration(&self) -> Option<u64> {
        if let first @ Some(_) = self.overdue.first() {
            return first;
        }
        let slot = self.slots.first(self.position).map(|(_, start)| start);
        match self.run.first() {
            Some(run) => Some(slot.map_or(run, |start| start.min(run))),
            None => slot,
        }
    }

    /// The earliest deadline in the wheel, exactly.
    ///
    /// **Cost.** Reads every timer in the first occupied slot. If all of them were reset to later,
    /// it goes on to the next slots: up to all timers. To know when to wake up,
    /// [`next_expiration`](Self::next_expiration) is enough.
    ///
    /// ```
    /// use dueq::wheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// wheel.insert(100_003, ()).unwrap();
    /// wheel.insert(100_001, ()).unwrap();
    /// assert!(wheel.next_expiration() <= Some(100_001));
    /// assert_eq!(wheel.next_expiration_exact(), Some(100_001));
    /// ```
    pub fn next_expiration_exact(&self) -> Option<u64> {
        if let earliest @ Some(_) = self.overdue.exact(&self.slab) {
            return earliest; // the other timers are not before the position
        }
        let mut earliest = self.run.exact(&self.slab);
        for (slot, start) in self.slots.in_order(self.position) {
            if earliest.is_some_and(|earliest| earliest <= start) {
                break;
            }
            let deadlines = self
                .slots
                .entries(slot)
                .filter_map(|(index, location)| self.slab.when_at(index, location));
            earliest = earliest.into_iter().chain(deadlines).min();
        }
        earliest
    }
}
