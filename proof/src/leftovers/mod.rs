//! The messages that remain after draining. They are read from the keys, not by the scripts, which
//! may be broken.

mod keys;

use std::collections::HashMap;

use anyhow::{Context, Result};
use redis::aio::MultiplexedConnection;

use crate::claims::Claims;
use crate::history::{Event, LeftItem, State};

/// The number of entries in one read, and in one line of a history.
const STEP: usize = 1_000;
/// How many findings of one kind are reported one by one.
const EXAMPLES: usize = 20;
const WINDOW: usize = 1_000;

/// The work that must end before a queue has drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waiting {
    /// Scheduled messages that are due within the horizon; later ones are not awaited.
    pub scheduled: u64,
    pub ready: u64,
    /// Leases; one of them may cover many messages.
    pub leases: u64,
}

impl std::ops::AddAssign for Waiting {
    fn add_assign(&mut self, other: Self) {
        self.scheduled += other.scheduled;
        self.ready += other.ready;
        self.leases += other.leases;
    }
}

impl Waiting {
    pub fn is_over(self) -> bool {
        self == Self {
            scheduled: 0,
            ready: 0,
            leases: 0,
        }
    }
}

/// Reads the remaining work of a queue once. A queue has drained when producers and cancellers have
/// ended, workers run, and nothing remains. That takes as long as the back-off of the last crashes
/// (at most 12 s for the fourth, 24 s for the fifth) and the retries of handlers.
pub async fn waiting(
    connection: &mut MultiplexedConnection,
    queue: &str,
    horizon_ms: u64,
) -> Result<Waiting> {
    let keys = keys_of(queue)?;
    let (seconds, _): (u64, u64) = redis::cmd("TIME").query_async(connection).await?;
    let mut pipeline = redis::pipe();
    pipeline
        .cmd("ZCOUNT")
        .arg(&keys[0])
        .arg("-inf")
        .arg(seconds * 1_000 + horizon_ms);
    pipeline
        .cmd("LLEN")
        .arg(&keys[1])
        .cmd("ZCARD")
        .arg(&keys[2]);
    let (scheduled, ready, leases): (u64, u64, u64) = pipeline.query_async(connection).await?;
    Ok(Waiting {
        scheduled,
        ready: ready.saturating_sub(1),
        leases: leases.saturating_sub(1),
    })
}

/// The keys of a queue, or of a partition such as `orders/17`.
fn keys_of(queue: &str) -> Result<Vec<String>> {
    let whole = queue.split('/').next().unwrap_or(queue);
    let keys = dueq::admin::queue_keys(whole)?.into_iter();
    let (of_whole, of_partition) = (format!("{{{whole}}}"), format!("{{{queue}}}"));
    Ok(keys
        .map(|key| key.replace(&of_whole, &of_partition))
        .collect())
}

/// Reads a queue after all producers and workers have stopped. Reports each message that is still
/// stored, and each contradiction between the keys.
pub async fn scan(
    connection: &mut MultiplexedConnection,
    queue: &str,
    tell: &mut impl FnMut(Event),
) -> Result<()> {
    let mut scan = Scan {
        queue,
        keys: keys_of(queue)?,
        connection,
        places: HashMap::new(),
        attrs: HashMap::new(),
        broken: HashMap::new(),
        tell,
    };
    scan.all()
        .await
        .with_context(|| format!("looking through {queue}"))
}

struct Scan<'a, T> {
    queue: &'a str,
    keys: Vec<String>,
    connection: &'a mut MultiplexedConnection,
    places: HashMap<Vec<u8>, State>,
    /// The failures and crashes of each id.
    attrs: HashMap<Vec<u8>, (u32, u32)>,
    /// The number of inconsistencies of each kind.
    broken: HashMap<&'static str, usize>,
    tell: &'a mut T,
}

impl<T: FnMut(Event)> Scan<'_, T> {
    async fn all(&mut self) -> Result<()> {
        let exist: usize = redis::cmd("EXISTS")
            .arg(&self.keys)
            .query_async(self.connection)
            .await?;
        if exist == 0 {
            return Ok(()); // the queue was emptied, and not used since
        }
        self.sentinels().await?;
        self.attrs().await?;
        let mut claims = Claims::default();
        self.hash(3, |scan, field, value| {
            if !claims.add(&field, value) {
                scan.break_("a claim that cannot be read", &field);
            }
        })
        .await?;
        self.zset(State::Scheduled, 0, &claims).await?;
        self.ready().await?;
        self.zset(State::Leased, 2, &claims).await?;
        self.zset(State::Dead, 6, &claims).await?;
        for id in claims
            .ids()
            .filter(|id| self.places.get(*id) != Some(&State::Leased))
            .cloned()
            .collect::<Vec<_>>()
        {
            self.break_("a claim without a lease", &id);
        }
        for id in claims.miscounted() {
            self.break_("a claim that counts more or less than it holds", &id);
        }
        for id in claims.starts_left() {
            self.break_("a start without a lease", &id);
        }
        for node in claims.processes {
            let mut command = redis::cmd("ZSCORE");
            command.arg(&self.keys[8]).arg(&node);
            let beat: Option<f64> = command.query_async(self.connection).await?;
            if beat.is_none() {
                self.break_("a process without its node", &node);
            }
        }
        self.messages().await?;
        self.schedules().await?;
        self.counters().await?;
        for (what, number) in std::mem::take(&mut self.broken) {
            if number > EXAMPLES {
                self.say(format!("{what}: {number} in all"));
            }
        }
        Ok(())
    }

    fn say(&mut self, what: String) {
        (self.tell)(Event::Broken {
            queue: self.queue.to_owned(),
            what,
        });
    }

    fn break_(&mut self, what: &'static str, id: &[u8]) {
        let number = self.broken.entry(what).or_default();
        *number += 1;
        if *number <= EXAMPLES {
            self.say(format!("{what}: {}", String::from_utf8_lossy(id)));
        }
    }

    /// Records the state in which an id was found.
    fn place(&mut self, id: &[u8], state: State) {
        if self.places.insert(id.to_vec(), state).is_some() {
            self.break_("an id in two places", id);
        }
    }
    fn left(&mut self, state: State, items: Vec<(Vec<u8>, u64)>) {
        // The timer of a schedule is not a message.
        let items: Vec<_> = items.into_iter().filter(|(id, _)| !is_timer(id)).collect();
        if items.is_empty() {
            return;
        }
        let item = |(id, time): (Vec<u8>, u64)| {
            let (failures, crashes) = self.attrs.get(&id).copied().unwrap_or_default();
            LeftItem(
                String::from_utf8_lossy(&id).into_owned(),
                time,
                failures,
                crashes,
            )
        };
        let items = items.into_iter().map(item).collect();
        (self.tell)(Event::Left {
            queue: self.queue.to_owned(),
            state,
            items,
        });
    }
}

/// Whether the member is the timer of a schedule.
fn is_timer(member: &[u8]) -> bool {
    member.first() == Some(&4)
}

#[cfg(test)]
mod tests;
