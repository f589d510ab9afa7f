//! `dueq_queue_*`: from the poller's snapshot. A scrape calls Redis for nothing.

use std::time::Duration;

use dueq::Stats;

use crate::auth::Principal;
use crate::metrics::text::Text;
use crate::poll::{Entry, Snapshot};

/// How many queues have series of their own: the first by name.
const MAX_QUEUES: usize = 1_000;
/// Counts are left out when Redis has not answered for longer, or when the queue has been unreadable
/// for longer: a number that nobody updates looks like a queue in which nothing happens.
const MAX_AGE: Duration = Duration::from_secs(30);
/// Counts without an error can be older: the poller asks 10,000 queues in 100 s.
const MAX_TURN: Duration = Duration::from_secs(150);

type Read = fn(&Stats) -> u64;

/// Milliseconds that are shown as seconds, and other gauges.
const GAUGES: [(&str, &str, bool, Read); 7] = [
    (
        "due",
        "Scheduled messages that are past their due time.",
        false,
        |stats| stats.due,
    ),
    (
        "overdue_seconds",
        "Age of the oldest due message that nobody has claimed.",
        true,
        |stats| stats.overdue_ms,
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

/// Writes the series of the queues that the caller may use.
pub(super) fn write(text: &mut Text, principal: &Principal, snapshot: &Snapshot) {
    let is_stale = snapshot.age().is_none_or(|age| age > MAX_AGE);
    let allowed = snapshot.after(None);
    let allowed: Vec<_> = allowed
        .filter(|(name, _)| principal.may_use(name))
        .collect();
    let omitted = allowed.len().saturating_sub(MAX_QUEUES);
    let shown = allowed.into_iter().take(MAX_QUEUES);
    let shown = shown.filter(|(_, entry)| !is_stale && is_current(entry));
    let shown: Vec<(&str, &Stats)> = shown
        .filter_map(|(name, entry)| Some((&**name, entry.stats()?)))
        .collect();
    write_queues(text, &shown);
    let age = snapshot
        .age()
        .map_or(f64::INFINITY, |age| age.as_secs_f64());
    let is_away = snapshot.failure().is_some();
    text.gauge(
        "dueq_queues_omitted",
        "Queues without series, because there are more than 1,000.",
        omitted as f64,
    );
    text.metric(
        "dueq_snapshot_age_seconds",
        "gauge",
        "How long ago Redis last answered the server's poller.",
    );
    text.sample("dueq_snapshot_age_seconds", &[], age);
    text.gauge(
        "dueq_redis_up",
        "1 if Redis answers the server's poller.",
        f64::from(u8::from(!is_away)),
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

fn write_queues(text: &mut Text, queues: &[(&str, &Stats)]) {
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
    use crate::auth::{QueuePattern, Role, Via};

    fn page(snapshot: &Snapshot) -> String {
        let all = vec![QueuePattern::all()];
        let caller = Principal::new("viewer", Via::Token, vec![Role::Viewer], all);
        let mut text = Text::default();
        write(&mut text, &caller, snapshot);
        text.into_string()
    }

    #[test]
    fn series_vanish_when_redis_has_been_away_for_30_s() {
        let ago = |s| Instant::now().checked_sub(Duration::from_secs(s));
        for (answered_s, asked_s, is_away, has_series) in [
            (0, 0, false, true),
            (29, 29, true, true),
            (31, 31, true, false),
            // Redis answers, and this queue's turn has not come for long.
            (0, 149, false, true),
            (0, 151, false, false),
        ] {
            let (Some(answered), Some(asked)) = (ago(answered_s), ago(asked_s)) else {
                return; // the machine has just started
            };
            let page = page(&Snapshot::with_queue("orders", answered, asked, is_away));
            let context = format!("{answered_s} {asked_s}: {page}");
            assert_eq!(page.contains("{queue=\"orders\""), has_series, "{context}");
            let up = format!("dueq_redis_up {}\n", u8::from(!is_away));
            assert!(page.contains(&up), "{context}");
            assert!(page.contains("dueq_snapshot_age_seconds "), "{context}");
        }
    }
}
