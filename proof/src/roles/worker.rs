//! Handles messages well or badly, as decided by their ids, and records each start and end of a
//! handler.

use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dueq::{Client, Delivery, Due, Queue, Retry, Settlement};

use tokio::signal::unix::Signal;
use tokio::task::JoinSet;

use super::serving::{serves, share, throttles};
use super::settling::{short, soon};
use super::{Options, Stop, by_hand};
use crate::broken::Program;
use crate::history::{Event, Verb};
use crate::payload;
use crate::queues::{Limit, PARKING, PATTERN, TICKS, served_queues};
use crate::recorder::Diary;
use crate::ticks::WINDOWED;
use crate::workload::{AGAIN, POISON, Push, hash, trace_parent};

/// Runs a worker. At each SIGUSR2 it removes a queue, and adds it again later.
pub(super) async fn run(
    options: &Options,
    client: &Client,
    queues: Vec<Queue>,
    diary: &Diary,
    mut stop: Stop,
    mut changes: Signal,
) -> Result<()> {
    let planned = served_queues(options.queues);
    let (lease, mut by_hand) = (Duration::from_millis(options.lease_ms), JoinSet::new());
    let time_limit = Duration::from_millis(options.time_limit_ms);
    let mut worker = client
        .worker()
        .concurrency(options.concurrency)
        .lease(lease)
        .time_limit(time_limit)
        .grace(time_limit)
        .parking(PARKING)
        .retry(Retry::exponential(
            Duration::from_millis(20),
            Duration::from_secs(2),
        )?);
    if options.broken == Some(Program::OrderWithoutTurns) {
        worker = worker.strict(Duration::MAX);
    }
    let (mut served, mut found) = (Vec::new(), Vec::new());
    for (queue, planned) in queues.iter().zip(planned) {
        let notes = Arc::new(Notes {
            queue: queue.clone(),
            diary: diary.clone(),
            seed: options.seed,
            lease,
            throttles: throttles(planned),
            follows: !options.url.contains("cluster://"),
        });
        // Not in queues found by a pattern: a claim by hand would take messages that their nodes
        // must find.
        if !planned.is_found {
            let (queue, notes, stop) = (queue.clone(), Arc::clone(&notes), stop.clone());
            // A claim by hand holds its messages for long, so a few of them fill this queue.
            let per_second = match planned.limit {
                Some(Limit::Leased(_)) => options.by_hand.div_ceil(10),
                _ => options.by_hand,
            };
            by_hand.spawn(by_hand::run(queue, notes, lease, per_second, stop));
        }
        if planned.is_found {
            found.push((planned, notes));
        } else {
            worker = worker.queue_with(queue, share(planned), handler(&notes));
            served.push((planned, queue.clone(), notes));
        }
    }
    if let Some((planned, _)) = found.first() {
        let (pattern, share) = (client.pattern(PATTERN)?, share(planned));
        let notes = found.into_iter().map(|(_, notes)| notes).collect();
        worker = worker.pattern_with(&pattern, share, handler_of(Arc::new(notes)));
    }
    diary.write(&serves(options, planned));
    let worker = worker.spawn()?;
    let mut changed = 0;
    loop {
        tokio::select! {
            () = super::stopped(&mut stop) => break,
            ended = worker.wait() => return Ok(ended?),
            _ = changes.recv() => {}
        }
        // Never the queue with a reserve: other queues could take its handlers meanwhile.
        let some: Vec<_> = served
            .iter()
            .filter(|(planned, ..)| planned.reserve == 0)
            .collect();
        let (planned, queue, notes) = some[changed % some.len()];
        changed += 1;
        worker.remove(planned.name).await?;
        writeln!(std::io::stdout(), "removed {}", planned.name)?;
        tokio::time::sleep(Duration::from_millis(fastrand::u64(REMOVED_MS))).await;
        worker
            .add_with(queue, share(planned), handler(notes))
            .await?;
        writeln!(std::io::stdout(), "added {}", planned.name)?;
    }
    worker.shutdown().await?;
    while let Some(ended) = by_hand.join_next().await {
        ended?;
    }
    Ok(())
}

/// A due time that no queue accepts: in the year 2130.
const TOO_FAR_MS: u64 = 5_049_000_000_000;

/// How long a queue stays removed from a worker, in ms.
const REMOVED_MS: std::ops::Range<u64> = 500..3_000;

/// The least time for which the first handler of a message with a window runs.
const WINDOWED_TIME: Duration = Duration::from_secs(2);

fn handler(notes: &Arc<Notes>) -> impl Handler {
    handler_of(Arc::new(vec![Arc::clone(notes)]))
}

