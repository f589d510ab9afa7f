#![doc = include_str!("README.md")]

mod waiting;

use std::fmt;
use std::pin::Pin;
use std::task::Waker;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::wheel::{Full, Key, Wheel};

pub use waiting::ExpiredTimer;

/// A set of timers. It is also a stream, which yields the timers that expire.
///
/// The stream returns `None` while the set is empty, and continues after the next insertion. The
/// [module](self) documents the guarantees.
///
/// ```
/// # use std::time::Duration;
/// use dueq::timers::Timers;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let mut timers = Timers::new();
/// timers.insert(Duration::from_secs(2), "second").unwrap();
/// timers.insert(Duration::from_secs(1), "first").unwrap();
/// assert_eq!(timers.next().await.unwrap().value, "first");
/// assert_eq!(timers.next().await.unwrap().value, "second");
/// assert!(timers.next().await.is_none());
/// # }
/// ```
pub struct Timers<T> {
    wheel: Wheel<T>,
    /// The instant of tick 0. A tick is one millisecond.
    start: Instant,
    sleep: Option<Pin<Box<Sleep>>>,
    /// The tick at which `sleep` completes.
    wake_at: u64,
    /// The waker of the task that waits for the sleep.
    waiting: Option<Waker>,
}

impl<T> Timers<T> {
    /// An empty set.
    ///
    /// ```
    /// assert!(dueq::timers::Timers::<()>::new().is_empty());
    /// ```
    pub fn new() -> Self {
        Self::with_capacity_limit(Wheel::<T>::MAX_LEN)
    }

    /// An empty set that holds at most `limit` timers.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use dueq::timers::Timers;
    ///
    /// let mut timers = Timers::with_capacity_limit(1);
    /// assert!(timers.insert(Duration::from_secs(1), 'a').is_ok());
    /// assert_eq!(timers.insert(Duration::from_secs(1), 'b').unwrap_err().0, 'b');
    /// ```
    pub fn with_capacity_limit(limit: usize) -> Self {
        let wheel = Wheel::with_capacity_limit(limit);
        Self {
            wheel,
            start: Instant::now(),
            sleep: None,
            wake_at: 0,
            waiting: None,
        }
    }

    /// Adds a timer that expires after `delay`, which may be of any length.
    ///
    /// # Errors
    /// [`Full`], with the value in it, at the capacity limit.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use dueq::timers::Timers;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let mut timers = Timers::new();
    /// timers.insert(Duration::MAX, "never").unwrap();
    /// timers.insert(Duration::ZERO, "at once").unwrap();
    /// assert_eq!(timers.next().await.unwrap().value, "at once");
    /// # }
    /// ```
    pub fn insert(&mut self, delay: Duration, value: T) -> Result<Key, Full<T>> {
        let when = self.tick_after(delay);
        self.insert_tick(when, value)
    }

    /// Adds a timer that expires at `when`, or at once if that has passed.
    ///
    /// # Errors
    /// [`Full`], with the value in it, at the capacity limit.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use dueq::timers::Timers;
    /// use tokio::time::Instant;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let mut timers = Timers::new();
    /// let when = Instant::now() + Duration::from_secs(1);
    /// timers.insert_at(when, ()).unwrap();
    /// timers.next().await;
    /// assert!(Instant::now() >= when);
    /// # }
    /// ```
    pub fn insert_at(&mut self, when: Instant, value: T) -> Result<Key, Full<T>> {
        let when = self.tick_at(when);
        self.insert_tick(when, value)
    }

    /// Makes a timer expire after `delay` from now instead. Returns `false` if the key is stale,
    /// because the timer has expired or was removed.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use dueq::timers::Timers;
    ///
    /// let mut timers = Timers::new();
    /// let key = timers.insert(Duration::from_secs(30), "connection").unwrap();
    /// assert!(timers.reset(key, Duration::from_secs(30))); // a packet
    /// timers.remove(key);
    /// assert!(!timers.reset(key, Duration::from_secs(30)));
    /// ```
    pub fn reset(&mut self, key: Key, delay: Duration) -> bool {
        let when = self.tick_after(delay);
        self.reset_tick(key, when)
    }

    /// Makes a timer expire at `when` instead, or at once if that has passed. Returns `false` if
    /// the key is stale.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use dueq::timers::Timers;
    /// use tokio::time::Instant;
    ///
    /// let mut timers = Timers::new();
    /// let key = timers.insert(Duration::from_secs(1), ()).unwrap();
    /// let later = Instant::now() + Duration::from_secs(60);
    /// assert!(timers.reset_at(key, later));
    /// assert!(timers.deadline(key).unwrap() >= later);
    /// ```
    pub fn reset_at(&mut self, key: Key, when: Instant) -> bool {
        let when = self.tick_at(when);
        self.reset_tick(key, when)
    }

