//! Looks at the server several times a second: at the leases that it holds, and at its counts.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use dueq_testkit::cluster::connection;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinHandle;

use super::QUEUE;
use super::history::Held;
use super::record::hex;

/// Much shorter than any lease: each lease that no node settles is seen before it ends.
const LOOK: Duration = Duration::from_millis(200);
/// The first byte of a claim's lease, and of its count of ids.
const LEASE_MARK: u8 = 1;
const COUNT_MARK: u8 = 2;

/// The watch of the queue on one server after the other. Ends on drop.
pub(crate) struct Watch {
    seen: Arc<Mutex<Seen>>,
    port: Arc<AtomicU16>,
    task: JoinHandle<()>,
}

/// What the looks have found.
#[derive(Debug, Default, Clone)]
pub(crate) struct Seen {
    /// By token in hexadecimal.
    pub(crate) held: HashMap<String, Held>,
    /// The largest number of messages that were leased in one instant.
    pub(crate) most_leased: u64,
    /// The counter of granted messages.
    pub(crate) claimed: u64,
    /// How many messages waited.
    pub(crate) waiting: u64,
    /// By port: the calls of scripts at the first and at the last look.
    calls: BTreeMap<u16, (u64, u64)>,
}

impl Seen {
    /// How many calls of scripts the servers counted during the watch.
    pub(crate) fn script_calls(&self) -> u64 {
        self.calls.values().map(|(first, last)| last - first).sum()
    }
}

impl Watch {
    pub(crate) async fn start(port: u16) -> Result<Self> {
        let (seen, port) = (Arc::default(), Arc::new(AtomicU16::new(port)));
        let first = port.load(Ordering::Relaxed);
        look(&mut connection(first).await?, first, &seen).await?;
        let task = tokio::spawn(keep_looking(Arc::clone(&port), Arc::clone(&seen)));
        Ok(Self { seen, port, task })
    }

    /// Another server is the master from now on.
    pub(crate) fn follow(&self, port: u16) {
        locked(&self.seen).calls.entry(port).or_default();
        self.port.store(port, Ordering::Relaxed);
    }

    pub(crate) fn seen(&self) -> Seen {
        locked(&self.seen).clone()
    }

    /// Looks a last time.
    pub(crate) async fn end(self) -> Result<Seen> {
        let port = self.port.load(Ordering::Relaxed);
        look(&mut connection(port).await?, port, &self.seen).await?;
        Ok(self.seen())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep_looking(port: Arc<AtomicU16>, seen: Arc<Mutex<Seen>>) {
    let mut connected: Option<(u16, MultiplexedConnection)> = None;
    loop {
        tokio::time::sleep(LOOK).await;
        let port = port.load(Ordering::Relaxed);
        let looked = async {
            let mut connection = match connected.take() {
                Some((of_port, connection)) if of_port == port => connection,
                _ => connection(port).await?,
            };
            look(&mut connection, port, &seen).await?;
            anyhow::Ok((port, connection))
        };
        connected = looked.await.ok(); // an outage: the next look connects again
    }
}

type Bytes = Vec<u8>;
type State = (
    Vec<(Bytes, f64)>,
    HashMap<Bytes, Bytes>,
    Option<u64>,
    u64,
    u64,
);

async fn look(connection: &mut MultiplexedConnection, port: u16, seen: &Mutex<Seen>) -> Result<()> {
    let key = |suffix: &str| format!("dueq:{{{QUEUE}}}:{suffix}");
    let (leases, claims, claimed, scheduled, ready): State = redis::pipe()
        .atomic()
        .zrange_withscores(key("leases"), 0, -1)
        .hgetall(key("claims"))
        .hget(key("meta"), "claimed")
        .zcard(key("scheduled"))
        .llen(key("ready"))
        .query_async(connection)
        .await?;
    let stats: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(connection)
        .await?;
    let calls = script_calls(&stats)?;
    let mut seen = locked(seen);
    let leased = claims.keys().filter(|field| is_id(field)).count();
    seen.most_leased = seen.most_leased.max(leased as u64);
    seen.claimed = claimed.unwrap_or(0);
    seen.waiting = (scheduled + ready).saturating_sub(2); // their placeholders
    seen.calls.entry(port).or_insert((calls, calls)).1 = calls;
    for (lease, deadline_ms) in leases {
        if let Some(ids) = claims.get(&lease).filter(|_| lease[0] == LEASE_MARK) {
            let ids = String::from_utf8_lossy(ids)
                .lines()
                .map(str::to_owned)
                .collect();
            let deadline_ms = deadline_ms as u64;
            let held = || Held { deadline_ms, ids };
            seen.held.entry(hex(&lease[1..])).or_insert_with(held);
        }
    }
    Ok(())
}

/// Whether this field of claims is the id of a leased message.
fn is_id(field: &[u8]) -> bool {
    !matches!(field.first(), None | Some(&0 | &LEASE_MARK | &COUNT_MARK))
}

/// The calls of scripts and functions in INFO commandstats.
pub(crate) fn script_calls(stats: &str) -> Result<u64> {
    let mut calls = 0;
    for line in stats.lines() {
        let of_script = ["evalsha", "eval", "fcall", "evalsha_ro", "fcall_ro"]
            .iter()
            .find_map(|name| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        if let Some((count, _)) = of_script.and_then(|rest| rest.split_once(',')) {
            calls += count.parse::<u64>().context("a number of calls")?;
        }
    }
    Ok(calls)
}

fn locked(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_of_scripts_are_counted() {
        let stats = "# Commandstats\r\ncmdstat_evalsha:calls=7,usec=1\r\n\
            cmdstat_get:calls=9,usec=1\r\ncmdstat_fcall:calls=2,usec=1\r\n";
        assert_eq!(script_calls(stats).expect("numbers"), 9);
    }

    #[test]
    fn marks_and_the_placeholder_are_no_ids() {
        assert!(is_id(b"a"));
        for field in [&b"\0---"[..], b"\x01token", b"\x02token", b""] {
            assert!(!is_id(field));
        }
    }
}
