//! Limits the searches that run at once: each reads many queues.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::edge::problem::{Code, Problem};

/// The most searches that run at once.
const MAX_SEARCHES: usize = 4;
/// The longest time for which a search waits for others to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// The callers whose searches run now. Each caller has at most one.
#[derive(Clone, Default)]
pub(crate) struct Searches(Arc<Turns>);

#[derive(Default)]
struct Turns {
    callers: Mutex<HashSet<String>>,
    ended: Notify,
}

/// A running search; the drop ends it.
pub(crate) struct Running {
    searches: Searches,
    caller: String,
}

impl Searches {
    /// Waits until the search may begin; refuses it if that takes too long.
    pub(crate) async fn begin(&self, caller: &str) -> Result<Running, Problem> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut ended = pin!(self.0.ended.notified());
            // Registers for notifications before the check, so that none is missed.
            ended.as_mut().enable();
            match self.begin_now(caller) {
                Ok(running) => return Ok(running),
                Err(reason) if timeout_at(deadline, ended).await.is_err() => {
                    return Err(Problem::new(Code::Busy, format!("{reason}; try again")));
                }
                Err(_) => {}
            }
        }
    }

    /// Begins the search now, or returns the reason why it must wait.
    fn begin_now(&self, caller: &str) -> Result<Running, &'static str> {
        let mut callers = self.0.callers();
        if callers.contains(caller) {
            return Err("you have a search that runs");
        }
        if callers.len() >= MAX_SEARCHES {
            return Err("as many searches run as may");
        }
        callers.insert(caller.to_owned());
        Ok(Running {
            searches: self.clone(),
            caller: caller.to_owned(),
        })
    }
}

impl Turns {
    fn callers(&self) -> MutexGuard<'_, HashSet<String>> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.searches.0.callers().remove(&self.caller);
        self.searches.0.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn search_waits_for_its_turn_up_to_a_limit() {
        let searches = Searches::default();
        let first = searches.begin("a").await.expect("a turn");
        let waiting = tokio::spawn({
            let searches = searches.clone();
            async move { searches.begin("a").await.map(drop) }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!waiting.is_finished());
        drop(first);
        waiting.await.expect("no panic").expect("a turn");
        let mut others = Vec::new();
        for caller in ["a", "b", "c", "d"] {
            others.push(searches.begin(caller).await.expect("a turn"));
        }
        for (caller, reason) in [("a", "you have"), ("e", "as many")] {
            let begun = Instant::now();
            let refused = searches.begin(caller).await.err().expect("none is free");
            assert!(refused.detail().starts_with(reason), "{}", refused.detail());
            assert_eq!(begun.elapsed(), PATIENCE);
        }
    }
}
