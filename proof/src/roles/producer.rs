//! Pushes the messages of a plan at its rate, and records the outcomes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use dueq::outcomes::PushOutcome;
use dueq::{Due, Durability, Message, Queue, Receipt};
use fastrand::Rng;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Options, Pace, Stop};
use crate::history::{Verb, now_us};
use crate::queues::{Bursts, Planned, is_partitioned, planned_queues};
use crate::recorder::{Diary, outcome};
use crate::run::stage::confirmed_sign;
use crate::workload::{Plan, Push, Step, hash};

const RATE: u32 = 2_000;
/// The most messages in flight: if the server is slow, the producer falls behind, and calls do not
/// pile up.
const IN_FLIGHT: usize = 2_048;
/// The most messages of a storm in flight.
const STORM_BATCH: u64 = 1_000;
/// How long a push waits for its replica's confirmation.
const REPLICA_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) async fn run(
    options: &Options,
    queues: Vec<Queue>,
    diary: &Diary,
    mut stop: Stop,
) -> Result<()> {
    let planned = planned_queues(queues.len());
    let plan = |queue: &Planned| {
        Plan::new(
            options.seed,
            &options.name,
            queue,
            options.poison_every,
            options.once,
        )
        .for_older(options.older.is_some())
    };
    let bursts = Bursts::new(options.seed, options.epoch_us);
    let mut producer = Producer {
        plans: planned.iter().map(plan).collect(),
        planned,
        queues,
        bursts,
        rng: Rng::with_seed(options.seed ^ hash(options.name.as_bytes())),
        diary: diary.clone(),
        replicated_while: options.replicated_while.clone(),
        room: Arc::new(Semaphore::new(IN_FLIGHT)),
        pushes: JoinSet::new(),
    };
    tokio::select! {
        () = super::stopped(&mut stop) => {}
        () = async {
            match (options.storm, options.due_ms) {
                (Some(number), Some(due_ms)) => producer.storm(number, due_ms).await,
                _ => producer.follow(options).await,
            }
        } => {}
    }
    // Wait for the pushes in flight: the library limits the time of each.
    while producer.pushes.join_next().await.is_some() {}
    Ok(())
}

struct Producer {
    planned: &'static [Planned],
    queues: Vec<Queue>,
    /// The plan of each queue.
    plans: Vec<Plan>,
    bursts: Bursts,
    rng: Rng,
    diary: Diary,
    replicated_while: Option<PathBuf>,
    room: Arc<Semaphore>,
    pushes: JoinSet<()>,
}

impl Producer {
    async fn follow(&mut self, options: &Options) {
        let mut pace = Pace::new(options.rate.unwrap_or(RATE));
        let mut later: BTreeMap<(Instant, u64), (usize, Push)> = BTreeMap::new();
        let (mut pushed, mut number) = (0, 0);
        while options.messages == 0 || pushed < options.messages {
            let mut owed = pace.owed(1).await;
            let now = Instant::now();
            while owed > 0 {
                let (place, step) = match later.first_entry() {
                    Some(first) if first.key().0 <= now => {
                        let (place, push) = first.remove();
                        let step = Step {
                            pushes: vec![push],
                            later: Vec::new(),
                        };
                        (place, step)
                    }
                    _ => self.step(),
                };
                for (pause, push) in step.later {
                    number += 1;
                    later.insert((now + pause, number), (place, push));
                }
                let size = u64::try_from(step.pushes.len()).unwrap_or(0);
                self.push(place, step.pushes).await;
                pace.did(size);
                pushed += size;
                owed = owed.saturating_sub(size);
            }
        }
        for ((when, _), (place, push)) in later {
            tokio::time::sleep_until(when).await;
            self.push(place, vec![push]).await;
        }
    }

    /// The next step of some queue, chosen in proportion to its traffic. A queue that workers find
    /// by a pattern gets no message during its silences.
    fn step(&mut self) -> (usize, Step) {
        let is_burst = self.bursts.is_burst(now_us());
        let traffic = |queue: &Planned| match (queue.is_found, is_burst) {
            (true, false) => 0,
            // All its traffic comes within the bursts, so it is multiplied there.
            (true, true) => 4 * queue.traffic,
            (false, _) => queue.traffic,
        };
        let all: u32 = self.planned.iter().map(traffic).sum();
        let mut chosen = self.rng.u32(0..all.max(1));
        let place = self.planned.iter().position(|queue| {
            let of_queue = traffic(queue);
            let is_here = chosen < of_queue;
            chosen = chosen.saturating_sub(of_queue);
            is_here
        });
        let place = place.unwrap_or(0);
        (place, self.plans[place].step(self.diary.server_now_ms()))
    }

    async fn storm(&mut self, number: u64, due_ms: u64) {
        let mut pushed = 0;
        while pushed < number {
            let end = number.min(pushed + STORM_BATCH);
            let pushes = (pushed..end)
                .map(|place| self.plans[0].plain(Due::AtMs(due_ms + place % 1_000)))
                .collect();
            self.push(0, pushes).await;
            pushed = end;
        }
    }

    /// Starts the pushes of a step; waits until there is room for them, and not for their answers.
    async fn push(&mut self, place: usize, pushes: Vec<Push>) {
        let size = u32::try_from(pushes.len().min(IN_FLIGHT)).unwrap_or(1);
        // The semaphore is never closed.
        let Ok(room) = Arc::clone(&self.room).acquire_many_owned(size).await else {
            return;
        };
        while self.pushes.try_join_next().is_some() {}
        let (mut queue, diary, mut replicas) = (self.queues[place].clone(), self.diary.clone(), 0);
        let sign = self.replicated_while.clone().filter(|sign| sign.exists());
        if sign.is_some() {
            replicas = 1;
            queue = queue.durability(Durability::Replicated {
                replicas,
                timeout: REPLICA_TIMEOUT,
            });
        }
        if is_partitioned(self.planned[place].name) && self.rng.u32(0..3) == 0 {
            // The library chooses the ids, for the partition with an open batch. The caller does
            // not know them before.
            self.pushes.spawn(async move {
                let message = |push: &Push| Message::new(vec![b'-'; push.bytes]).due(push.due);
                drop(queue.push_many(pushes.iter().map(message)).await);
                drop(room);
            });
            return;
        }
        self.pushes.spawn(async move {
            let ids = pushes.iter().map(|push| push.id.clone()).collect();
            let op = diary.asked_durably(queue.name(), Verb::Push, ids, replicas);
            let results = match &pushes[..] {
                [push] => vec![queue.push_message(push.message()).await],
                _ => queue.push_many(pushes.iter().map(Push::message)).await,
            };
            let is_confirmed = results.iter().any(Result::is_ok);
            diary.told(
                op,
                results
                    .into_iter()
                    .map(|result| outcome(result, word))
                    .collect(),
            );
            if let Some(sign) = sign.filter(|_| is_confirmed) {
                // If the file cannot be written, the failover waits in vain and reports that.
                let _ = std::fs::write(confirmed_sign(&sign), "");
            }
            drop(room);
        });
    }
}

pub(super) fn word(receipt: Receipt) -> String {
    match receipt.outcome() {
        PushOutcome::Created => "CREATED".to_owned(),
        PushOutcome::Exists(state) => format!("EXISTS {state}"),
        PushOutcome::Moved => "MOVED".to_owned(),
        PushOutcome::Finished => "FINISHED".to_owned(),
        other => format!("{other:?}"),
    }
}
