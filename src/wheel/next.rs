//! When to look again.

use super::Wheel;

impl<T> Wheel<T> {
    /// When to advance the wheel next: **a lower bound** of the earliest deadline, and `None` exactly if the wheel is empty.
    ///
    /// Guaranteed:
    /// - it is never later than any deadline in the wheel, so whoever sleeps until it misses nothing;
    /// - at or before [`now`](Self::now), something is due or work was left undone, and advancing makes progress;
    /// - once everything due has been taken out, it is *after* `now`: a loop of sleeping until it and advancing never spins;
    /// - a timer causes at most 11 wake-ups, the last on the dot (typically 3 for one that is half a minute ahead).
    ///   Resetting it to later does not add one at once, but it is the old deadline that is waited for before the new one is.
    ///
    /// Not guaranteed: that anything fires then, and that it only grows: it is the bound for what is in the wheel at the moment,
    /// and an insertion, removal or reset may move it. After inserting or resetting, ask again.
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
    /// **Cost.** Looks at every timer that shares the first occupied slot, and at those of the slots after it
    /// for as long as it meets only timers that were reset to later: with a million of those, at a million.
    /// To know when to wake, [`next_expiration`](Self::next_expiration) is enough.
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
            return earliest; // All else is at or after the position.
        }
        let mut earliest = self.run.exact(&self.slab);
        for (slot, start) in self.slots.in_order(self.position) {
            if earliest.is_some_and(|earliest| earliest <= start) {
                break;
            }
            let deadlines = self
                .slots
                .entries(slot)
                .filter_map(|(index, place)| self.slab.when_at(index, place));
            earliest = earliest.into_iter().chain(deadlines).min();
        }
        earliest
    }
}
