//! A timer that is accurate to tens of microseconds. Tokio's timers count whole milliseconds and
//! round up.

use std::panic::{AssertUnwindSafe, catch_unwind};
#[cfg(target_os = "linux")]
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use crate::error::panic_text;
use crate::node::runtime::task::Task;
use crate::node::runtime::tasks::Tasks;

/// A thread that sleeps until an instant and then wakes a task. Dropping the timer ends the thread.
pub(crate) struct PreciseTimer {
    shared: Arc<Shared>,
    /// Whether the thread was started. If not, tokio's timer is used.
    has_thread: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    elapsed: Notify,
}

#[derive(Default)]
struct State {
    /// When to wake the task.
    at: Option<Instant>,
    /// When the thread's sleep ends; `None` if it sleeps until it is woken.
    asleep_until: Option<Instant>,
    is_dropped: bool,
}

impl PreciseTimer {
    #[cfg(test)]
    pub(crate) fn start() -> Self {
        Self::start_with(|| {}, |_| {})
    }

    /// A timer whose thread is supervised: its panic ends the worker. If the thread cannot be
    /// started, the worker goes on with tokio's timer.
    pub(crate) fn supervised(tasks: &Tasks) -> Self {
        let panicked = tasks.clone();
        #[cfg(not(any(test, feature = "harness")))]
        let on_wake = || {};
        #[cfg(any(test, feature = "harness"))]
        let on_wake = {
            let tasks = tasks.clone();
            move || tasks.check_injected(Task::Timer)
        };
        Self::start_with(on_wake, move |text| panicked.panicked(Task::Timer, text))
    }

    fn start_with(
        on_wake: impl Fn() + Send + 'static,
        panicked: impl FnOnce(&str) + Send + 'static,
    ) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            elapsed: Notify::new(),
        });
        let thread = Arc::clone(&shared);
        let started = std::thread::Builder::new()
            .name("dueq-timer".to_owned())
            .spawn(move || {
                // Unwind safe: the state is consistent wherever the thread can panic, and the
                // waiting task is dropped.
                let ended = catch_unwind(AssertUnwindSafe(|| thread.run(on_wake)));
                if let Err(panic) = ended {
                    panicked(panic_text(&*panic));
                }
            });
        if let Err(error) = &started {
            crate::telemetry::events::no_timer(error);
        }
        Self {
            shared,
            has_thread: started.is_ok(),
        }
    }

    /// Completes at this instant or slightly later; with `None`, never. It may complete too early
    /// after an earlier wait was dropped. Only one task may wait, and its last call counts.
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
            // A later instant needs no wake-up of the thread: it reads the new instant when its
            // sleep ends.
            if state.asleep_until.is_none_or(|until| instant < until) {
                self.shared.changed.notify_one();
            }
        }
        self.shared.elapsed.notified().await;
    }
}

impl Drop for PreciseTimer {
    fn drop(&mut self) {
        self.shared.lock().is_dropped = true;
        self.shared.changed.notify_one();
    }
}

impl Shared {
    /// Runs the timer's thread. It calls `on_wake` after each sleep.
    fn run(&self, on_wake: impl Fn()) {
        #[cfg(target_os = "linux")]
        wake_exactly();
        let mut state = self.lock();
        while !state.is_dropped {
            on_wake();
            let now = Instant::now();
            let remaining = state.at.map(|at| at.saturating_duration_since(now));
            state = match remaining {
                None => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(remaining) if remaining.is_zero() => {
                    state.at = None;
                    state.asleep_until = None;
                    self.elapsed.notify_one();
                    continue;
                }
                Some(remaining) => {
                    state.asleep_until = state.at;
                    let (state, _) = self
                        .changed
                        .wait_timeout(state, remaining)
                        .unwrap_or_else(PoisonError::into_inner);
                    state
                }
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Linux lets sleeps of a thread last up to 50 us longer than asked, so that wake-ups coincide. The
/// calling thread's last no longer, if /proc is there.
#[cfg(target_os = "linux")]
fn wake_exactly() {
    // `PID/task/TID`.
    let thread = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    if let Some(id) = thread.file_name() {
        let _ = std::fs::write(Path::new("/proc").join(id).join("timerslack_ns"), "1");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Polls the wait once, then drops it.
    async fn start_and_drop(wait: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = wait => panic!("completed too early"),
            () = std::future::ready(()) => {}
        }
    }

    #[tokio::test]
    async fn an_earlier_instant_replaces_a_later_one() {
        let timer = PreciseTimer::start();
        let start = Instant::now();
        start_and_drop(timer.wait(Some(start + Duration::from_secs(3_600)))).await;
        let near = start + Duration::from_millis(20);
        timer.wait(Some(near)).await;
        assert!(Instant::now() >= near);
    }

    #[tokio::test]
    async fn dropping_the_timer_ends_its_thread() {
        let timer = PreciseTimer::start();
        let shared = Arc::downgrade(&timer.shared);
        drop(timer);
        while shared.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_thread_lets_no_sleep_last_longer_than_asked() {
        let (sender, slacks) = std::sync::mpsc::channel();
        let on_wake = move || {
            let thread = std::fs::read_link("/proc/thread-self").expect("a link");
            let id = thread.file_name().and_then(|id| id.to_str());
            let slack = format!("/proc/{}/timerslack_ns", id.expect("an id"));
            let _ = sender.send(std::fs::read_to_string(slack).expect("a slack"));
        };
        let _timer = PreciseTimer::start_with(on_wake, |_| {});
        assert_eq!(slacks.recv().expect("it ran").trim(), "1");
    }
}
