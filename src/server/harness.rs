//! Hooks for programs that test dueq: they observe every script call, replace scripts by broken
//! ones, shorten the lists of crons, or disable a part of the library.
//!
//! Behind the feature `harness`, which is outside of semantic versioning. Each hook is set at most
//! once in a process, before the first call; setting it later is refused.

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
    /// Called just before [`invoke`](Observer::invoke) with the server that gets the call of this
    /// number; in a cluster, a master.
    fn server(&self, call: u64, address: &str) {
        let _ = (call, address);
    }

    /// Called before a call is sent. `args` are the script's ARGV; `call` is unique in this
    /// process. `queue` names the partition: `orders`, or `orders/17` for one that is not the home.
    fn invoke(&self, call: u64, verb: &'static str, queue: &str, args: &[&[u8]]);

    /// Called with the reply, or with the error and whether the call may have been applied. Not
    /// called if the caller dropped its future.
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

/// From now on, this process does not look up claims without a reply. A checker of histories must
/// notice that.
pub fn forget_lost_claims() {
    FORGETS_LOST_CLAIMS.store(true, Ordering::Relaxed);
}

pub(crate) fn forgets_lost_claims() -> bool {
    FORGETS_LOST_CLAIMS.load(Ordering::Relaxed)
}

/// Limits each list of fires of this process to this number, so that lists run dry. `false` if the
/// limit was set before.
pub fn shorten_lists(fires: usize) -> bool {
    LIST.set(fires).is_ok()
}

/// The most fires of a list, if a test set it.
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
            Ok(code) => drop(replaced.insert(*verb, &*code.leak())), // leaked once
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
