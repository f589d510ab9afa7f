//! Takes all timers out of the wheel.

use std::iter::FusedIterator;

use super::Wheel;

/// An iterator that takes out all timers, due or not, as `(deadline, value)`, in no particular
/// order.
///
/// Created by [`Wheel::drain`]. Dropping it drops the remaining timers; forgetting it leaves them
/// in the wheel.
#[derive(Debug)]
pub struct Drain<'wheel, T> {
    wheel: &'wheel mut Wheel<T>,
    index: u32,
}

impl<T> Iterator for Drain<'_, T> {
    type Item = (u64, T);

    fn next(&mut self) -> Option<(u64, T)> {
        while self.index < self.wheel.slab.indices() {
            let taken = self.wheel.slab.take(self.index);
            self.index += 1;
            if let Some((_, timer)) = taken {
                self.wheel.leave(timer.location);
                return Some((timer.when, timer.value));
            }
        }
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.wheel.len(), Some(self.wheel.len()))
    }
}

impl<T> ExactSizeIterator for Drain<'_, T> {}

impl<T> FusedIterator for Drain<'_, T> {}

impl<T> Drop for Drain<'_, T> {
    fn drop(&mut self) {
        /// Drops the remaining values, even if the drop of one panics. A second panic aborts the
        /// process, as in any collection.
        struct Rest<'rest, 'wheel, T>(&'rest mut Drain<'wheel, T>);

        impl<T> Drop for Rest<'_, '_, T> {
            fn drop(&mut self) {
                self.0.for_each(drop);
            }
        }

        let rest = Rest(self);
        rest.0.for_each(drop);
    }
}

impl<T> Wheel<T> {
    /// Takes out all timers, due or not; for example the unprocessed ones when a program stops.
    ///
    /// Yields `(deadline, value)` in no particular order. Dropping the iterator drops the timers
    /// that it has not yielded. All keys become stale. The wheel keeps its time and its memory.
    ///
    /// **Cost.** A few nanoseconds for each timer that the wheel has memory for.
    ///
    /// ```
    /// use dueq::wheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// wheel.insert(10, "a").unwrap();
    /// wheel.insert(20, "b").unwrap();
    ///
    /// let mut unprocessed: Vec<_> = wheel.drain().collect();
    /// unprocessed.sort();
    /// assert_eq!(unprocessed, [(10, "a"), (20, "b")]);
    /// assert!(wheel.is_empty());
    /// ```
    pub fn drain(&mut self) -> Drain<'_, T> {
        Drain {
            wheel: self,
            index: 0,
        }
    }

    /// Drops all timers. Their keys become stale; the wheel keeps its time and its memory.
    ///
    /// If the drop of a value panics, the others are still dropped, and the wheel is empty and
    /// usable.
    ///
    /// ```
    /// use dueq::wheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// let key = wheel.insert(10, ()).unwrap();
    /// wheel.clear();
    /// assert_eq!((wheel.len(), wheel.get(key), wheel.next_expiration()), (0, None, None));
    /// ```
    pub fn clear(&mut self) {
        drop(self.drain());
    }
}