    /// Takes a timer out, unless the stream has yielded it. Returns `None` if the key is stale.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use dueq::timers::Timers;
    ///
    /// let mut timers = Timers::new();
    /// let key = timers.insert(Duration::from_secs(1), "answered").unwrap();
    /// assert_eq!(timers.remove(key), Some("answered"));
    /// assert_eq!(timers.remove(key), None);
    /// ```
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let value = self.wheel.remove(key);
        self.wake_waiting();
        value
    }

    /// Drops all timers.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let mut timers = dueq::timers::Timers::new();
    /// timers.insert(Duration::from_secs(1), ()).unwrap();
    /// timers.clear();
    /// assert!(timers.is_empty());
    /// ```
    pub fn clear(&mut self) {
        self.wheel.clear();
        self.wake_waiting();
    }

    /// Takes all timers out, due or not, in no particular order; for example when a program stops.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let mut timers = dueq::timers::Timers::new();
    /// timers.insert(Duration::from_secs(1), 'a').unwrap();
    /// timers.insert(Duration::from_secs(2), 'b').unwrap();
    /// let mut unprocessed: Vec<char> = timers.drain().collect();
    /// unprocessed.sort();
    /// assert_eq!(unprocessed, ['a', 'b']);
    /// ```
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = T> {
        if let Some(waiting) = self.waiting.take() {
            waiting.wake();
        }
        self.wheel.drain().map(|(_, value)| value)
    }

    /// The value of a timer. `None` if the key is stale.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let mut timers = dueq::timers::Timers::new();
    /// let key = timers.insert(Duration::from_secs(1), 'a').unwrap();
    /// assert_eq!(timers.get(key), Some(&'a'));
    /// ```
    pub fn get(&self, key: Key) -> Option<&T> {
        self.wheel.get(key)
    }

    /// The value of a timer, to change it. `None` if the key is stale.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let mut timers = dueq::timers::Timers::new();
    /// let key = timers.insert(Duration::from_secs(1), 1).unwrap();
    /// *timers.get_mut(key).unwrap() += 1;
    /// assert_eq!(timers.remove(key), Some(2));
    /// ```
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.wheel.get_mut(key)
    }

    /// When a timer expires, rounded up to a millisecond since these [`Timers`] were created.
    /// `None` if the key is stale, or if the platform has no instant for such a late time.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use tokio::time::Instant;
    ///
    /// let mut timers = dueq::timers::Timers::new();
    /// let when = Instant::now() + Duration::from_secs(1);
    /// let key = timers.insert_at(when, ()).unwrap();
    /// assert!(timers.deadline(key).unwrap() - when < Duration::from_millis(1));
    /// ```
    pub fn deadline(&self, key: Key) -> Option<Instant> {
        self.start
            .checked_add(Duration::from_millis(self.wheel.deadline(key)?))
    }

    /// The number of timers in the set, including expired ones that were not yet yielded.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let mut timers = dueq::timers::Timers::new();
    /// timers.insert(Duration::ZERO, ()).unwrap();
    /// assert_eq!(timers.len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.wheel.len()
    }

    /// Whether the set holds no timer.
    ///
    /// ```
    /// assert!(dueq::timers::Timers::<()>::new().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.wheel.is_empty()
    }

    fn insert_tick(&mut self, when: u64, value: T) -> Result<Key, Full<T>> {
        if self.wheel.is_empty() {
            // The wheel's time is set first: the closer it is to now, the less often the wheel
            // moves the timer.
            let now = self.now();
            let _ = self.wheel.advance_limited(now, 0);
        }
        let key = self.wheel.insert(when, value)?;
        self.wake_waiting();
        Ok(key)
    }

    fn reset_tick(&mut self, key: Key, when: u64) -> bool {
        let was_there = self.wheel.reset(key, when);
        self.wake_waiting();
        was_there
    }

    /// Whole milliseconds since `start`.
    fn now(&self) -> u64 {
        millis(Instant::now().saturating_duration_since(self.start))
    }

    fn tick_after(&self, delay: Duration) -> u64 {
        millis_up(
            Instant::now()
                .saturating_duration_since(self.start)
                .saturating_add(delay),
        )
    }

    fn tick_at(&self, when: Instant) -> u64 {
        millis_up(when.saturating_duration_since(self.start))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn millis_up(duration: Duration) -> u64 {
    millis(duration.saturating_add(Duration::from_nanos(999_999)))
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Timers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
