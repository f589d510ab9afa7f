//! What is told by `tracing`: every name, level and field in one place. docs/telemetry.md says what they mean, and a test holds
//! the two together.
//!
//! The arguments are borrowed, and turned into text only if somebody listens.

use std::fmt;
use std::time::Duration;

use tracing::field::Empty;
use tracing::{Span, debug, error, info, warn};

use crate::error::Error;

fn text(id: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(id)
}

/// A delivery, as its events name it.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) queue: &'a str,
    pub(crate) id: &'a [u8],
    pub(crate) attempt: u32,
}

/// A handler's run and its settle. It begins a trace of its own: what pushed the message may be days away, and is linked.
pub(crate) fn handle(
    of: Subject<'_>,
    due_ms: u64,
    lateness: Duration,
    trace_parent: Option<&str>,
) -> Span {
    tracing::info_span!(
        target: "dueq",
        parent: None,
        "dueq.handle",
        otel.kind = "consumer",
        queue = of.queue,
        id = &*text(of.id),
        attempt = of.attempt,
        due_ms,
        lateness_ms = millis(lateness),
        link.traceparent = trace_parent,
        handling_ms = Empty,
        outcome = Empty,
    )
}

/// Its handler ended, after so long.
pub(crate) fn handled(span: &Span, took: Duration) {
    if !span.is_disabled() {
        span.record("handling_ms", millis(took));
    }
}

/// Its settle was answered.
pub(crate) fn outcome(span: &Span, outcome: &'static str) {
    span.record("outcome", outcome);
}

pub(crate) fn retried(of: Subject<'_>, due_ms: u64, error: &str) {
    info!(name: "dueq.retried", target: "dueq", queue = of.queue, id = &*text(of.id), attempt = of.attempt, due_ms, error,
        "the handler failed: the message is tried again");
}

pub(crate) fn died(of: Subject<'_>, error: &str) {
    warn!(name: "dueq.died", target: "dueq", queue = of.queue, id = &*text(of.id), attempt = of.attempt, error,
        "the handler failed for the last time: the message is dead");
}

pub(crate) fn buried(of: Subject<'_>, reason: &str) {
    warn!(name: "dueq.buried", target: "dueq", queue = of.queue, id = &*text(of.id), attempt = of.attempt, reason,
        "the handler buried the message");
}

pub(crate) fn released(of: Subject<'_>) {
    debug!(name: "dueq.released", target: "dueq", queue = of.queue, id = &*text(of.id), attempt = of.attempt,
        "the message was given back, uncharged");
}

pub(crate) fn settle_failed(of: Subject<'_>, error: &Error) {
    warn!(name: "dueq.settle_failed", target: "dueq", queue = of.queue, id = &*text(of.id), attempt = of.attempt, %error,
        "a delivery could not be settled: it comes back when its lease runs out");
}

pub(crate) fn lease_lost(of: Subject<'_>, why: &'static str) {
    warn!(name: "dueq.lease_lost", target: "dueq", queue = of.queue, id = &*text(of.id), attempt = of.attempt, why,
        "the lease was lost");
}

pub(crate) fn extend_failed(queue: &str, error: &Error) {
    warn!(name: "dueq.extend_failed", target: "dueq", queue, %error, "a lease could not be extended yet");
}

pub(crate) fn drop_panicked(panic: &str) {
    error!(name: "dueq.drop_panicked", target: "dueq", panic, "a handler panicked when it was dropped");
}

pub(crate) fn reaped(queue: &str, messages: u64) {
    info!(name: "dueq.reaped", target: "dueq", queue, messages, "leases ran out: their messages were taken back");
}

pub(crate) fn store_emptied(queue: &str) {
    error!(name: "dueq.store_emptied", target: "dueq", queue,
        "the store was emptied or replaced: what the queue held is gone");
}

pub(crate) fn worker_started(queue: &str, node: &str, concurrency: usize, lease_ms: u64) {
    info!(name: "dueq.worker_started", target: "dueq", queue, node, concurrency, lease_ms, "the worker has started");
}

pub(crate) fn worker_stopped(queue: &str, node: &str) {
    info!(name: "dueq.worker_stopped", target: "dueq", queue, node, "the worker has stopped");
}

/// A call that is repeated, or that something else makes good.
pub(crate) fn call_failed(queue: &str, call: &'static str, error: &Error, then: &'static str) {
    warn!(name: "dueq.call_failed", target: "dueq", queue, call, %error, "{call} failed: {then}");
}

/// Calls of this kind had failed, and one has succeeded.
pub(crate) fn recovered(queue: &str, call: &'static str, failures: u32) {
    warn!(name: "dueq.recovered", target: "dueq", queue, call, failures, "{call} works again");
}

/// The first attempt of a call failed. The caller waits while the call is repeated.
pub(crate) fn call_repeated(error: &Error) {
    info!(name: "dueq.call_repeated", target: "dueq", %error, "the call failed: it is repeated for up to 10 s");
}

pub(crate) fn waiting_failed(queue: &str, error: &Error) {
    warn!(name: "dueq.waiting_failed", target: "dueq", queue, %error, "waiting for work failed");
}

pub(crate) fn listening_failed(queue: &str, error: &Error) {
    warn!(name: "dueq.listening_failed", target: "dueq", queue, %error, "listening for notices failed");
}

pub(crate) fn listening_denied(queue: &str, error: &Error) {
    warn!(name: "dueq.listening_denied", target: "dueq", queue, %error,
        "no right to listen for notices: messages may be up to a second late");
}

pub(crate) fn no_timer(error: &dyn fmt::Display) {
    warn!(name: "dueq.no_timer", target: "dueq", %error, "no thread for the timer: messages may be a millisecond later");
}

pub(crate) fn master_unknown(error: &Error) {
    warn!(name: "dueq.master_unknown", target: "dueq", %error, "looking for the master failed");
}

pub(crate) fn master_changed(old: &str, new: &str) {
    warn!(name: "dueq.master_changed", target: "dueq", old, new, "the master has changed");
}

pub(crate) fn server_unchecked(address: &str) {
    warn!(name: "dueq.server_unchecked", target: "dueq", address,
        "the user may not call INFO: version and eviction policy of the server are not checked");
}

pub(crate) fn server_not_persistent(address: &str) {
    warn!(name: "dueq.server_not_persistent", target: "dueq", address,
        "the server keeps no append-only file: a crash loses what it held (CONFIG SET appendonly yes)");
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}
