//! Waits for timers to expire.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use tokio::task::coop::poll_proceed;
use tokio::time::{Instant, sleep_until};

use super::Timers;
use crate::wheel::Key;

/// How many entries of the wheel a poll touches before other tasks get a turn. That takes less than
/// 1 ms.
const WORK: usize = 4_096;
/// The longest sleep, because not every platform has instants for all times of the wheel.
const LONG: Duration = Duration::from_secs(365 * 86_400);

/// A timer that expired.
///
/// ```
/// # use std::time::Duration;
/// use dueq::timers::Timers;
/// use tokio::time::Instant;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let mut timers = Timers::new();
/// let key = timers.insert(Duration::from_millis(5), "tea").unwrap();
/// let expired = timers.next().await.unwrap();
/// assert_eq!((expired.key, expired.value), (key, "tea"));
/// assert!(expired.deadline <= Instant::now());
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpiredTimer<T> {
    /// The key of the timer, which is stale now.
    pub key: Key,
    /// When the timer was due, rounded up to a millisecond since the [`Timers`] were created.
    pub deadline: Instant,
    /// The value that was inserted.
    pub value: T,
}

impl<T> Timers<T> {
    /// Waits for the next timer to expire. `None` while there are no timers. Cancel safe.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use dueq::timers::Timers;
    /// use tokio::sync::mpsc;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let mut timers = Timers::new();
    /// let (sender, mut orders) = mpsc::channel(8);
    /// sender.send("tea").await.unwrap();
    /// drop(sender);
    /// loop {
    ///     tokio::select! {
    ///         Some(order) = orders.recv() => {
    ///             timers.insert(Duration::from_secs(180), order).unwrap();
    ///         }
    ///         Some(expired) = timers.next() => println!("{} is ready", expired.value),
    ///         else => break,
    ///     }
    /// }
    /// # }
    /// ```
    pub async fn next(&mut self) -> Option<ExpiredTimer<T>> {
        poll_fn(|context| self.poll_expired(context)).await
    }

    /// The poll function of [`next`](Self::next). Only the last waker is kept.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled, if it has to wait.
    ///
    /// ```
    /// # use std::{future::poll_fn, time::Duration};
    /// use dueq::timers::Timers;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let mut timers = Timers::new();
    /// timers.insert(Duration::from_secs(1), 'a').unwrap();
    /// let expired = poll_fn(|context| timers.poll_expired(context)).await;
    /// assert_eq!(expired.unwrap().value, 'a');
    /// # }
    /// ```
    pub fn poll_expired(&mut self, context: &mut Context<'_>) -> Poll<Option<ExpiredTimer<T>>> {
        self.waiting = None;
        let turn = ready!(poll_proceed(context));
        loop {
            let mut work = WORK;
            // Timers that were due at the last poll are yielded without reading the clock again.
            let expired = self
                .pop(self.wheel.now(), &mut work)
                .or_else(|| self.pop(self.now(), &mut work));
            if expired.is_some() {
                turn.made_progress();
                return Poll::Ready(expired);
            }
            if work == 0 {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let Some(next) = self.wheel.next_expiration() else {
                self.sleep = None;
                return Poll::Ready(None);
            };
            if self.poll_sleep(next, context).is_pending() {
                self.waiting = Some(context.waker().clone());
                return Poll::Pending;
            }
        }
    }

    fn pop(&mut self, now: u64, work: &mut usize) -> Option<ExpiredTimer<T>> {
        let mut due = self.wheel.advance_limited(now, *work);
        let expired = due.next();
        *work = due.work_left();
        let expired = expired?;
        let deadline = self.start + Duration::from_millis(expired.deadline);
        Some(ExpiredTimer {
            key: expired.key,
            deadline,
            value: expired.value,
        })
    }

    /// Sleeps until this tick, but at most for `LONG`.
    fn poll_sleep(&mut self, tick: u64, context: &mut Context<'_>) -> Poll<()> {
        let delay = Duration::from_millis(tick.saturating_sub(self.now())).min(LONG);
        let until = match self.start.checked_add(Duration::from_millis(tick)) {
            Some(until) if delay < LONG => until,
            _ => Instant::now() + LONG,
        };
        self.wake_at = tick;
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(sleep_until(until)));
        if sleep.deadline() != until {
            sleep.as_mut().reset(until);
        }
        sleep.as_mut().poll(context)
    }

    /// Wakes the waiting task if its sleep is now too long, or if no timer is left.
    pub(crate) fn wake_waiting(&mut self) {
        if self.waiting.is_some()
            && self
                .wheel
                .next_expiration()
                .is_none_or(|next| next < self.wake_at)
            && let Some(waiting) = self.waiting.take()
        {
            waiting.wake();
        }
    }
}

/// Values are never pinned.
impl<T> Unpin for Timers<T> {}

impl<T> Stream for Timers<T> {
    type Item = ExpiredTimer<T>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<ExpiredTimer<T>>> {
        self.get_mut().poll_expired(context)
    }
}
