//! How the queues of one worker share its handlers over time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use dueq::{Delivery, Share};

use crate::support::{LONG, Setup, messages, push_all, setup, until};

/// What the handlers of each queue have done.
#[derive(Clone, Default)]
struct Work(Arc<Mutex<BTreeMap<String, Done>>>);

#[derive(Clone, Default, Debug)]
struct Done {
    started: usize,
    ended: Duration,
    running: Vec<Instant>,
    /// By how much the sleeps of the handlers took longer than they should.
    late: Duration,
}

impl Done {
    /// Handler time, also of those that run.
    fn seconds(&self) -> f64 {
        let running = self.running.iter().map(Instant::elapsed).sum::<Duration>();
        (self.ended + running).as_secs_f64()
    }
}

impl Work {
    fn change<T>(&self, queue: &str, change: impl FnOnce(&mut Done) -> T) -> T {
        let mut work = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(work.entry(queue.to_owned()).or_default())
    }

    /// A handler that sleeps.
    fn handler(
        &self,
        time: Duration,
    ) -> impl Fn(Delivery) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync + use<>
    {
        let work = self.clone();
        move |delivery: Delivery| {
            let (work, queue) = (work.clone(), delivery.queue().to_owned());
            Box::pin(async move {
                let start = Instant::now();
                work.change(&queue, |done| {
                    done.started += 1;
                    done.running.push(start);
                });
                tokio::time::sleep(time).await;
                work.change(&queue, |done| {
                    done.running.retain(|running| *running != start);
                    done.ended += start.elapsed();
                    done.late += start.elapsed().saturating_sub(time);
                });
            })
        }
    }

    fn snapshot(&self) -> BTreeMap<String, Done> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A queue: how many messages it has, its weight, and how long a handler takes.
type Load = (usize, u32, Duration);

/// Runs one worker for these queues, until `is_enough`.
async fn work(
    concurrency: usize,
    loads: &[Load],
    is_enough: impl Fn(&BTreeMap<String, Done>) -> bool,
) -> Result<Vec<Done>> {
    let Setup { client, .. } = &setup().await?;
    let work = Work::default();
    let mut worker = client.worker().lease(LONG).concurrency(concurrency);
    let name = |number: usize| format!("q{number:03}");
    for (number, (count, weight, time)) in loads.iter().enumerate() {
        let queue = client.queue(&name(number))?;
        push_all(&queue, messages(*count)).await?;
        worker = worker.queue_with(&queue, Share::weight(*weight), work.handler(*time));
    }
    let worker = worker.spawn();
    let done = until("enough work", async || Ok(work.snapshot()), is_enough).await?;
    worker.abort();
    worker.wait().await?;
    let of = |number| done.get(&name(number)).cloned().unwrap_or_default();
    Ok((0..loads.len()).map(of).collect())
}

fn started(work: &BTreeMap<String, Done>) -> usize {
    work.values().map(|done| done.started).sum()
}

const MS: Duration = Duration::from_millis(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_queues_take_turns_for_fewer_handlers() -> Result<()> {
    let loads = vec![(1_000, 1, 10 * MS); 4];
    let done = work(2, &loads, |work| started(work) >= 200).await?;
    // The test may look late, so a count alone says nothing. A fair part is 25 %.
    let all: usize = done.iter().map(|queue| queue.started).sum();
    for queue in &done {
        assert!((15..=35).contains(&(100 * queue.started / all)), "{done:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weights_hold_for_a_single_handler() -> Result<()> {
    let loads = [(1_000, 1, 10 * MS), (2_000, 10, 10 * MS)];
    let done = work(1, &loads, |work| started(work) >= 110).await?;
    // A fair part is 9 %.
    let percent = 100 * done[0].started / (done[0].started + done[1].started);
    assert!((4..=20).contains(&percent), "{done:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_queues_than_handlers_all_get_some() -> Result<()> {
    let loads = vec![(20, 1, 50 * MS); 80];
    let done = work(64, &loads, |work| started(work) >= 480).await?;
    for queue in &done {
        assert!(queue.started > 0, "{done:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_time_follows_the_weights() -> Result<()> {
    let times = [20 * MS, 100 * MS, 500 * MS];
    let loads = [(4_000, 6, times[0]), (800, 3, times[1]), (100, 1, times[2])];
    let all = |work: &BTreeMap<String, Done>| work.values().map(Done::seconds).sum::<f64>();
    let done = work(20, &loads, |work| all(work) >= 100.0).await?;
    let all: f64 = done.iter().map(Done::seconds).sum();
    let percents: Vec<_> = done
        .iter()
        .map(|queue| 100.0 * queue.seconds() / all)
        .collect();
    println!("handler time of 6:3:1 by queue: {percents:.1?} %");
    for ((percent, queue), (time, fair)) in percents
        .iter()
        .zip(&done)
        .zip(times.iter().zip([60.0, 30.0, 10.0]))
    {
        // The node charges a handler also for the wait for a thread. On a busy machine that is about
        // as long as its sleep takes longer.
        let late = queue.late.as_secs_f64() / (queue.started as f64 * time.as_secs_f64());
        let off = 3.0 + 100.0 * done.iter().map(|_| late).fold(0.0, f64::max);
        assert!((percent - fair).abs() <= off, "{percents:?}, {off}");
    }
    Ok(())
}