/// A handler for several queues: each delivery is recorded with the notes of its queue.
fn handler_of(notes: Arc<Vec<Arc<Notes>>>) -> impl Handler {
    move |delivery: Delivery| -> Handled {
        let mut of_queues = notes.iter();
        let notes = of_queues.find(|notes| notes.queue.name() == delivery.queue());
        let notes = notes.map(Arc::clone);
        Box::pin(async move {
            let notes = notes.context("a delivery of a queue that no process serves")?;
            handle(&notes, &delivery).await
        })
    }
}

type Handled = Pin<Box<dyn Future<Output = Result<Settlement>> + Send>>;

trait Handler: Fn(Delivery) -> Handled + Clone + Send + Sync + 'static {}

impl<T: Fn(Delivery) -> Handled + Clone + Send + Sync + 'static> Handler for T {}

/// State shared by all handlers of the process.
pub(super) struct Notes {
    pub(super) queue: Queue,
    pub(super) diary: Diary,
    seed: u64,
    lease: Duration,
    /// Of 10,000 messages, this number throttle the queue, each attempt with a chance of one half.
    throttles: u64,
    /// Whether follow-ups are pushed. Not on a cluster, where they may belong to other partitions.
    follows: bool,
}

impl Notes {
    /// Records the start of a handler. If the message is poison, ends the process here.
    pub(super) fn started(&self, delivery: &Delivery, by_hand: bool) -> String {
        let id = delivery.id().into_owned();
        self.diary.write(&Event::Started {
            queue: self.queue.name().to_owned(),
            by_hand,
            id: id.clone(),
            version: payload::version_of(&id, delivery.payload()),
            attempt: delivery.attempt(),
            due_ms: delivery.due_ms(),
            started_us: delivery.started_us(),
        });
        self.judge_tick(&id, delivery);
        // If the library made the id, the message has neither a version nor a trace.
        let is_made = payload::version_of(&id, delivery.payload()) == 0;
        if !is_made && delivery.trace_parent() != trace_parent(&id).as_deref() {
            let what = format!(
                "{id} was delivered with the trace {:?}",
                delivery.trace_parent()
            );
            self.diary.write(&Event::Broken {
                queue: self.queue.name().to_owned(),
                what,
            });
        }
        if id.ends_with(POISON) {
            std::process::abort();
        }
        id
    }

    /// Checks that a handler of the schedules' queue gets the schedule and the fire of its tick.
    fn judge_tick(&self, id: &str, delivery: &Delivery) {
        let tick = delivery.tick();
        let told = tick.map(|tick| format!("{}@{}", tick.schedule, tick.nominal_ms));
        // A follow-up of a tick is not a tick, and neither is a pushed message.
        let is_tick = self.queue.name() == TICKS && id.contains('@') && !id.contains('/');
        let wanted = is_tick.then_some(id);
        if told.as_deref() != wanted {
            self.diary.write(&Event::Broken {
                queue: self.queue.name().to_owned(),
                what: format!("{id} was delivered as the tick {told:?}"),
            });
        }
    }

    pub(super) fn ended(&self, id: &str, wants: &str) {
        self.diary.write(&Event::Ended {
            queue: self.queue.name().to_owned(),
            id: id.to_owned(),
            wants: wants.to_owned(),
        });
    }

    /// Acks by hand, and pushes a new message with the id. Only once per id, because the new
    /// message is handled by the same rules.
    async fn ack_and_push(&self, id: &str, delivery: &Delivery) {
        let version = payload::version_of(id, delivery.payload());
        if self.settle(delivery, Verb::Ack).await == "OK" && version < AGAIN {
            super::settling::push_again(&self.queue, &self.diary, id).await;
        }
    }

    /// Acks by hand, and stores two messages with the ack; one of them is due at `due`.
    async fn follow(&self, id: &str, delivery: &Delivery, due: Due) {
        if !self.follows {
            return;
        }
        let child = |number: usize, due| {
            let push = Push::again(format!("{id}/{number}"), due);
            push.message()
        };
        let children = [child(1, Due::AfterMs(0)), child(2, due)];
        if let Err(error) = delivery.ack_push(children).await {
            tracing::info!(%error, "an ack with messages failed");
        }
    }

    /// Works for this time. If the lease is lost, records that and goes on.
    async fn work(&self, id: &str, delivery: &Delivery, time: Duration) {
        let end = tokio::time::Instant::now() + time;
        tokio::select! {
            () = tokio::time::sleep_until(end) => {}
            () = delivery.lost() => {
                self.diary.write(&Event::LostLease {
                    queue: self.queue.name().to_owned(),
                    id: id.to_owned(),
                });
                tokio::time::sleep_until(end).await;
            }
        }
    }
}

