//! Emptying the wheel.

use std::iter::FusedIterator;

use super::Wheel;

/// Takes all timers out, due or not, as `(deadline, value)`, in no particular order.
///
/// Made by [`Wheel::drain`]. Dropping it drops the timers that are left; forgetting it leaves them in the wheel.
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
                self.wheel.leave(timer.place);
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
        /// Goes on after a value whose drop panics. If another one does, the process aborts, as with any collection.
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
    /// Takes out all timers, due or not: the unprocessed ones when a program stops.
    ///
    /// Yields `(deadline, value)` in no particular order. Dropping the iterator drops those it has not yielded.
    /// Their keys become stale. The time and the memory are kept.
    ///
    /// **Cost.** A few nanoseconds a timer, and for every timer that there has been room for.
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

    /// Drops all timers. Their keys become stale; the time and the memory are kept.
    ///
    /// If the drop of a value panics, the others are dropped all the same, and the wheel is empty and usable.
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
