//! The pushes of a producer. They depend only on the seed and the name, except for times that count
//! from the server's clock.

use std::time::Duration;

use dueq::{Due, Message, OnConflict, OnExpire};
use fastrand::Rng;

use crate::payload;
use crate::queues::{MOST_COST, Planned, is_partitioned, planned_queues};

/// The longest payload that a queue accepts by default.
const PAYLOAD_LIMIT: usize = 1_048_576;
/// A due time that every script refuses: 101 years of 365.25 days.
const TOO_FAR_MS: u64 = 101 * 31_557_600_000;
/// Part of the id of a message that kills the worker that starts it.
pub const POISON: &str = "poison";
const INNOCENTS: usize = 49;
/// A day. With it due times are made in the far past: the Unix epoch, or yesterday.
const DAY_MS: u64 = 86_400_000;
/// Payloads with this version or a higher one belong to a message that was pushed under the id of
/// one that had just ended.
pub const AGAIN: u32 = 1_000;

/// One push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    pub id: String,
    pub due: Due,
    pub version: u32,
    pub bytes: usize,
    pub max_attempts: Option<u32>,
    pub on_conflict: OnConflict,
    pub expires: Option<Expires>,
    /// What the message uses of a rate. 1 is the default and is not sent.
    pub cost: u32,
}

/// When a message expires, and whether it is dropped then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expires {
    when: ExpiresWhen,
    drops: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpiresWhen {
    /// The message expires this long after its due time.
    AfterMs(u64),
    AtMs(u64),
}

impl Push {
    /// A new message under the id of one that has just ended; its payload tells the two apart.
    pub fn again(id: String, due: Due) -> Self {
        let (version, on_conflict) = (AGAIN + fastrand::u32(0..50_000), OnConflict::Keep);
        Self {
            id,
            due,
            version,
            bytes: 100,
            max_attempts: None,
            on_conflict,
            expires: None,
            cost: 1,
        }
    }

    pub fn message(&self) -> Message {
        let payload = payload::make(&self.id, self.version, self.bytes);
        let mut message = Message::new(payload)
            .id(&self.id)
            .due(self.due)
            .on_conflict(self.on_conflict);
        if let Some(limit) = self.max_attempts {
            message = message.max_attempts(limit);
        }
        if let Some(trace_parent) = trace_parent(&self.id) {
            message = message.trace_parent(trace_parent);
        }
        if let Some(Expires { when, drops }) = self.expires {
            message = match when {
                ExpiresWhen::AfterMs(ms) => message.expires_after(Duration::from_millis(ms)),
                ExpiresWhen::AtMs(ms) => message.expires_at(ms),
            };
            if drops {
                message = message.on_expire(OnExpire::Drop);
            }
        }
        if self.cost > 1 {
            message = message.cost(self.cost);
        }
        message
    }
}

/// The pushes of one call, and pushes to be repeated later.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Step {
    pub pushes: Vec<Push>,
    pub later: Vec<(Duration, Push)>,
}

/// The plan of one producer.
#[derive(Debug)]
pub struct Plan {
    name: String,
    rng: Rng,
    number: u64,
    /// One message in this number is poison; 0 for none.
    poison_every: u64,
    next_poison: u64,
    /// Whether the plan pushes each of its ids only once.
    once: bool,
    /// How far ahead most messages are due at the most.
    longest_ms: u64,
    /// The first version of payloads. Queues share the names of ids, but not the versions.
    first_version: u32,
    /// Whether the queue has a limit that binds: then more messages expire and have a cost.
    is_limited: bool,
    /// Whether the producer has scripts of release 0.1, which refuse messages that expire or have a
    /// cost.
    is_older: bool,
}

impl Plan {
    pub fn new(seed: u64, name: &str, queue: &Planned, poison_every: u64, once: bool) -> Self {
        let rng = Rng::with_seed(seed ^ hash(name.as_bytes()) ^ hash(queue.name.as_bytes()));
        // Only the first queue has poison messages, as many as in a run with one queue.
        let is_first = queue.name == planned_queues(1)[0].name;
        let poison_every = if is_first {
            poison_every * u64::from(queue.traffic) / 100
        } else {
            0
        };
        Self {
            name: name.to_owned(),
            rng,
            number: 0,
            poison_every,
            next_poison: poison_every,
            once,
            longest_ms: match queue {
                // It can be parked: few messages are due after a burst.
                queue if queue.is_found => 500,
                // Messages move that are due in more than 5 s.
                queue if is_partitioned(queue.name) => 15_000,
                _ => 5_000,
            },
            first_version: first_version(queue.name),
            is_limited: queue.limit.is_some(),
            is_older: false,
        }
    }

