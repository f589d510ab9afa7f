//! Every span and event that the library emits by `tracing`: names, levels and fields.
//! docs/telemetry.md explains them, and a test compares the two.
//!
//! The arguments are borrowed, and become text only if a subscriber records the event.

use std::fmt;
use std::time::Duration;

use tracing::field::Empty;
use tracing::{Span, debug, error, info, warn};

use crate::error::Error;

fn text(id: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(id)
}

/// The fields that name a delivery.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) queue: &'a str,
    pub(crate) id: &'a [u8],
    pub(crate) attempt: u32,
}

/// The span of a handler's run and its settlement. It is the root of a trace: the push, which may
/// be days ago, is linked and is not the parent.
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

/// The span of a batch handler's run.
pub(crate) fn handle_batch(queue: &str, messages: usize) -> Span {
    tracing::info_span!(
        target: "dueq",
        parent: None,
        "dueq.handle_batch",
        otel.kind = "consumer",
        queue,
        messages,
        handling_ms = Empty,
    )
}

/// Records how long the handler ran.
pub(crate) fn handled(span: &Span, took: Duration) {
    if !span.is_disabled() {
        span.record("handling_ms", millis(took));
    }
}

/// Records how the delivery ended.
pub(crate) fn outcome(span: &Span, outcome: &'static str) {
    span.record("outcome", outcome);
}

pub(crate) fn retried(of: Subject<'_>, due_ms: u64, error: &str) {
    info!(name: "dueq.retried", target: "dueq",
        queue = of.queue, id = &*text(of.id), attempt = of.attempt, due_ms, error,
        "the handler failed: the message will be retried");
}

pub(crate) fn died(of: Subject<'_>, error: &str) {
    warn!(name: "dueq.died", target: "dueq",
        queue = of.queue, id = &*text(of.id), attempt = of.attempt, error,
        "the handler failed, and there is no next attempt: the message is dead");
}

pub(crate) fn dropped(of: Subject<'_>, error: &str) {
    warn!(name: "dueq.dropped", target: "dueq",
        queue = of.queue, id = &*text(of.id), attempt = of.attempt, error,
        "the message expires before its next attempt: it was removed, as its push asked");
}

pub(crate) fn snoozed(of: Subject<'_>, due_ms: u64) {
    debug!(name: "dueq.snoozed", target: "dueq",
        queue = of.queue, id = &*text(of.id), attempt = of.attempt, due_ms,
        "the handler snoozed the message");
}

pub(crate) fn throttled(of: Subject<'_>, until_ms: u64) {
    info!(name: "dueq.throttled", target: "dueq",
        queue = of.queue, id = &*text(of.id), attempt = of.attempt, until_ms,
        "the receiver asked for a break: the queue is closed");
}

pub(crate) fn undecodable(of: Subject<'_>, reason: &str) {
    warn!(name: "dueq.undecodable", target: "dueq",
        queue = of.queue, id = &*text(of.id), attempt = of.attempt, reason,
        "the payload does not decode: the message is buried");
}

pub(crate) fn buried(of: Subject<'_>, reason: &str) {
    warn!(name: "dueq.buried", target: "dueq",
        queue = of.queue, id = &*text(of.id), attempt = of.attempt, reason,
        "the handler buried the message");
}

pub(crate) fn released(of: Subject<'_>) {
    debug!(name: "dueq.released", target: "dueq",
        queue = of.queue, id = &*text(of.id), attempt = of.attempt,
        "the message was released without counting an attempt");
}

pub(crate) fn settle_failed(of: Subject<'_>, error: &Error) {
    warn!(name: "dueq.settle_failed", target: "dueq",
        queue = of.queue, id = &*text(of.id), attempt = of.attempt, %error,
        "a delivery could not be settled: it is delivered again when its lease runs out");
}

pub(crate) fn lease_lost(of: Subject<'_>, why: &'static str) {
    warn!(name: "dueq.lease_lost", target: "dueq",
        queue = of.queue, id = &*text(of.id), attempt = of.attempt, why,
        "the lease was lost");
}

pub(crate) fn extend_failed(queue: &str, error: &Error) {
    warn!(name: "dueq.extend_failed", target: "dueq",
        queue, %error,
        "a lease could not be extended: it is tried again");
}

pub(crate) fn drop_panicked(panic: &str) {
    error!(name: "dueq.drop_panicked", target: "dueq",
        panic,
        "a handler panicked while it was dropped");
}

pub(crate) fn reaped(queue: &str, messages: u64) {
    info!(name: "dueq.reaped", target: "dueq",
        queue, messages,
        "leases ran out: their messages will be delivered again");
}

pub(crate) fn store_emptied(queue: &str) {
    error!(name: "dueq.store_emptied", target: "dueq", queue,
        "the store was emptied or replaced: the messages of the queue are gone");
}

pub(crate) fn worker_started(queue: &str, node: &str, concurrency: usize, lease_ms: u64) {
    info!(name: "dueq.worker_started", target: "dueq",
        queue, node, concurrency, lease_ms,
        "the worker has started");
}

pub(crate) fn worker_stopped(queue: &str, node: &str) {
    info!(name: "dueq.worker_stopped", target: "dueq", queue, node, "the worker has stopped");
}

/// A call failed; `then` says how the node recovers.
pub(crate) fn call_failed(queue: &str, call: &'static str, error: &Error, then: &'static str) {
    warn!(name: "dueq.call_failed", target: "dueq", queue, call, %error, "{call} failed: {then}");
}