/// A running handler. It records its end before it returns, and also when its time limit drops it.
struct Open<'a> {
    notes: &'a Notes,
    id: String,
    ended: AtomicBool,
}

impl Open<'_> {
    fn end(&self, wants: &str) {
        if !self.ended.swap(true, Ordering::Relaxed) {
            self.notes.ended(&self.id, wants);
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.end("dropped");
    }
}

/// Handles a message: the id and the attempt decide how. Where a message could otherwise repeat
/// forever, chance decides too.
async fn handle(notes: &Notes, delivery: &Delivery) -> Result<Settlement> {
    let open = Open {
        notes,
        id: notes.started(delivery, false),
        ended: AtomicBool::new(false),
    };
    let id = &open.id;
    let choice = hash(id.as_bytes()) ^ notes.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (kind, detail) = (choice % 10_000, choice / 10_000);
    let (first, coin, quarters) = (
        delivery.attempt() == 1,
        fastrand::bool(),
        u32::try_from(kind % 4).unwrap_or(0),
    );
    let ended = |wants| open.end(wants);
    if first && id.starts_with(WINDOWED) {
        notes.work(id, delivery, WINDOWED_TIME).await; // runs long enough that audits meet it
    }
    match kind {
        0..100 => {
            notes
                .work(id, delivery, Duration::from_millis(detail % 50))
                .await
        }
        // Fails a few times; the limit of some of these messages is lower than that.
        100..200 if u64::from(delivery.attempt()) <= 1 + detail % 3 => {
            ended("retry");
            bail!("chaos");
        }
        200..220 if first => {
            ended("panic");
            panic!("chaos");
        }
        // Runs until the handler's time limit drops it.
        220..224 if first => notes.work(id, delivery, Duration::from_secs(3_600)).await,
        // Runs for longer than a lease, so the lease must be extended. If it is lost, the handler
        // still works to its end.
        224..232 if first => {
            notes
                .work(id, delivery, notes.lease * (4 + quarters) / 4)
                .await
        }
        232..260 if coin => {
            ended("again");
            return Ok(Settlement::again(Duration::from_millis(detail % 500)));
        }
        260..290 if coin => {
            ended("release");
            return Ok(Settlement::Release);
        }
        290..310 => {
            ended("bury");
            return Ok(Settlement::bury("chaos"));
        }
        // Only a schedule may make a tick.
        310..330 if notes.queue.name() != TICKS => notes.ack_and_push(id, delivery).await,
        330..340 if coin => drop(notes.settle(delivery, Verb::Again).await),
        340..350 => drop(notes.settle(delivery, Verb::Bury).await),
        350..360 if first => drop(notes.settle(delivery, Verb::Retry).await),
        // Releases the message, goes on while another process may have it, and settles once more:
        // the settlement must have no effect.
        360..400 if coin => {
            notes.settle(delivery, Verb::Release).await;
            tokio::time::sleep(Duration::from_millis(detail % 40)).await;
            notes.settle(delivery, Verb::Ack).await;
        }
        // A later handler of that message takes some time, so that the late settlement meets a
        // running lease.
        360..400 => {
            notes
                .work(id, delivery, Duration::from_millis(20 + detail % 40))
                .await
        }
        // The follow-ups have its options, and are handled like other messages.
        470..500 => notes.follow(id, delivery, Due::AfterMs(detail % 300)).await,
        500..560 if coin => {
            notes.settle(delivery, Verb::Release).await;
            tokio::time::sleep(Duration::from_millis(detail % 40)).await;
            notes.follow(id, delivery, Due::AfterMs(0)).await;
        }
        // The script refuses one of the follow-ups, and so stores none.
        560..600 => notes.follow(id, delivery, Due::AtMs(TOO_FAR_MS)).await,
        // These settlements charge no attempt, so chance must end the repetition.
        400..425 if coin => {
            ended("snooze");
            return Ok(Settlement::snooze(soon()));
        }
        425..430 if coin => drop(notes.settle(delivery, Verb::Snooze).await),
        430..470 if coin && kind < 430 + notes.throttles && detail % 3 > 0 => {
            ended("throttle");
            return Ok(Settlement::throttle(short()));
        }
        430..470 if coin && kind < 430 + notes.throttles => {
            drop(notes.settle(delivery, Verb::Throttle).await)
        }
        _ => {}
    }
    ended("ack");
    Ok(Settlement::Ack)
}
