//! Tests of the timer stream on tokio's paused clock.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use dueq::timers::Timers;
use futures_core::Stream;
use tokio::time::{Instant, sleep, sleep_until};

/// Counts how often a waiting task is woken.
#[derive(Default)]
struct WakeUps(AtomicUsize);

impl Wake for WakeUps {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Timers polled manually by a task that records its wake-ups.
struct Task {
    timers: Timers<&'static str>,
    wake: Arc<WakeUps>,
}

impl Task {
    fn new() -> Self {
        Self {
            timers: Timers::new(),
            wake: Arc::default(),
        }
    }

    /// Polls the stream: `Some(None)` means that it ended, `None` that it is pending.
    fn poll(&mut self) -> Option<Option<&'static str>> {
        self.wake.0.store(0, Ordering::Relaxed);
        let waker = Waker::from(self.wake.clone());
        match Pin::new(&mut self.timers).poll_next(&mut Context::from_waker(&waker)) {
            Poll::Ready(expired) => Some(expired.map(|expired| expired.value)),
            Poll::Pending => None,
        }
    }

    fn waits(&mut self) -> bool {
        self.poll().is_none()
    }

    fn is_woken(&self) -> bool {
        self.wake.0.load(Ordering::Relaxed) > 0
    }

    fn insert(&mut self, delay: u64, value: &'static str) -> dueq::wheel::Key {
        self.timers
            .insert(ms(delay), value)
            .expect("the limit is not reached")
    }
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[tokio::test(start_paused = true)]
async fn a_timer_wakes_its_task_and_fires_on_time() {
    let mut task = Task::new();
    task.insert(5, "foo");
    assert!(task.waits());
    sleep(ms(4)).await;
    assert!(!task.is_woken());
    sleep(ms(2)).await;
    assert!(task.is_woken());
    assert_eq!(task.poll(), Some(Some("foo")));
    assert_eq!(
        task.poll(),
        Some(None),
        "the stream ends while there are no timers"
    );
    task.insert(1, "bar");
    assert!(task.waits(), "and continues after an insert");
}

#[tokio::test(start_paused = true)]
async fn no_timer_fires_early_by_a_fraction_of_a_millisecond() {
    let mut timers = Timers::new();
    sleep(Duration::from_micros(300)).await;
    for micros in [
        1,
        700,
        999,
        1_000,
        1_001,
        63_999,
        64_000,
        4_095_999,
        4_096_001,
        300_000_001,
    ] {
        let when = Instant::now() + Duration::from_micros(micros);
        timers
            .insert_at(when, ())
            .expect("the limit is not reached");
        let expired = timers.next().await.expect("one timer");
        assert!(Instant::now() >= when, "{micros} us");
        assert!(
            when <= expired.deadline && expired.deadline < when + ms(1),
            "{micros} us"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn due_timers_fire_in_the_order_of_deadlines() {
    let mut task = Task::new();
    for (delay, value) in [
        (234, "4th"),
        (2, "1st"),
        (299_008, "5th"),
        (60, "3rd"),
        (10, "2nd"),
    ] {
        task.insert(delay, value);
    }
    sleep(ms(300_000)).await;
    for value in ["1st", "2nd", "3rd", "4th", "5th"] {
        assert_eq!(task.poll(), Some(Some(value)));
    }
}

#[tokio::test(start_paused = true)]
async fn insert_in_the_past_fires_at_once_and_wakes_the_task() {
    let mut task = Task::new();
    let start = Instant::now();
    sleep(ms(10)).await;
    task.insert(200, "later");
    assert!(task.waits());
    sleep(ms(80)).await;
    assert!(task.timers.insert_at(start, "past").is_ok());
    assert!(task.is_woken());
    assert_eq!(task.poll(), Some(Some("past")));
}

#[tokio::test(start_paused = true)]
async fn insert_before_the_first_timer_wakes_the_task_earlier() {
    let mut task = Task::new();
    let start = Instant::now();
    task.insert(10_000, "foo");
    assert!(task.waits());
    task.insert(600, "bar");
    assert!(task.is_woken());
    assert!(task.waits());
    sleep_until(start + ms(601)).await;
    assert!(task.is_woken());
    assert_eq!(task.poll(), Some(Some("bar")));
}

#[tokio::test(start_paused = true)]
async fn insert_after_the_first_timer_does_not_wake_the_task() {
    let mut task = Task::new();
    task.insert(100, "first");
    assert!(task.waits());
    let key = task.insert(20_000, "second");
    assert!(task.timers.reset(key, ms(30_000)));
    assert!(task.timers.remove(key).is_some());
    assert!(!task.is_woken());
}

#[tokio::test(start_paused = true)]
async fn insert_while_due_timers_are_taken_loses_none() {
    let mut task = Task::new();
    for value in ["1", "2", "3"] {
        task.insert(100, value);
    }
    assert!(task.waits());
    sleep(ms(101)).await;
    let mut taken = Vec::new();
    while taken.len() < 3 {
        taken.extend(task.poll().flatten());
        task.insert(500, "later");
    }
    taken.sort_unstable();
    assert_eq!(taken, ["1", "2", "3"]);
    assert!(task.waits());
}

#[tokio::test(start_paused = true)]
async fn removing_the_last_timer_and_clear_wake_the_task() {
    for clear in [false, true] {
        let mut task = Task::new();
        let key = task.insert(10_000, "foo");
        assert!(task.waits());
        if clear {
            task.timers.clear();
        } else {
            assert_eq!(task.timers.remove(key), Some("foo"));
        }
        assert!(task.is_woken());
        assert_eq!(task.poll(), Some(None));
    }
}

#[tokio::test(start_paused = true)]
async fn drain_returns_remaining_timers_and_wakes_the_task() {
    let mut task = Task::new();
    task.insert(10, "due");
    task.insert(10_000, "far");
    assert!(task.waits());
    sleep(ms(11)).await;
    assert_eq!(task.poll(), Some(Some("due")));
    assert!(task.waits());
    assert_eq!(task.timers.drain().collect::<Vec<_>>(), ["far"]);
    assert!(task.is_woken());
    assert_eq!(task.poll(), Some(None));
}

#[tokio::test(start_paused = true)]
async fn an_expired_timer_that_was_not_taken_can_be_removed() {
    let mut task = Task::new();
    // Both timers are in the same slot, at the border of a level.
    let keys = [task.insert(64, "foo"), task.insert(64, "bar")];
    sleep(ms(80)).await;
    let taken = task.poll().flatten().expect("one of them");
    let left = if taken == "foo" { keys[1] } else { keys[0] };
    assert!(task.timers.remove(left).is_some_and(|value| value != taken));
    assert_eq!(task.poll(), Some(None));
}

#[tokio::test(start_paused = true)]
async fn reset_to_later_does_not_fire_at_the_old_time() {
    let mut task = Task::new();
    let start = Instant::now();
    let key = task.insert(5, "foo");
    assert!(task.waits());
    sleep_until(start + ms(1)).await;
    assert!(task.timers.reset_at(key, start + ms(10)));
    for at in 2..10 {
        sleep_until(start + ms(at)).await;
        assert!(task.waits(), "at {at} ms");
    }
    sleep_until(start + ms(11)).await;
    assert!(task.is_woken());
    assert_eq!(task.poll(), Some(Some("foo")));
}

#[tokio::test(start_paused = true)]
async fn reset_to_earlier_twice_wakes_the_task_in_time() {
    let mut task = Task::new();
    let start = Instant::now();
    let key = task.insert(200, "foo");
    assert!(task.waits());
    for at in [50, 40] {
        assert!(task.timers.reset_at(key, start + ms(at)));
        assert!(task.is_woken());
        assert!(task.waits());
    }
    sleep_until(start + ms(41)).await;
    assert!(task.is_woken());
    assert_eq!(task.poll(), Some(Some("foo")));
}

#[tokio::test(start_paused = true)]
async fn reset_to_the_past_wakes_a_waiting_task() {
    let mut task = Task::new();
    sleep(ms(1_000)).await;
    let key = task.insert(10_000, "foo");
    assert!(task.waits());
    assert!(task.timers.reset_at(key, Instant::now() - ms(100)));
    assert!(task.is_woken());
    assert_eq!(task.poll(), Some(Some("foo")));
}

#[tokio::test(start_paused = true)]
async fn reset_of_an_expired_timer_postpones_it() {
    let mut task = Task::new();
    sleep(ms(1_000)).await;
    let start = Instant::now();
    let key = task
        .timers
        .insert_at(start - ms(100), "foo")
        .expect("the limit is not reached");
    assert!(task.timers.reset_at(key, start + ms(100)));
    assert!(task.timers.reset_at(key, start + ms(50)));
    assert!(task.waits());
    sleep_until(start + ms(60)).await;
    assert!(task.is_woken());
    assert_eq!(task.poll(), Some(Some("foo")));
}

#[tokio::test(start_paused = true)]
async fn postponing_the_first_timer_makes_the_second_next() {
    let mut task = Task::new();
    let start = Instant::now();
    let first = task.insert(200, "one");
    task.insert(250, "two");
    assert!(task.waits());
    assert!(task.timers.reset_at(first, start + ms(300)));
    sleep_until(start + ms(251)).await;
    assert_eq!(task.poll(), Some(Some("two")));
    assert!(task.waits());
    sleep_until(start + ms(301)).await;
    assert_eq!(task.poll(), Some(Some("one")));
}

#[tokio::test(start_paused = true)]
async fn dropped_next_future_loses_no_timer() {
    let mut timers = Timers::new();
    for n in 0..10 {
        timers
            .insert(ms(10 * n + 5), n)
            .expect("the limit is not reached");
    }
    let (mut taken, mut dropped) = (Vec::new(), 0);
    while taken.len() < 10 {
        tokio::select! {
            expired = timers.next() => taken.push(expired.expect("timers").value),
            () = sleep(ms(3)) => dropped += 1,
        }
    }
    assert_eq!(taken, (0..10).collect::<Vec<_>>());
    assert!(dropped > 0, "some waits were dropped");
}

#[tokio::test(start_paused = true)]
async fn a_long_drain_leaves_other_tasks_their_turns() {
    let mut timers = Timers::new();
    for _ in 0..200_000 {
        timers
            .insert(ms(1_000), ())
            .expect("the limit is not reached");
    }
    sleep(ms(2_000)).await;
    let drained = tokio::spawn(async move {
        let mut taken = 0;
        while timers.next().await.is_some() {
            taken += 1;
        }
        taken
    });
    let mut turns = 0;
    while !drained.is_finished() {
        turns += 1;
        tokio::task::yield_now().await;
    }
    assert!(turns > 100, "{turns} turns");
    assert_eq!(drained.await.expect("it ended"), 200_000);
}

#[tokio::test(start_paused = true)]
async fn the_longest_delay_is_accepted() {
    let mut task = Task::new();
    let far = task.insert(u64::MAX, "far");
    let never = task
        .timers
        .insert(Duration::MAX, "never")
        .expect("the limit is not reached");
    assert!(task.waits());
    sleep(Duration::from_secs(800 * 86_400)).await;
    assert!(task.waits());
    task.insert(5, "near");
    assert_eq!(
        task.timers.next().await.map(|expired| expired.value),
        Some("near")
    );
    assert!(task.timers.remove(far).is_some() && task.timers.remove(never).is_some());
}

#[tokio::test(start_paused = true)]
async fn methods_return_none_or_false_for_a_stale_key() {
    let mut timers = Timers::new();
    let key = timers.insert(ms(1), 'a').expect("the limit is not reached");
    assert!(
        timers
            .next()
            .await
            .is_some_and(|expired| expired.key == key)
    );
    assert!(!timers.reset(key, ms(1)) && !timers.reset_at(key, Instant::now()));
    assert_eq!(
        (timers.get(key), timers.deadline(key), timers.len()),
        (None, None, 0)
    );
    assert_eq!(timers.get_mut(key), None);
    assert_eq!(timers.remove(key), None);
}

#[tokio::test]
async fn timers_can_move_to_another_task() {
    let mut timers = Timers::new();
    timers.insert(ms(1), 7).expect("the limit is not reached");
    let expired = tokio::spawn(async move { pin!(timers).next().await });
    assert_eq!(
        expired
            .await
            .expect("it ended")
            .map(|expired| expired.value),
        Some(7)
    );
}
