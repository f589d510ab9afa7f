//! The history of a process: one JSON array per line, `[t_us, event]`. The process goes on only
//! after the line is appended.
//!
//! `t_us` is this machine's monotonic clock, which all processes share. The order of events in
//! Redis is `seq`, which every script call that changes a queue increases by one.
//! A killed process may leave a torn last line; no process has acted on the lost part.

mod file;
mod http;
mod verb;

use serde::{Deserialize, Serialize};

pub use file::{Writer, now_us, read};
pub use http::{Handed, Http};
pub use verb::Verb;

/// An action or observation of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The first line of a history.
    Begin {
        role: Role,
        process: String,
        pid: u32,
    },
    /// A script call is about to be sent; on a cluster, to this master.
    Invoke {
        call: u64,
        queue: String,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        master: String,
        /// The epoch of the map by which a call with ids was routed; 0 without a map.
        #[serde(default, skip_serializing_if = "is_none")]
        epoch: u64,
        /// Whether the call may create nothing there, because its ids belong elsewhere now.
        #[serde(default, skip_serializing_if = "is_false")]
        probes: bool,
        what: Call,
    },
    /// The reply to a call. `seq` is the number of its change; if it changed nothing, that of the
    /// last change before it.
    Ok {
        call: u64,
        seq: u64,
        now_us: i64,
        incarnation: String,
        /// The epoch of the partition's map; 0 without a map.
        #[serde(default, skip_serializing_if = "is_none")]
        epoch: u64,
        answer: Answer,
    },
    /// The call was certainly not applied.
    Refused { call: u64, error: String },
    /// The call may have been applied. A call without an event `Ok`, `Refused` or `Unknown` is
    /// unknown, too.
    Unknown { call: u64, error: String },
    /// A caller of the library starts an operation. It returns after this number of replicas have
    /// confirmed it.
    Asked {
        op: u64,
        queue: String,
        verb: Verb,
        ids: Vec<String>,
        #[serde(default, skip_serializing_if = "is_zero")]
        replicas: u32,
    },
    /// The result of the operation: an outcome for each id. `?` begins one that may have taken
    /// effect, `!` one that has not.
    Told { op: u64, outcomes: Vec<String> },
    /// A handler starts. `version` is the version in the payload; 0 if the payload is not the
    /// pushed one.
    Started {
        queue: String,
        id: String,
        version: u32,
        attempt: u32,
        due_ms: u64,
        started_us: u64,
        /// Whether the process claimed the message itself: then no handler of its worker runs.
        #[serde(default, skip_serializing_if = "is_false")]
        by_hand: bool,
    },
    /// A consumer over HTTP calls a server, or gets an answer.
    Http(Http),
    /// A handler learns that its lease is lost.
    LostLease { queue: String, id: String },
    /// The worker begins to serve these queues with this concurrency. The line comes before its
    /// node starts, so before all starts of handlers.
    Serves {
        concurrency: u32,
        /// The lease of the node's claims.
        #[serde(default)]
        lease_ms: u64,
        queues: Vec<Share>,
    },
    /// A handler returns, with the settlement that it asks for.
    Ended {
        queue: String,
        id: String,
        wants: String,
    },
    /// The process uses the scripts of an older release.
    OlderScripts,
    /// The process noticed that the store was emptied or replaced.
    NoticedEmpty,
    /// The harness injects a fault.
    Fault {
        fault: String,
        number: u64,
        phase: Phase,
        detail: String,
    },
    /// The store lost its last writes, because the harness truncated the file, or by a failover. Of
    /// this `incarnation`, only the changes up to `survived` remain, and `seq` goes on after
    /// `next`.
    Undone {
        queue: String,
        incarnation: String,
        survived: u64,
        next: u64,
    },
    /// On a cluster: a replica with `survived` changes of the queue replaced this master, which may
    /// still answer for a while.
    Replaced {
        queue: String,
        incarnation: String,
        survived: u64,
        master: String,
    },
    /// The map of a queue's partitions, as its home has it.
    Map { queue: String, map: String },
    /// A fault of a cluster has ended. Since `since_us` it touched the masters or the slots of
    /// these partitions.
    Touched { queues: Vec<String>, since_us: u64 },
    /// A new master had no key of this queue: all that this replaced master made of it is lost.
    Vanished { queue: String, master: String },
    /// The harness emptied the store.
    Emptied { queue: String, incarnation: String },
    /// Ids in one state that remain after the queues have drained.
    Left {
        queue: String,
        state: State,
        items: Vec<LeftItem>,
    },
    /// A schedule that remains, as stored. `numbers`: next, last, since, made, missed, overlapped,
    /// paused, triggered, resumed, version.
    Schedule {
        queue: String,
        name: String,
        state: String,
        numbers: Box<[u64; 10]>,
        spec: String,
        /// The pattern of a cron; empty for `every`.
        #[serde(default)]
        pattern: String,
    },
    /// An inconsistency in the remaining keys, such as an id in two states.
    Broken { queue: String, what: String },
    /// The machine did not schedule the harness: its heartbeat was late by this much.
    Stalled { ms: u64 },
    /// The harness starts no further faults, and ends the producers and cancellers; workers go on.
    Calm,
    /// The last line of a process that ended on request. A killed process does not write it.
    End,
}