    /// The plan for a producer with the scripts of release 0.1, if `is_older`.
    pub fn for_older(self, is_older: bool) -> Self {
        Self { is_older, ..self }
    }

    /// The next step. `now_ms` is the server's clock.
    pub fn step(&mut self, now_ms: u64) -> Step {
        let mut step = Step::default();
        if self.poison_every > 0 && self.number >= self.next_poison {
            self.next_poison = self.number + self.poison_every;
            self.poison(&mut step.pushes);
            return step;
        }
        match self.rng.u32(0..1_000) {
            0..560 => self.one(now_ms, &mut step),
            560..990 => (0..self.rng.usize(2..120)).for_each(|_| self.one(now_ms, &mut step)),
            // Many messages are due at one instant: more than there are handlers, so the last ones
            // wait on the ready list.
            _ => {
                let due = Due::AtMs(now_ms + self.rng.u64(300..800));
                let number = self.rng.usize(200..700);
                for _ in 0..number {
                    let mut push = self.plain(due);
                    self.sometimes_odd(&mut push);
                    step.pushes.push(push);
                }
            }
        }
        step
    }

    /// One message of a storm.
    pub fn plain(&mut self, due: Due) -> Push {
        self.number += 1;
        let id = format!("{}-{}", self.name, self.number);
        let on_conflict = OnConflict::Keep;
        Push {
            id,
            due,
            version: self.first_version,
            bytes: 100,
            max_attempts: None,
            on_conflict,
            expires: None,
            cost: 1,
        }
    }

    fn poison(&mut self, pushes: &mut Vec<Push>) {
        let due = Due::AfterMs(self.rng.u64(0..200));
        pushes.extend((0..INNOCENTS).map(|_| self.plain(due)));
        let mut poison = self.plain(due);
        poison.id.push_str(&format!("-{POISON}"));
        let place = self.rng.usize(0..=INNOCENTS);
        pushes.insert(place, poison);
    }

    fn one(&mut self, now_ms: u64, step: &mut Step) {
        let due = self.due(now_ms);
        let mut push = self.plain(due);
        push.bytes = self.bytes();
        if self.rng.u32(0..20) == 0 {
            push.max_attempts = Some(self.rng.u32(1..5));
        }
        if !self.is_older {
            self.sometimes_expiring(&mut push, now_ms);
        }
        self.sometimes_odd(&mut push);
        match self.rng.u32(0..10_000) {
            100..120 => self.spoil(&mut push, now_ms),
            120..520 if !self.once => self.repeat(&push, now_ms, step),
            _ => {}
        }
        step.pushes.push(push);
    }

    /// Makes some messages expire. The time is mostly so short that a busy queue, a retry or a
    /// snooze exceeds it.
    fn sometimes_expiring(&mut self, push: &mut Push, now_ms: u64) {
        let rng = &mut self.rng;
        let often = if self.is_limited { 4 } else { 25 };
        if rng.u32(0..often) == 0 {
            let when = match rng.u32(0..10) {
                0..7 => ExpiresWhen::AfterMs(rng.u64(1..400)),
                7 | 8 => ExpiresWhen::AfterMs(rng.u64(60_000..600_000)),
                // An absolute expiry is later than every due time of a plan, so that the push is
                // not refused.
                _ => ExpiresWhen::AtMs(now_ms + rng.u64(700_000..900_000)),
            };
            let drops = rng.bool();
            push.expires = Some(Expires { when, drops });
        }
        if rng.u32(0..3 * often) == 0 {
            push.cost = rng.u32(2..=MOST_COST);
        }
    }

    fn sometimes_odd(&mut self, push: &mut Push) {
        if self.rng.u32(0..12) == 0 {
            push.id = odd(&push.id, &mut self.rng);
        }
    }

