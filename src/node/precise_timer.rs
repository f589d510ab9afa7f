//! Waking at an instant, to some tens of microseconds: tokio's timers count whole milliseconds, and round up.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

/// A thread that sleeps until an instant and then wakes a task. Dropped, it ends.
pub(crate) struct PreciseTimer {
    shared: Arc<Shared>,
    /// Without a thread of its own, tokio's timer has to do.
    has_thread: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    rung: Notify,
}

#[derive(Default)]
struct State {
    at: Option<Instant>,
    /// What the thread sleeps until, if it sleeps until something.
    asleep_until: Option<Instant>,
    over: bool,
}

impl PreciseTimer {
    pub(crate) fn start() -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            rung: Notify::new(),
        });
        let thread = Arc::clone(&shared);
        let started = std::thread::Builder::new()
            .name("dueq-timer".to_owned())
            .spawn(move || thread.run());
        if let Err(error) = &started {
            crate::telemetry::events::no_timer(error);
        }
        Self {
            shared,
            has_thread: started.is_ok(),
        }
    }

    /// Completes at this instant, or a little later, or now and then too soon; never, if there is none. For one waiter at a
    /// time: the last call counts.
    pub(crate) async fn wait(&self, at: Option<Instant>) {
        let Some(instant) = at else {
            return std::future::pending().await;
        };
        if !self.has_thread {
            return tokio::time::sleep_until(instant.into()).await;
        }
        {
            let mut state = self.shared.lock();
            state.at = at;
            // A thread that wakes too soon looks again by itself.
            if state.asleep_until.is_none_or(|until| instant < until) {
                self.shared.changed.notify_one();
            }
        }
        self.shared.rung.notified().await;
    }
}

impl Drop for PreciseTimer {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn run(&self) {
        let mut state = self.lock();
        while !state.over {
            let now = Instant::now();
            let left = state.at.map(|at| at.saturating_duration_since(now));
            state = match left {
                None => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => {
                    (state.at, state.asleep_until) = (None, None);
                    self.rung.notify_one();
                    continue;
                }
                Some(left) => {
                    state.asleep_until = state.at;
                    self.changed
                        .wait_timeout(state, left)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Begins to wait, and gives it up.
    async fn begin(wait: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = wait => panic!("not yet"),
            () = std::future::ready(()) => {}
        }
    }

    #[tokio::test]
    async fn an_earlier_instant_takes_the_place_of_a_later_one() {
        let (timer, start) = (PreciseTimer::start(), Instant::now());
        begin(timer.wait(Some(start + Duration::from_secs(3_600)))).await;
        let near = start + Duration::from_millis(20);
        timer.wait(Some(near)).await;
        assert!(Instant::now() >= near);
    }

    #[tokio::test]
    async fn its_thread_ends_with_it() {
        let timer = PreciseTimer::start();
        let shared = Arc::downgrade(&timer.shared);
        drop(timer);
        while shared.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
    }
}
