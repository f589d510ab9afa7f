//! The actions of an operator on a queue in use: each is short and then undone.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{Error, MessageState, Queue, QueueLimits};
use fastrand::Rng;

use super::{Options, Stop};
use crate::history::Verb;
use crate::queues::{Limit, planned_queues};
use crate::recorder::{Diary, outcome};
use crate::stored;
use crate::workload::{POISON, hash};

/// The pause between two actions, in ms.
const PAUSE_MS: std::ops::Range<u64> = 100..300;
/// How long deliveries are paused, or pushes are limited, in ms.
const SHORT_MS: std::ops::Range<u64> = 40..200;
/// How long a queue is closed, in ms.
const CLOSED_MS: std::ops::Range<u64> = 40..700;
/// Above this number of messages a queue is not purged, because the fault "storm" needs its
/// messages.
const PURGED_BELOW: u64 = 5_000;
const PAGE: usize = 100;
/// The number of messages on a page that are read singly.
const READ: usize = 12;
/// The default limit of payloads of a queue.
const PAYLOAD_LIMIT: u32 = 1_048_576;
const MAX_ATTEMPTS: u32 = 20;
const MAX_CRASHES: u32 = 5;

pub(super) async fn run(
    options: &Options,
    queues: Vec<Queue>,
    diary: &Diary,
    mut stop: Stop,
) -> Result<()> {
    let rng = Rng::with_seed(options.seed ^ hash(options.name.as_bytes()));
    let mut operator = Operator {
        queue: queues.first().context("no queues")?.clone(),
        limit: None,
        diary: diary.clone(),
        rng,
    };
    // Makes each action once in each queue before repeating any.
    let mut deck: Vec<(usize, Act)> = Vec::new();
    loop {
        // An earlier process may have been killed within an action, and a failover may have undone
        // the end of one.
        let mut restored = true;
        for (queue, planned) in queues.iter().zip(planned_queues(queues.len())) {
            operator.queue = queue.clone();
            operator.limit = planned.limit;
            restored &= warn("restoring", operator.restore().await);
        }
        let is_over = *stop.borrow();
        if is_over && restored {
            return Ok(());
        }
        if restored {
            if deck.is_empty() {
                for place in 0..queues.len() {
                    deck.extend(Act::ALL.map(|act| (place, act)));
                }
                operator.rng.shuffle(&mut deck);
                // More often than other actions, because a pause is short; and once at the start in
                // the busy queues. Not in the queue with a reserve: while it is paused, other
                // queues may take its handlers, and the checker could not judge the reserve.
                let planned = planned_queues(queues.len());
                for place in (0..queues.len())
                    .rev()
                    .filter(|place| planned[*place].reserve == 0)
                {
                    deck.insert(deck.len() / 2, (place, Act::Pause));
                    deck.insert(deck.len() / 2, (place, Act::Close));
                    deck.push((place, Act::Pause));
                    deck.push((place, Act::Close));
                }
            }
            if let Some((place, act)) = deck.pop() {
                operator.queue = queues[place].clone();
                operator.limit = planned_queues(queues.len())[place].limit;
                warn("an act", operator.act(act).await);
            }
        }
        let pause = Duration::from_millis(operator.rng.u64(PAUSE_MS));
        tokio::select! {
            () = super::stopped(&mut stop), if !is_over => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Act {
    Pause,
    Close,
    LimitMessages,
    LimitPayloads,
    Purge(MessageState),
    RequeueOldest,
    Examine,
    Repair,
    Read(MessageState),
}

impl Act {
    const ALL: [Self; 12] = [
        Self::LimitMessages,
        Self::LimitPayloads,
        Self::Purge(MessageState::Scheduled),
        Self::Purge(MessageState::Ready),
        Self::Purge(MessageState::Dead),
        Self::RequeueOldest,
        Self::Examine,
        Self::Repair,
        Self::Read(MessageState::Scheduled),
        Self::Read(MessageState::Ready),
        Self::Read(MessageState::Leased),
        Self::Read(MessageState::Dead),
    ];
}

struct Operator {
    queue: Queue,
    /// The limit that the plan gives to this queue.
    limit: Option<Limit>,
    diary: Diary,
    rng: Rng,
}

impl Operator {
    /// Ends a pause, lifts temporary limits, and sets the limit of the plan, which an emptied store
    /// lacks.
    async fn restore(&self) -> Result<(), Error> {
        let stats = self.queue.stats().await?;
        if stats.paused {
            self.queue.resume().await?;
        }
        if stats.max_messages != 0
            || stats.max_payload_bytes < u64::from(PAYLOAD_LIMIT) && stats.max_payload_bytes != 0
        {
            self.queue
                .configure(
                    QueueLimits::new()
                        .max_messages(None)
                        .max_payload_bytes(PAYLOAD_LIMIT),
                )
                .await?;
        }
        let has_limit = stats.rate.is_some() || stats.max_leased > 0;
        if let Some(limit) = self.limit.filter(|_| !has_limit) {
            self.queue.configure(limit.limits()).await?;
        }
        Ok(())
    }

    async fn act(&mut self, act: Act) -> Result<(), Error> {
        match act {
            Act::Pause => {
                self.queue.pause().await?;
                self.shortly().await;
                self.queue.resume().await
            }
            // Mostly lets the queue open without a resume, while other actions go on.
            Act::Close => {
                let period = Duration::from_millis(self.rng.u64(CLOSED_MS));
                self.queue.pause_for(period).await?;
                if self.rng.u32(0..4) == 0 {
                    self.shortly().await;
                    self.queue.resume().await?;
                }
                Ok(())
            }
            // With this limit some of the following pushes fit, and the others do not.
            Act::LimitMessages => {
                let stats = self.queue.stats().await?;
                let most =
                    stats.scheduled + stats.ready + stats.leased + stats.dead + self.rng.u64(1..50);
                self.queue
                    .configure(
                        QueueLimits::new()
                            .max_messages(Some(most))
                            .max_attempts(MAX_ATTEMPTS),
                    )
                    .await?;
                self.shortly().await;
                self.restore().await
            }
            Act::LimitPayloads => {
                let limits = QueueLimits::new()
                    .max_payload_bytes(self.rng.u32(200..20_000))
                    .max_crashes(MAX_CRASHES);
                self.queue.configure(limits).await?;
                self.shortly().await;
                self.restore().await
            }
            Act::Purge(MessageState::Scheduled)
                if self.queue.stats().await?.scheduled > PURGED_BELOW =>
            {
                Ok(())
            }
            Act::Purge(state) => self.queue.purge(state).await.map(drop),
            Act::RequeueOldest => {
                self.cancel_poison().await?;
                self.queue.requeue_all().await.map(drop)
            }
            Act::Examine => self.queue.examine(false).await.map(drop),
            Act::Repair => self.queue.examine(true).await.map(drop),
            Act::Read(state) => self.read(state).await,
        }
    }

    async fn shortly(&mut self) {
        tokio::time::sleep(Duration::from_millis(self.rng.u64(SHORT_MS))).await;
    }

    /// Cancels dead poison messages: if one were requeued, it would kill six more workers.
    async fn cancel_poison(&self) -> Result<(), Error> {
        let mut cursor = None;
        loop {
            let page = self
                .queue
                .list(MessageState::Dead, cursor.as_ref(), 1_000)
                .await?;
            for message in page
                .messages
                .iter()
                .filter(|message| message.id.ends_with(POISON.as_bytes()))
            {
                let id = String::from_utf8_lossy(&message.id).into_owned();
                let op = self
                    .diary
                    .asked(self.queue.name(), Verb::Cancel, vec![id.clone()]);
                let told = outcome(
                    self.queue.cancel_dead(&id).await,
                    super::canceller::cancelled,
                );
                self.diary.told(op, vec![told]);
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    /// Reads some messages in one state, which may have changed meanwhile, and one that does not
    /// exist.
    async fn read(&mut self, state: MessageState) -> Result<(), Error> {
        let mut found = self.queue.list(state, None, PAGE).await?.messages;
        self.rng.shuffle(&mut found);
        let ids = found
            .iter()
            .take(READ)
            .map(|message| String::from_utf8_lossy(&message.id).into_owned());
        for id in ids.chain([format!("absent-{}", self.rng.u32(..))]) {
            let op = self
                .diary
                .asked(self.queue.name(), Verb::Get, vec![id.clone()]);
            let told = outcome(self.queue.get(&id).await, |found| {
                stored::of_library(&id, found.as_ref())
            });
            self.diary.told(op, vec![told]);
        }
        Ok(())
    }
}

fn warn(what: &str, result: Result<(), Error>) -> bool {
    if let Err(error) = &result {
        tracing::warn!(%error, "{what} failed");
    }
    result.is_ok()
}
