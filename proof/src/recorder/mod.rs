//! Records every script call of this process in its history, before it is sent and when it is
//! answered.

mod batch;
mod call;
mod reply;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Result, ensure};
use dueq::harness::{Observer, Reply};
use dueq::{Applied, Error};
use rustix::process::{Signal, getpid};

use crate::history::{Answer, Event, Role, Verb, Writer, now_us};
use crate::kit::process::signal;
use call::call_of;
pub(crate) use reply::answered;

/// The history of this process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Diary(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    writer: Writer,
    ops: AtomicU64,
    /// Redis's clock minus this process's monotonic clock, in microseconds, by the last reply.
    offset_us: AtomicI64,
}

impl Diary {
    /// Begins a history that records every script call of this process. On a cluster it also
    /// records the master to which each call goes.
    pub fn begin(path: &Path, role: Role, process: &str, is_cluster: bool) -> Result<Self> {
        let inner = Inner {
            writer: Writer::create(path)?,
            ops: AtomicU64::new(1),
            offset_us: AtomicI64::new(0),
        };
        let diary = Self(Arc::new(inner));
        diary.write(&Event::Begin {
            role,
            process: process.to_owned(),
            pid: std::process::id(),
        });
        let observed = dueq::harness::observe(diary.recorder(is_cluster));
        ensure!(observed, "this process has an observer already");
        Ok(diary)
    }

    /// Records script calls in this history.
    pub(crate) fn recorder(&self, is_cluster: bool) -> impl Observer {
        Recorder {
            diary: self.clone(),
            verbs: Mutex::default(),
            masters: is_cluster.then(Mutex::default),
        }
    }

    /// Writes an event. If that fails, the process ends at once, because a history with a gap
    /// proves nothing.
    pub fn write(&self, event: &Event) {
        if let Err(error) = self.0.writer.write(event) {
            eprintln!("cannot write the history: {error:#}");
            std::process::abort();
        }
    }

    /// Records the start of an operation of the library; the number is for [`told`](Diary::told).
    pub fn asked(&self, queue: &str, verb: Verb, ids: Vec<String>) -> u64 {
        self.asked_durably(queue, verb, ids, 0)
    }

    /// Like [`asked`](Diary::asked), for an operation that this number of replicas must confirm.
    pub fn asked_durably(&self, queue: &str, verb: Verb, ids: Vec<String>, replicas: u32) -> u64 {
        let op = self.0.ops.fetch_add(1, Ordering::Relaxed);
        self.write(&Event::Asked {
            op,
            queue: queue.to_owned(),
            verb,
            ids,
            replicas,
        });
        op
    }

    pub fn told(&self, op: u64, outcomes: Vec<String>) {
        self.write(&Event::Told { op, outcomes });
    }

    /// Redis's time by the last reply, in Unix milliseconds; 0 before the first.
    pub fn server_now_ms(&self) -> u64 {
        let offset_us = self.0.offset_us.load(Ordering::Relaxed);
        let local_us = if offset_us == 0 { 0 } else { now_us() };
        u64::try_from((i64::try_from(local_us).unwrap_or(0) + offset_us) / 1_000).unwrap_or(0)
    }
}

/// The outcome of an operation in a few words. `?` begins one that may have taken effect, `!` one
/// that has not.
pub fn outcome<T>(result: Result<T, Error>, word: impl Fn(T) -> String) -> String {
    match result {
        Ok(value) => word(value),
        Err(error) if error.was_applied() == Applied::No => format!("!{error}"),
        Err(error) => format!("?{error}"),
    }
}

/// Until when the process freezes itself as soon as it has taken a batch out of a partition.
static FREEZES_UNTIL_US: AtomicU64 = AtomicU64::new(0);
/// For how long. The harness waits longer: nobody would wake a process that freezes itself later.
const FREEZES_FOR_US: u64 = 8_000_000;

/// Makes the process freeze itself when it has taken the next batch out of a partition, unless that
/// takes long.
pub fn freeze_with_a_batch() {
    FREEZES_UNTIL_US.store(now_us() + FREEZES_FOR_US, Ordering::Relaxed);
}

fn freeze_if(event: &Event) {
    let answer = match event {
        Event::Ok { answer, .. } => answer,
        _ => return,
    };
    if matches!(answer, Answer::Departed { is_new: true, .. })
        && FREEZES_UNTIL_US.swap(0, Ordering::Relaxed) > now_us()
        && let Err(error) = signal(getpid(), Signal::STOP)
    {
        tracing::warn!(%error, "cannot stop");
    }
}

struct Recorder {
    diary: Diary,
    /// For each call in flight: its verb, and the id of a get.
    verbs: Mutex<HashMap<u64, (&'static str, String)>>,
    /// On a cluster, for each call that is about to be sent: its master.
    masters: Option<Mutex<HashMap<u64, String>>>,
}

impl Recorder {
    fn master(&self, call: u64) -> String {
        let masters = self.masters.as_ref().map(|masters| masters.lock());
        let mut masters = masters.map(|locked| locked.unwrap_or_else(PoisonError::into_inner));
        masters
            .as_mut()
            .and_then(|masters| masters.remove(&call))
            .unwrap_or_default()
    }

    fn verbs(&self) -> MutexGuard<'_, HashMap<u64, (&'static str, String)>> {
        self.verbs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Recorder {
    fn server(&self, call: u64, address: &str) {
        if let Some(masters) = &self.masters {
            let mut masters = masters.lock().unwrap_or_else(PoisonError::into_inner);
            masters.insert(call, address.to_owned());
        }
    }

    fn invoke(&self, call: u64, verb: &'static str, queue: &str, args: &[&[u8]]) {
        let id = if verb == "get" {
            args.get(1).map(|id| text(id)).unwrap_or_default()
        } else {
            String::new()
        };
        self.verbs().insert(call, (verb, id));
        let (epoch, probes) = fence_of(args);
        self.diary.write(&Event::Invoke {
            call,
            queue: queue.to_owned(),
            master: self.master(call),
            epoch,
            probes,
            what: call_of(verb, args),
        });
    }

    fn done(&self, call: u64, result: Result<&Reply, (String, Applied)>) {
        let (verb, id) = self.verbs().remove(&call).unwrap_or_default();
        let event = match result {
            Ok(reply) => match answered(call, verb, &id, reply) {
                Some(event) => event,
                None => Event::Unknown {
                    call,
                    error: format!("this is no reply of {verb}: {reply:?}"),
                },
            },
            Err((error, Applied::No)) => Event::Refused { call, error },
            Err((error, _)) => Event::Unknown { call, error },
        };
        if let Event::Ok {
            now_us: server_us, ..
        } = event
        {
            let offset_us = server_us - i64::try_from(now_us()).unwrap_or(0);
            self.diary.0.offset_us.store(offset_us, Ordering::Relaxed);
        }
        self.diary.write(&event);
        freeze_if(&event);
    }
}

/// The epoch in a script's first argument, and whether the call is a probe: `m` or `p` and the
/// epoch, possibly followed by a test clock.
fn fence_of(args: &[&[u8]]) -> (u64, bool) {
    let (probes, rest) = match args.first() {
        Some([b'm', rest @ ..]) => (false, rest),
        Some([b'p', rest @ ..]) => (true, rest),
        _ => return (0, false),
    };
    let digits = rest.split(|byte| *byte == b' ').next();
    (digits.map_or(0, number), probes)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn number<N: std::str::FromStr + Default>(bytes: &[u8]) -> N {
    std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}
