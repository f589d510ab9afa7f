//! What happened in all queues in the last hour.

use std::collections::BTreeMap;

use crate::dashboard::chart::{self, Counter, Flow, LATEST, Lines, Slice};
use crate::dashboard::show::{self, Clock, Markup};
use crate::work::poll::Lately;

const MINUTE_MS: u64 = 60_000;
const MINUTES: u64 = 60;

/// The charts of the last hour, and the troubles of the last ten minutes.
pub(super) struct Past {
    pub(super) flow: Markup,
    pub(super) lateness: Markup,
    pub(super) died: u64,
    pub(super) crashed: u64,
    /// The latest queue: its name and p99.
    pub(super) latest: Option<(String, String)>,
}

#[derive(Default, Clone)]
struct MinuteOfAll {
    counts: [u64; 4],
    delivered: u64,
    p99_us: Option<u64>,
}

impl Past {
    pub(super) fn new(all: &[(&str, &Lately)], clock: &Clock) -> Self {
        let first = (clock.now_ms() / MINUTE_MS + 1).saturating_sub(MINUTES) * MINUTE_MS;
        let mut minutes: BTreeMap<u64, MinuteOfAll> = BTreeMap::new();
        for (_, lately) in all {
            for minute in lately
                .minutes
                .iter()
                .filter(|minute| minute.start_ms >= first)
            {
                let sum = minutes.entry(minute.start_ms).or_default();
                let counts = [minute.pushed, minute.acked, minute.crashed, minute.died];
                for (sum, count) in sum.counts.iter_mut().zip(counts) {
                    *sum += count;
                }
                sum.delivered += minute.acked;
                sum.p99_us = sum.p99_us.max(minute.p99_us);
            }
        }
        let starts = (0..MINUTES).map(|number| first + number * MINUTE_MS);
        let slots: Vec<_> = starts.map(|start| (start, start + MINUTE_MS)).collect();
        let counters = [
            ("pushed", false),
            ("handled", false),
            ("crashed", true),
            ("died", true),
        ];
        let counters = counters.into_iter().enumerate();
        let counters = counters.map(|(place, (name, is_bad))| {
            let count =
                |(start, _): &(u64, u64)| minutes.get(start).map(|minute| minute.counts[place]);
            Counter {
                name,
                is_bad,
                counts: slots.iter().map(count).collect(),
            }
        });
        let slices = slots.iter().map(|(from_ms, before_ms)| {
            let minute = minutes.get(from_ms);
            Slice {
                from_ms: *from_ms,
                before_ms: *before_ms,
                count: minute.map_or(0, |minute| minute.delivered),
                times_us: minute.and_then(|minute| minute.p99_us).map(|us| vec![us]),
                note: None,
            }
        });
        let latest = all
            .iter()
            .filter_map(|(name, lately)| Some((lately.recent.p99_us?, *name)));
        let most_us = minutes.values().filter_map(|minute| minute.p99_us).max();
        let sum = |count: fn(&Lately) -> u64| all.iter().map(|(_, lately)| count(lately)).sum();
        Self {
            flow: chart::flow(&Flow {
                caption: "Each minute",
                slots: &slots,
                counters: &counters.collect::<Vec<_>>(),
                clock,
            }),
            lateness: chart::lines(&Lines {
                id: "lateness-chart",
                caption: "Lateness: from the due time to the start of the handler",
                names: LATEST,
                slices: &slices.collect::<Vec<_>>(),
                of_all: most_us.map(|us| vec![us]),
                clock,
            }),
            died: sum(|lately| lately.recent.died),
            crashed: sum(|lately| lately.recent.crashed),
            latest: latest
                .max()
                .map(|(us, name)| (show::text(name), show::micros(us))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::show::Zone;
    use crate::work::poll::Minute;

    #[test]
    fn minutes_of_all_queues_are_added_up() {
        let now = 1_796_300_400_000;
        let lately = |p99_ms: u64, pushed| {
            let mut lately = Lately::default();
            lately.recent.p99_us = Some(p99_ms * 1_000);
            lately.recent.died = 2;
            lately.minutes.push(Minute {
                start_ms: now - MINUTE_MS,
                pushed,
                acked: 1,
                crashed: 0,
                died: 2,
                p99_us: Some(p99_ms * 1_000),
            });
            lately
        };
        let (one, other) = (lately(5, 30), lately(7_000, 4));
        let clock = Clock::now(Zone::default()).at(now);
        let past = Past::new(&[("a", &one), ("b", &other)], &clock);
        assert_eq!(past.latest, Some(("b".to_owned(), "7 s".to_owned())));
        assert_eq!((past.died, past.crashed), (4, 0));
        let flow = past.flow.to_string();
        assert!(
            flow.contains("pushed 34 · handled 2 · crashed 0 · died 4</title>"),
            "{flow}"
        );
        assert!(
            past.lateness
                .to_string()
                .contains("p99 of the worst queue 7 s</title>")
        );
    }
}
