//! The metrics `dueq_queue_*`, from the poller's snapshot. A scrape makes no call of Redis.

use std::sync::Arc;
use std::time::Duration;

use dueq::QueueStats;
use dueq::metrics::PrometheusText;

use crate::edge::auth::Principal;
use crate::work::poll::{Entry, Snapshot};

/// If Redis has not answered for longer than this, all queues count as unreadable.
const SILENCE: Duration = Duration::from_secs(5);
/// Counts are left out if Redis has not answered for longer than this, or the queue was unreadable
/// for longer: numbers that do not change look like a queue in which nothing happens.
const MAX_AGE: Duration = Duration::from_secs(30);
/// Without an error, counts may be older than that: the poller needs 100 s for 10,000 queues.
const MAX_TURN: Duration = Duration::from_secs(150);

type Read = fn(&QueueStats) -> u64;

/// The gauges. The flag says whether a value is in milliseconds, and so shown in seconds.
const GAUGES: [(&str, &str, bool, Read); 8] = [
    (
        "due",
        "Scheduled messages that are past their due time.",
        false,
        |stats| stats.due,
    ),
    (
        "paused",
        "1 if an operator paused the queue.",
        false,
        |stats| u64::from(stats.paused),
    ),
    (
        "full",
        "1 if as many messages are leased as max_leased allows.",
        false,
        |stats| u64::from(stats.full),
    ),
    (
        "closed_seconds",
        "For how long nothing is claimed.",
        true,
        |stats| stats.closed_ms,
    ),
    (
        "changing",
        "1 if the number of partitions is being changed.",
        false,
        |stats| u64::from(stats.changing_to > 0),
    ),
    (
        "moving",
        "Messages on their way from one partition to another.",
        false,
        |stats| stats.moving,
    ),
    ("nodes", "Live workers.", false, |stats| stats.nodes),
    ("schedules", "Recurring schedules.", false, |stats| {
        stats.schedules
    }),
];

const STATES: [(&str, Read); 4] = [
    ("scheduled", |stats| stats.scheduled),
    ("ready", |stats| stats.ready),
    ("leased", |stats| stats.leased),
    ("dead", |stats| stats.dead),
];

const COUNTERS: [(&str, &str, Read); 15] = [
    ("pushed", "Messages pushed.", |stats| stats.pushed),
    ("claimed", "Deliveries made.", |stats| stats.claimed),
    ("acked", "Deliveries acked.", |stats| stats.acked),
    ("repeated", "Deliveries settled with again.", |stats| {
        stats.repeated
    }),
    ("retried", "Deliveries settled with retry.", |stats| {
        stats.retried
    }),
    ("snoozed", "Deliveries settled with snooze.", |stats| {
        stats.snoozed
    }),
    (
        "throttled",
        "Deliveries given back because the receiver asked for a break.",
        |stats| stats.throttled,
    ),
    ("released", "Deliveries released.", |stats| stats.released),
    ("crashed", "Leases that ran out.", |stats| stats.crashed),
    ("died", "Messages that died.", |stats| stats.died),
    ("expired", "Messages that expired.", |stats| stats.expired),
    ("cancelled", "Messages cancelled.", |stats| stats.cancelled),
    ("requeued", "Dead messages revived.", |stats| stats.requeued),
    ("purged", "Messages purged.", |stats| stats.purged),
    (
        "trimmed",
        "Dead messages trimmed by age or number.",
        |stats| stats.trimmed,
    ),
];

/// Writes the series of all queues that the caller may use.
pub(super) fn write(text: &mut PrometheusText, principal: &Principal, snapshot: &Snapshot) {
    let is_stale = snapshot.age().is_none_or(|age| age > MAX_AGE);
    let allowed = snapshot.after(None);
    let allowed: Vec<_> = allowed
        .filter(|(name, _)| principal.may_use(name))
        .collect();
    let omitted = allowed.len().saturating_sub(PrometheusText::MAX_QUEUES);
    let shown: Vec<_> = allowed
        .into_iter()
        .take(PrometheusText::MAX_QUEUES)
        .collect();
    let is_silent = snapshot.age().is_none_or(|age| age > SILENCE);
    write_overdue(text, &shown, is_silent);
    let current = shown
        .iter()
        .filter(|(_, entry)| !is_stale && is_current(entry));
    let read = current.filter_map(|(name, entry)| Some((&***name, *entry, entry.stats()?)));
    let read: Vec<_> = read.collect();
    let gauges: Vec<_> = read
        .iter()
        .map(|(name, _, stats)| (*name, *stats))
        .collect();
    write_gauges(text, &gauges);
    // Only queues of which all partitions were read: without some partitions a counter would drop,
    // and look as if it had restarted.
    let whole = read.iter().filter(|(_, entry, _)| entry.error().is_none());
    let whole: Vec<_> = whole.map(|(name, _, stats)| (*name, *stats)).collect();
    write_counters(text, &whole);
    let age = snapshot
        .age()
        .map_or(f64::INFINITY, |age| age.as_secs_f64());
    text.omitted(omitted);
    text.gauge(
        "dueq_snapshot_age_seconds",
        "How long ago Redis last answered the server's poller.",
        age,
    );
}