/// The share of a queue in the handlers of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    pub queue: String,
    pub weight: u32,
    /// Handlers that no other queue may take.
    pub reserve: u32,
    /// The most handlers that it may have.
    pub max: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_none(epoch: &u64) -> bool {
    *epoch == 0
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// The text `wants` of a delivery that its process claimed itself, without a handler.
pub const BY_HAND: &str = "by hand";

/// The role of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Producer,
    Worker,
    Canceller,
    Operator,
    /// Changes the number of partitions.
    Mover,
    /// Serves the queues over HTTP.
    Serve,
    /// A consumer that claims over HTTP from the processes that serve.
    Consumer,
    Harness,
}

/// A script call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// `until_ms` as sent; 0 if there is none. `nonce` is the text after the whole milliseconds,
    /// which all tries of one call share.
    Push {
        until_ms: u64,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        nonce: String,
        items: Vec<PushItem>,
    },
    /// `due`: whether the claim may also take due messages that are not promoted yet.
    Claim {
        n: u32,
        token: String,
        lease_ms: u64,
        #[serde(default, skip_serializing_if = "is_false")]
        due: bool,
    },
    /// ack, again, retry, release, bury, snooze, throttle, extend: each with the token.
    Settle { verb: Verb, items: Vec<SettleItem> },
    /// ack_push: an ack with its token, and the messages that follow it.
    Follow {
        ack: Box<SettleItem>,
        items: Vec<PushItem>,
    },
    /// cancel, reschedule, run_now, requeue; and get, which changes nothing.
    Change { verb: Verb, items: Vec<ChangeItem> },
    /// depart: what became of the batch before (`done=N`, `back=N` or empty), and the ids that are
    /// to leave for another partition.
    Depart { fate: String, ids: Vec<String> },
    /// arrive: the batch of another partition, by its tag and number. `sum` stands for the bytes of
    /// the batch; 0: it has none.
    Arrive { from: String, number: u64, sum: u64 },
    /// All other verbs, which name no messages.
    Other { verb: String, args: Vec<String> },
}

impl Call {
    /// The script's name in `lua/dist/`; a bulk requeue has a name of its own.
    pub fn verb(&self) -> &str {
        match self {
            Self::Other { verb, args }
                if verb == "requeue" && args.first().is_some_and(|form| form == "oldest") =>
            {
                "requeue_oldest"
            }
            Self::Push { .. } => "push",
            Self::Follow { .. } => "ack_push",
            Self::Claim { .. } => "claim",
            Self::Depart { .. } => "depart",
            Self::Arrive { .. } => "arrive",
            Self::Settle { verb, .. } | Self::Change { verb, .. } => verb.name(),
            Self::Other { verb, .. } => verb,
        }
    }
}

/// id, due time as sent (`+ms` or Unix ms), version of the payload, length of the payload, options.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PushItem(pub String, pub String, pub u32, pub u32, pub String);

/// id, token (the last 8 bytes, hexadecimal), and the verb's other argument (due time, delay,
/// lease, break) or an empty text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SettleItem(pub String, pub String, pub String);

/// id, and the verb's other arguments, such as `due` or `due expected`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChangeItem(pub String, pub String);

/// The answer to a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The item results, in the script's words.
    Items(Vec<String>),
    /// `paused`: the queue was paused, so nothing could be granted.
    Claimed {
        deadline_ms: u64,
        items: Vec<ClaimedItem>,
        #[serde(default, skip_serializing_if = "is_false")]
        paused: bool,
    },
    /// The batch that is on its way, for the partition with this tag; the number is 0 if none is.
    /// `is_new`: this call made it.
    Departed {
        number: u64,
        is_new: bool,
        tag: String,
        sum: u64,
        items: Vec<MovedItem>,
    },
    /// Numbers and words of the other verbs.
    Other(Vec<String>),
}

/// A message on its way: id; its state as a get answers it; its original due time, if that is not
/// the time in the state; and the deadline that a retry or snooze has fixed. 0 if it has none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MovedItem(pub String, pub String, pub u64, pub u64);

impl Answer {
    /// Expands a single item result, which then holds for all items.
    pub(crate) fn of_items(mut self, count: usize) -> Self {
        if let Self::Items(verdicts) = &mut self
            && let [verdict] = &verdicts[..]
        {
            *verdicts = vec![verdict.clone(); count];
        }
        self
    }
}

/// id, version of the payload (0: it is not the pushed one), due ms, attempt, length of the
/// payload, options.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClaimedItem(pub String, pub u32, pub u64, pub u32, pub u32, pub String);

/// The state of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Scheduled,
    Ready,
    Leased,
    Dead,
}

/// id, due ms (of a dead letter: the time of its death), failures, crashes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeftItem(pub String, pub u64, pub u32, pub u32);

/// The phases of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The harness injects the fault.
    Begin,
    /// The harness has ended the fault.
    End,
    /// Evidence that the fault had an effect. Without it the run proves nothing about the fault.
    Trace,
    /// Workers claim again. `detail` is the time since the fault's end, in ms.
    Recovered,
    /// The fault found nothing to act on. It proves nothing, and does not invalidate the run.
    NotApplied,
}

#[cfg(test)]
mod tests;
