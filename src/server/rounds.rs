//! Rounds of calls to one server: small calls of many partitions share a pipeline.
//!
//! A call costs Redis as much as eight items, and less if it shares a pipeline with other calls.
//! Without rounds the callers of a queue of twelve partitions would make twelve times as many
//! calls: each partition would send the first item that arrives. So while calls are in flight,
//! items gather at all partitions of the server, and then the partitions that have waited longest
//! send together.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::error::Error;

/// The least number of partitions that send in a round, if that many wait. If many wait, a third of
/// them sends; the others gather more items meanwhile, so that their calls are larger.
const MIN_CALLS: usize = 4;
/// The longest time that a partition waits for the calls of others. A call to a slot that is being
/// moved is answered late, and must not delay the others by more.
const LIMIT: Duration = Duration::from_millis(20);

/// The rounds of one server.
#[derive(Default)]
pub(crate) struct Rounds(Mutex<State>);

#[derive(Default)]
struct State {
    in_flight: usize,
    /// The partitions that wait for their turn. The first one has waited longest, and so has
    /// gathered most.
    waiting: VecDeque<oneshot::Sender<Turn>>,
}

/// The right to send a call. It is dropped when the call has its reply; the last drop of a round
/// lets the next partitions send.
pub(crate) struct Turn(Arc<Rounds>);

impl Rounds {
    /// Waits for a turn, while calls are in flight. A call that `has_enough` items may join a
    /// single call in flight.
    pub(crate) async fn turn(self: &Arc<Self>, has_enough: bool) -> Turn {
        let turn = {
            let mut state = self.lock();
            if state.in_flight == 0 || has_enough && state.in_flight == 1 {
                state.in_flight += 1;
                return Turn(Arc::clone(self));
            }
            let (sender, turn) = oneshot::channel();
            state.waiting.push_back(sender);
            turn
        };
        match timeout(LIMIT, turn).await {
            Ok(Ok(turn)) => turn,
            _ => {
                self.lock().in_flight += 1;
                Turn(Arc::clone(self))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let next = {
            let mut state = self.0.lock();
            state.in_flight -= 1;
            if state.in_flight > 0 {
                return;
            }
            let calls = state.waiting.len().div_ceil(3).max(MIN_CALLS);
            let calls = calls.min(state.waiting.len());
            let next: Vec<_> = state.waiting.drain(..calls).collect();
            state.in_flight = calls;
            next
        };
        for waiting in next {
            // If the partition no longer waits, the unsent turn is dropped here.
            let _ = waiting.send(Self(Arc::clone(&self.0)));
        }
    }
}

/// Runs calls at the same time; their results are in the order of the calls.
pub(crate) async fn at_once<T: Send + 'static>(
    calls: impl Iterator<Item = impl Future<Output = Result<T, Error>> + Send + 'static>,
) -> Vec<Result<T, Error>> {
    let mut running = JoinSet::new();
    let mut results = Vec::new();
    for (index, call) in calls.enumerate() {
        results.push(None);
        running.spawn(async move { (index, call.await) });
    }
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok((index, result)) => results[index] = Some(result),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_waiting_third_sends_after_a_round() {
        let rounds = Arc::new(Rounds::default());
        let first = rounds.turn(false).await;
        let mut waiting: Vec<_> = (0..12).map(|_| Box::pin(rounds.turn(false))).collect();
        assert!(waiting.iter_mut().all(|one| poll(one.as_mut()).is_none()));
        drop(first);
        let turns: Vec<_> = waiting.iter_mut().map(|one| poll(one.as_mut())).collect();
        let sent: Vec<_> = turns.iter().map(Option::is_some).collect();
        assert_eq!(sent, [[true; 4].as_slice(), &[false; 8]].concat());
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_waiting_partitions_all_send_after_a_round() {
        let rounds = Arc::new(Rounds::default());
        let first = rounds.turn(false).await;
        let (mut second, mut third) = (pin!(rounds.turn(false)), pin!(rounds.turn(false)));
        assert!(poll(second.as_mut()).is_none() && poll(third.as_mut()).is_none());
        drop(first);
        let (second, third) = (poll(second.as_mut()), poll(third.as_mut()));
        assert!(second.is_some() && third.is_some());
        let mut fourth = pin!(rounds.turn(false));
        assert!(poll(fourth.as_mut()).is_none());
        drop(second);
        assert!(poll(fourth.as_mut()).is_none(), "the third is in flight");
        drop(third);
        assert!(poll(fourth.as_mut()).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn full_calls_join_and_slow_calls_delay_others_briefly() {
        let rounds = Arc::new(Rounds::default());
        let slow = rounds.turn(false).await;
        let full = rounds.turn(true).await;
        let began = tokio::time::Instant::now();
        let late = rounds.turn(true).await;
        assert!(began.elapsed() >= LIMIT);
        // A caller that gave up must not block the others.
        let mut gone = Box::pin(rounds.turn(false));
        assert!(poll(gone.as_mut()).is_none());
        drop(gone);
        drop((slow, full, late));
        assert_eq!(rounds.lock().in_flight, 0);
    }
}