fn is_current(entry: &Entry) -> bool {
    let most = if entry.error().is_some() {
        MAX_AGE
    } else {
        MAX_TURN
    };
    entry.age().is_some_and(|age| age <= most)
}

/// Writes the series that alerts need, for each queue, whether it can be read or not.
fn write_overdue(text: &mut PrometheusText, queues: &[(&Arc<str>, &Entry)], is_silent: bool) {
    let name = "dueq_queue_unread";
    let help = "1 if the queue, or a part of it, cannot be read.";
    text.metric(name, "gauge", help);
    for (queue, entry) in queues {
        let is_unread = is_silent || entry.error().is_some();
        text.sample(name, &[("queue", queue)], f64::from(u8::from(is_unread)));
    }
    let name = "dueq_queue_overdue_seconds";
    let help = "Age of the oldest due message that nobody has claimed. Grows while a part of the queue cannot be read.";
    text.metric(name, "gauge", help);
    for (queue, entry) in queues {
        let Some(overdue_ms) = entry.overdue_ms() else {
            continue;
        };
        let unread = entry.age().filter(|_| is_silent && entry.error().is_none());
        let overdue = overdue_ms as f64 / 1_000.0 + unread.unwrap_or_default().as_secs_f64();
        text.sample(name, &[("queue", queue)], overdue);
    }
}

fn write_gauges(text: &mut PrometheusText, queues: &[(&str, &QueueStats)]) {
    let name = "dueq_queue_messages";
    text.metric(name, "gauge", "Messages by state.");
    for (queue, stats) in queues {
        for (state, read) in STATES {
            text.sample(
                name,
                &[("queue", queue), ("state", state)],
                read(stats) as f64,
            );
        }
    }
    for (what, help, is_ms, read) in GAUGES {
        let name = format!("dueq_queue_{what}");
        text.metric(&name, "gauge", help);
        for (queue, stats) in queues {
            let value = read(stats) as f64;
            let value = if is_ms { value / 1_000.0 } else { value };
            text.sample(&name, &[("queue", queue)], value);
        }
    }
}

fn write_counters(text: &mut PrometheusText, queues: &[(&str, &QueueStats)]) {
    for (what, help, read) in COUNTERS {
        let name = format!("dueq_queue_{what}_total");
        text.metric(&name, "counter", help);
        for (queue, stats) in queues {
            text.sample(&name, &[("queue", queue)], read(stats) as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::edge::auth::{NamePattern, Role, Via};

    fn page(snapshot: &Snapshot) -> String {
        let all = vec![NamePattern::all()];
        let caller = Principal::new("viewer", Via::Token, vec![Role::Viewer], all);
        let mut text = PrometheusText::default();
        write(&mut text, &caller, snapshot);
        text.into_string()
    }

    #[test]
    fn series_vanish_30_s_after_the_last_answer_of_redis() {
        let ago = |s| Instant::now().checked_sub(Duration::from_secs(s));
        for (answered_s, asked_s, is_away, has_series) in [
            (0, 0, false, true),
            (29, 29, true, true),
            (31, 31, true, false),
            // Redis answers, but the poller has not reached this queue for a long time.
            (0, 149, false, true),
            (0, 151, false, false),
        ] {
            let (Some(answered), Some(asked)) = (ago(answered_s), ago(asked_s)) else {
                return; // the machine's uptime is too short for this test
            };
            let page = page(&Snapshot::with_queue("orders", answered, asked, is_away));
            let context = format!("{answered_s} {asked_s}: {page}");
            let pushed = "dueq_queue_pushed_total{queue=\"orders\"";
            assert_eq!(page.contains(pushed), has_series, "{context}");
            let unread = format!(
                "dueq_queue_unread{{queue=\"orders\"}} {}",
                u8::from(answered_s > 5)
            );
            assert!(page.contains(&unread), "{context}");
            let overdue = page
                .lines()
                .find(|line| line.starts_with("dueq_queue_overdue_seconds{"));
            let overdue_s = overdue.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            let least_s = if answered_s > 5 { asked_s as f64 } else { 0.0 };
            assert!(overdue_s >= Some(least_s), "{context}");
            assert!(page.contains("dueq_snapshot_age_seconds "), "{context}");
        }
    }
}
