//! What a process writes down: one JSON array a line, `[t_us, event]`, appended before it goes on.
//!
//! `t_us` is this machine's monotonic clock, which all processes share. The order of what happened *in Redis* is another
//! thing: that is `seq`, which every script call that changes a queue makes one larger.
//! A process that is killed leaves a last line that may be torn; nothing after it was read by anybody.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Something that a process did or saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The first line of a history.
    Begin {
        role: Role,
        process: String,
        pid: u32,
    },
    /// A script call is about to be sent.
    Invoke {
        call: u64,
        queue: String,
        what: Call,
    },
    /// Its reply. `seq` counts it if it changed something; otherwise it is that of the last change before it.
    Ok {
        call: u64,
        seq: u64,
        now_us: i64,
        incarnation: String,
        answer: Answer,
    },
    /// It was certainly not applied.
    Refused { call: u64, error: String },
    /// It may or may not have been applied. A call with neither of the three is as unknown.
    Unknown { call: u64, error: String },
    /// A caller of the library asks for something, and so many replicas must have it before there is an answer.
    Asked {
        op: u64,
        verb: Verb,
        ids: Vec<String>,
        #[serde(default, skip_serializing_if = "is_zero")]
        replicas: u32,
    },
    /// What it is told, an outcome for each id; `?` begins those that may have taken effect, `!` those that have not.
    Told { op: u64, outcomes: Vec<String> },
    /// A handler starts. `version` is what the payload says, 0 if it is not as it was pushed.
    Started {
        id: String,
        version: u32,
        attempt: u32,
        due_ms: u64,
        started_us: u64,
    },
    /// A handler was told that its lease is lost.
    LostLease { id: String },
    /// A handler returns, with what it wants done.
    Ended { id: String, wants: String },
    /// The process noticed that the store was emptied or replaced.
    NoticedEmpty,
    /// The harness does something to somebody.
    Fault {
        fault: String,
        number: u64,
        phase: Phase,
        detail: String,
    },
    /// The last of a store's writes are gone, cut off by the harness or left behind by a failover: of this `incarnation` only what has
    /// at most `survived` is left, and from now on `seq` counts from beyond `next`.
    Undone {
        queue: String,
        incarnation: String,
        survived: u64,
        next: u64,
    },
    /// The harness emptied the store.
    Emptied { queue: String, incarnation: String },
    /// What is left when all is quiet: some ids of one state.
    Left {
        queue: String,
        state: State,
        items: Vec<LeftItem>,
    },
    /// What does not fit together in what is left, such as an id in two places.
    Broken { queue: String, what: String },
    /// The heartbeat of the harness came this much too late: the machine did not schedule it.
    Stalled { ms: u64 },
    /// The harness begins no fault any more and ends the producers and cancellers; workers go on.
    Calm,
    /// The last line of a process that ended as it was told to. A process that was killed does not write it.
    End,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// What a process is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Producer,
    Worker,
    Canceller,
    Operator,
    Harness,
}

/// The verbs that name messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    Push,
    Ack,
    Again,
    Retry,
    Release,
    Bury,
    Extend,
    Cancel,
    Reschedule,
    RunNow,
    Requeue,
    Get,
}

impl Verb {
    pub fn name(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Ack => "ack",
            Self::Again => "again",
            Self::Retry => "retry",
            Self::Release => "release",
            Self::Bury => "bury",
            Self::Extend => "extend",
            Self::Cancel => "cancel",
            Self::Reschedule => "reschedule",
            Self::RunNow => "run_now",
            Self::Requeue => "requeue",
            Self::Get => "get",
        }
    }
}

/// A script call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// `until_ms` as sent, 0 if none. `nonce` is what follows the whole milliseconds: all attempts of one call have the same.
    Push {
        until_ms: u64,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        nonce: String,
        items: Vec<PushItem>,
    },
    /// `due`: it takes due messages that were not promoted, too.
    Claim {
        n: u32,
        token: String,
        lease_ms: u64,
        #[serde(default, skip_serializing_if = "is_false")]
        due: bool,
    },
    /// ack, again, retry, release, bury, extend: each with the token.
    Settle { verb: Verb, items: Vec<SettleItem> },
    /// cancel, reschedule, run_now, requeue; and get, which changes nothing.
    Change { verb: Verb, items: Vec<ChangeItem> },
    /// All others, which name no messages.
    Other { verb: String, args: Vec<String> },
}

impl Call {
    /// Its name in `lua/dist/`; a requeue of the oldest has a name of its own.
    pub fn verb(&self) -> &str {
        match self {
            Self::Other { verb, args }
                if verb == "requeue" && args.first().is_some_and(|form| form == "oldest") =>
            {
                "requeue_oldest"
            }
            Self::Push { .. } => "push",
            Self::Claim { .. } => "claim",
            Self::Settle { verb, .. } | Self::Change { verb, .. } => verb.name(),
            Self::Other { verb, .. } => verb,
        }
    }
}

