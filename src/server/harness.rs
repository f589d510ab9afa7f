//! For programs that test dueq: they observe every script call, may replace scripts by broken ones,
//! may shorten the lists of crons, and may leave something out.
//!
//! Behind the feature `harness`, which is outside of semantic versioning. All are set once for the
//! whole process, before the first call; later calls that set them are refused.

use std::collections::HashMap;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redis::{RedisError, Value};

use crate::error::{Applied, Error};
use crate::protocol::keys::{Keys, partition_of_meta};
use crate::protocol::verbs::Verb;
use crate::server::failure;

/// Observes every script call of this process.
pub trait Observer: Send + Sync + 'static {
    /// The server to which the call of this number is sent: the master, in a cluster. Told just
    /// before [`invoke`](Observer::invoke).
    fn server(&self, call: u64, address: &str) {
        let _ = (call, address);
    }

    /// A call is about to be sent. `args` are the script's ARGV; `call` is unique in this process.
    /// `queue` names the partition: `orders`, or `orders/17` for another one than the first.
    fn invoke(&self, call: u64, verb: &'static str, queue: &str, args: &[&[u8]]);

    /// The reply, or why there is none and whether the call may have been applied. Not called if
    /// the caller dropped its future.
    fn done(&self, call: u64, result: Result<&Reply, (String, Applied)>);
}

/// The reply of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// An integer.
    Int(i64),
    /// A string of bytes.
    Bytes(Vec<u8>),
    /// An array.
    List(Vec<Reply>),
    /// A type that no script of this version replies with.
    Other,
}

static OBSERVER: OnceLock<Box<dyn Observer>> = OnceLock::new();
static CALLS: AtomicU64 = AtomicU64::new(1);
static LIST: OnceLock<usize> = OnceLock::new();
static FORGETS_LOST_CLAIMS: AtomicBool = AtomicBool::new(false);

/// This process forgets claims without a reply from now on, so that a checker must notice it.
pub fn forget_lost_claims() {
    FORGETS_LOST_CLAIMS.store(true, Ordering::Relaxed);
}

pub(crate) fn forgets_lost_claims() -> bool {
    FORGETS_LOST_CLAIMS.load(Ordering::Relaxed)
}

/// This process lists at most so many fires of a cron, so that lists run dry. `false` if it was set
/// before.
pub fn shorten_lists(fires: usize) -> bool {
    LIST.set(fires).is_ok()
}

/// The most fires of a list, if it was set.
pub(crate) fn list_length() -> Option<usize> {
    LIST.get().copied()
}

/// Sets the observer of every script call from now on. `false` if there is one already.
pub fn observe(observer: impl Observer) -> bool {
    OBSERVER.set(Box::new(observer)).is_ok()
}

/// Uses each `VERB.lua` in a folder instead of the script that was compiled in.
///
/// # Errors
/// If a file cannot be read, or if a script was called already.
pub fn replace_scripts(folder: &Path) -> std::io::Result<()> {
    let mut replaced = HashMap::new();
    for verb in Verb::ALL {
        match std::fs::read_to_string(folder.join(verb.name()).with_extension("lua")) {
            Ok(code) => drop(replaced.insert(*verb, &*code.leak())), // once in a process, and needed until its end
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let set = Verb::replace(|verb| replaced.get(&verb).copied());
    set.then_some(())
        .ok_or_else(|| std::io::Error::other("a script was called already"))
}

/// Reports a call to the observer; returns its number.
pub(crate) fn invoke(server: &str, verb: Verb, keys: &Keys, args: &[&[u8]]) -> u64 {
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    if let Some(observer) = OBSERVER.get() {
        let queue = keys
            .vector
            .last()
            .and_then(|meta| partition_of_meta(meta))
            .unwrap_or_default();
        observer.server(call, server);
        observer.invoke(call, verb.name(), queue, args);
    }
    call
}

/// Reports the end of a call to the observer.
pub(crate) fn done(call: u64, result: &Result<Value, RedisError>) {
    let Some(observer) = OBSERVER.get() else {
        return;
    };
    match result {
        Ok(value) => observer.done(call, Ok(&reply(value))),
        Err(error) => {
            let error: Error = failure::of_call("the server", error.clone());
            observer.done(call, Err((error.to_string(), error.was_applied())));
        }
    }
}

fn reply(value: &Value) -> Reply {
    match value {
        Value::Int(number) => Reply::Int(*number),
        Value::BulkString(bytes) => Reply::Bytes(bytes.clone()),
        Value::Array(parts) => Reply::List(parts.iter().map(reply).collect()),
        _ => Reply::Other,
    }
}