/// A call succeeded after `failures` failed ones.
pub(crate) fn recovered(queue: &str, call: &'static str, failures: u32) {
    warn!(name: "dueq.recovered", target: "dueq", queue, call, failures, "{call} works again");
}

/// The first try of a call failed; it is repeated while the caller waits.
pub(crate) fn call_repeated(error: &Error) {
    info!(name: "dueq.call_repeated", target: "dueq",
        %error,
        "the call failed: it is repeated for up to 10 s");
}

pub(crate) fn wake_up_failed(queue: &str, error: &Error) {
    warn!(name: "dueq.wake_up_failed", target: "dueq",
        queue, %error,
        "waiting on the wake-up list failed: it is tried again");
}

pub(crate) fn subscription_failed(queue: &str, error: &Error) {
    warn!(name: "dueq.subscription_failed", target: "dueq",
        queue, %error,
        "the subscription to notices failed: it is tried again");
}

pub(crate) fn subscription_denied(queue: &str, error: &Error) {
    warn!(name: "dueq.subscription_denied", target: "dueq", queue, %error,
        "the user has no right to subscribe to notices: messages may be up to a second late");
}

pub(crate) fn queue_refused(queue: &str, error: &Error) {
    error!(name: "dueq.queue_refused", target: "dueq", queue, %error,
        "the worker cannot attend this queue");
}

pub(crate) fn schedule_dry(queue: &str, schedule: &str) {
    warn!(name: "dueq.schedule_dry", target: "dueq", queue, schedule,
        "the schedule had no more listed fires: it goes on by its policy of missed fires");
}

pub(crate) fn cannot_refill(queue: &str) {
    warn!(name: "dueq.cannot_refill", target: "dueq", queue,
        "lists of fires run low, and this worker cannot compute crons: compile dueq with the feature schedules, \
         or run dueq schedule keep");
}

pub(crate) fn refill_refused(queue: &str, reason: &str) {
    warn!(name: "dueq.refill_refused", target: "dueq", queue, reason,
        "the fires of a schedule cannot be listed");
}

pub(crate) fn scan_failed(pattern: &str, error: &Error) {
    warn!(name: "dueq.scan_failed", target: "dueq", pattern, %error,
        "the scan for queues failed: it is repeated until it succeeds");
}

pub(crate) fn new_queues_unheard(error: &Error) {
    warn!(name: "dueq.new_queues_unheard", target: "dueq", %error,
        "creations of queues are not heard: scans find them, until the subscription succeeds");
}

pub(crate) fn scan_time(steps: u32, seconds: u64, is_listening: bool) {
    info!(name: "dueq.scan_time", target: "dueq", steps, seconds, is_listening,
        "about so long a scan takes to find a queue whose creation was not heard");
}

pub(crate) fn too_many_queues(pattern: &str, limit: usize) {
    warn!(name: "dueq.too_many_queues", target: "dueq", pattern, limit,
        "the pattern matches more queues than the worker attends");
}

pub(crate) fn no_timer(error: &dyn fmt::Display) {
    warn!(name: "dueq.no_timer", target: "dueq",
        %error,
        "the timer thread could not be started: messages may be a millisecond later");
}

pub(crate) fn master_unknown(error: &Error) {
    warn!(name: "dueq.master_unknown", target: "dueq",
        %error,
        "no Sentinel named a usable master: it is tried again");
}

pub(crate) fn master_changed(old: &str, new: &str) {
    warn!(name: "dueq.master_changed", target: "dueq", old, new, "the master has changed");
}

pub(crate) fn cluster_unknown(error: &Error) {
    warn!(name: "dueq.cluster_unknown", target: "dueq",
        %error,
        "no server of the cluster named the masters: they are asked again");
}

pub(crate) fn map_copied(queue: &str, error: &Error) {
    warn!(name: "dueq.map_copied", target: "dueq", queue, %error,
        "the home of the queue is away or lost its map: the client goes on by another partition's \
         copy");
}

pub(crate) fn drained(queue: &str, node: &str, is_drained: bool) {
    if is_drained {
        warn!(name: "dueq.drained", target: "dueq", queue, node,
            "an operator has drained this worker: it takes no more messages of the queue until it is resumed");
    } else {
        info!(name: "dueq.undrained", target: "dueq", queue, node,
            "the worker takes messages of the queue again");
    }
}

pub(crate) fn queue_moved(queue: &str, url: &str) {
    warn!(name: "dueq.queue_moved", target: "dueq", queue, url,
        "the queue has moved to another store: this worker gets none of its messages any more; start \
         workers there, and stop this one");
}

pub(crate) fn master_left(address: &str) {
    warn!(name: "dueq.master_left", target: "dueq", address,
        "a server of the cluster serves no slots any more: its calls in flight end");
}

pub(crate) fn credentials_unusable(reason: &str) {
    error!(name: "dueq.credentials_unusable", target: "dueq", reason,
        "new connections use the last good credentials; the next one reads them again");
}

pub(crate) fn server_unchecked(address: &str) {
    warn!(name: "dueq.server_unchecked", target: "dueq", address,
        "no right to call INFO: the server's version and eviction policy are not checked");
}

pub(crate) fn server_not_persistent(address: &str) {
    warn!(name: "dueq.server_not_persistent", target: "dueq", address,
        "no append-only file: a crash loses messages (remedy: CONFIG SET appendonly yes)");
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}