/// id, due as sent (`+ms` or Unix ms), version of the payload, bytes of it, options.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PushItem(pub String, pub String, pub u32, pub u32, pub String);

/// id, token (the first 8 bytes, hexadecimal), and what else the verb takes (due, delay, lease), empty if nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SettleItem(pub String, pub String, pub String);

/// id, and what else the verb takes, such as `due` or `due expected`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChangeItem(pub String, pub String);

/// What a call was answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// A verdict for each item, as the script words it.
    Items(Vec<String>),
    /// `paused`: the queue was, so that nothing could be granted.
    Claimed {
        deadline_ms: u64,
        items: Vec<ClaimedItem>,
        #[serde(default, skip_serializing_if = "is_false")]
        paused: bool,
    },
    /// Numbers and words of the others.
    Other(Vec<String>),
}

impl Answer {
    /// One verdict that was told alone is that of all the items.
    pub(crate) fn of_items(mut self, count: usize) -> Self {
        if let Self::Items(verdicts) = &mut self
            && let [verdict] = &verdicts[..]
        {
            *verdicts = vec![verdict.clone(); count];
        }
        self
    }
}

/// id, version of the payload (0: it is not as it was pushed), due ms, attempt, bytes of the payload, options.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClaimedItem(pub String, pub u32, pub u64, pub u32, pub u32, pub String);

/// Where a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Scheduled,
    Ready,
    Leased,
    Dead,
}

/// id, due ms (of the dead: when it died), failures, crashes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeftItem(pub String, pub u64, pub u32, pub u32);

/// The life of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It is done to somebody.
    Begin,
    /// It is taken back, or over.
    End,
    /// It was seen to have had an effect: without one the run proves nothing about it.
    Trace,
    /// Work was seen to go on again; `detail` is how many ms after the fault's end.
    Recovered,
    /// There was nothing to do it to. It proves nothing, and spoils nothing.
    NotApplied,
}

/// Appends to a history.
#[derive(Debug)]
pub struct Writer(Mutex<File>);

impl Writer {
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::options().append(true).create_new(true).open(path);
        Ok(Self(Mutex::new(file.with_context(|| {
            format!("the history {}", path.display())
        })?)))
    }

    /// Writes a line, in one write: a kill leaves it whole or torn, never mixed.
    pub fn write(&self, event: &Event) -> Result<()> {
        // Under the lock, so that the lines of a file are in the order of their times.
        let mut file = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut line = serde_json::to_vec(&(now_us(), event))?;
        line.push(b'\n');
        Ok(file.write_all(&line)?)
    }
}

/// This machine's monotonic clock.
pub fn now_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000
        + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000
}

/// The lines of a history. A torn last line is left out; any other that cannot be read is an error.
pub fn read(path: &Path) -> Result<impl Iterator<Item = Result<(u64, Event)>>> {
    let file = File::open(path).with_context(|| format!("the history {}", path.display()))?;
    let (name, mut number) = (path.display().to_string(), 0_u64);
    let mut reader = BufReader::with_capacity(1 << 20, file);
    Ok(std::iter::from_fn(move || {
        let mut line = Vec::new();
        number += 1;
        match reader.read_until(b'\n', &mut line) {
            Err(error) => Some(Err(error.into())),
            Ok(_) if line.last() != Some(&b'\n') => None,
            Ok(_) => {
                Some(serde_json::from_slice(&line).with_context(|| format!("{name}:{number}")))
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_and_a_torn_last_one_is_left_out() -> Result<()> {
        let path = std::env::temp_dir().join(format!("dueq-history-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let events = [
            Event::Begin {
                role: Role::Worker,
                process: "worker-1".into(),
                pid: 7,
            },
            Event::Ok {
                call: 1,
                seq: 9,
                now_us: 5,
                incarnation: "b".into(),
                answer: Answer::Claimed {
                    deadline_ms: 3,
                    items: vec![ClaimedItem("a".into(), 1, 2, 1, 9, String::new())],
                    paused: false,
                },
            },
            Event::NoticedEmpty,
            Event::Asked {
                op: 1,
                verb: Verb::Push,
                ids: vec!["a".into()],
                replicas: 0,
            },
            Event::Asked {
                op: 2,
                verb: Verb::Push,
                ids: vec!["a".into()],
                replicas: 1,
            },
        ];
        let writer = Writer::create(&path)?;
        events.iter().try_for_each(|event| writer.write(event))?;
        File::options()
            .append(true)
            .open(&path)?
            .write_all(b"[1, {\"torn")?;
        let lines: Vec<_> = read(&path)?.collect::<Result<_>>()?;
        std::fs::remove_file(&path)?;
        assert!(lines.is_sorted_by_key(|(t_us, _)| *t_us));
        assert!(lines.into_iter().map(|(_, event)| event).eq(events));
        Ok(())
    }
}