    fn due(&mut self, now_ms: u64) -> Due {
        let rng = &mut self.rng;
        let longest_ms = self.longest_ms;
        match rng.u32(0..1_000) {
            0..400 => Due::AfterMs(0),
            400..700 => Due::AfterMs(rng.u64(1..50)),
            700..880 => Due::AfterMs(rng.u64(50..longest_ms)),
            880..950 => Due::AtMs(now_ms + rng.u64(0..longest_ms)),
            950..960 => Due::AtMs(now_ms.saturating_sub(rng.u64(0..100_000))),
            960..966 => Due::AtMs(rng.u64(0..2)),
            966..970 => Due::AtMs(now_ms.saturating_sub(DAY_MS)),
            // The process does not wait for these messages: the canceller cancels, runs or
            // reschedules them.
            _ => Due::AfterMs(rng.u64(120_000..600_000)),
        }
    }

    fn bytes(&mut self) -> usize {
        match self.rng.u32(0..100_000) {
            0..5_000 => 0,
            5_000..5_500 => 10_240,
            5_500..5_520 => PAYLOAD_LIMIT,
            _ => 100,
        }
    }

    /// Makes the push invalid: the library or the script refuses it, and no trace may remain.
    fn spoil(&mut self, push: &mut Push, now_ms: u64) {
        match self.rng.u32(0..5) {
            0 => push.id.push_str(&"x".repeat(200)),
            1 => push.id.push('\n'),
            2 => push.bytes = PAYLOAD_LIMIT + 1,
            3 => push.max_attempts = Some(0),
            _ => push.due = Due::AtMs(now_ms + TOO_FAR_MS),
        }
        // Half of the time the library accepts it, so that the script must refuse it, which is the
        // more important case.
        if self.rng.bool() {
            push.due = Due::AtMs(now_ms + TOO_FAR_MS);
        }
    }

    /// Pushes an id again: while it is scheduled, while a handler runs it, or after it has ended.
    fn repeat(&mut self, push: &Push, now_ms: u64, step: &mut Step) {
        let mut version = push.version;
        for _ in 0..self.rng.u32(1..4) {
            let mut again = push.clone();
            match self.rng.u32(0..10) {
                0..7 => {}
                7 => (again.on_conflict, again.due) = (OnConflict::Reschedule, self.due(now_ms)),
                _ => {
                    version += 1;
                    (again.version, again.on_conflict, again.due) =
                        (version, OnConflict::Replace, self.due(now_ms));
                }
            }
            let pause = match self.rng.u32(0..4) {
                0 => Duration::ZERO,
                1 => Duration::from_millis(self.rng.u64(1..50)),
                _ => Duration::from_millis(self.rng.u64(50..3_000)),
            };
            step.later.push((pause, again));
        }
    }
}

/// The first version of payloads in this queue. It differs between queues, so that a mix-up of
/// queues is noticed.
fn first_version(queue: &str) -> u32 {
    1 + u32::try_from(hash(queue.as_bytes()) % 90).unwrap_or(0) * 10
}

/// An unusual id.
fn odd(id: &str, rng: &mut Rng) -> String {
    match rng.u32(0..9) {
        0 => format!("{id} with  spaces "),
        1 => format!("{id}:1700000000000:{id}"),
        6 => format!("1700000000000:{id}:"),
        7 => format!("{id}.a-b.%1.%w+-"),
        8 => format!("[{id}]*$^?"),
        2 => format!("{id}-Grüße-\u{1f600}-日本"),
        3 => format!("{id}-{}", "y".repeat(199 - id.len().min(199))),
        4 => format!("{id}\"\\'{{}}/%s%d%"),
        _ => format!(":{id}:"),
    }
}

/// The trace of one message in fifty. All pushes of an id have one trace.
pub fn trace_parent(id: &str) -> Option<String> {
    let trace = hash(id.as_bytes());
    trace
        .is_multiple_of(50)
        .then(|| format!("00-{trace:016x}{trace:016x}-{:016x}-01", trace | 1))
}

/// FNV-1a, then mixed, so that similar inputs differ in many bits.
pub fn hash(bytes: &[u8]) -> u64 {
    let hash = bytes
        .iter()
        .fold(14_695_981_039_346_656_037, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(1_099_511_628_211)
        });
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ (mixed >> 32)
}

#[cfg(test)]
mod tests;
