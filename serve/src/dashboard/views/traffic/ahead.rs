//! What falls due in all queues, stacked by queue.

use crate::dashboard::chart::{self, Layer, Stack};
use crate::dashboard::frame::segment;
use crate::dashboard::show::{self, Clock, Markup};
use crate::work::poll::{Due, DueSlot};

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
/// The most queues with a layer of their own; one layer is of all others.
const MAX_LAYERS: usize = 5;

/// A tab of the chart.
pub(super) struct ReachTab {
    pub(super) name: &'static str,
    pub(super) word: &'static str,
    pub(super) is_current: bool,
}

/// How far ahead the bars reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    Hour,
    Day,
    Week,
}

/// The chart, and the number of ticks in it.
pub(super) struct Ahead {
    pub(super) chart: Markup,
    pub(super) ticks: u64,
}

impl Reach {
    const ALL: [Self; 3] = [Self::Hour, Self::Day, Self::Week];

    /// The reach of this name, or the one that suits: if nearly all of a day falls due within an hour,
    /// a day would be a single bar.
    pub(super) fn of(word: Option<&str>, dues: &[(&str, &Due)], now_ms: u64) -> Self {
        let named = |word| Self::ALL.into_iter().find(|reach| reach.word() == word);
        let within = |length_ms| {
            let slots = dues.iter().flat_map(|(_, due)| &due.slots);
            let near = slots.filter(|slot| slot.from_ms < now_ms + length_ms);
            near.map(|slot| slot.messages + slot.ticks).sum::<u64>()
        };
        let suits = || match (within(HOUR_MS), within(24 * HOUR_MS)) {
            (hour, day) if hour > 0 && hour >= day / 10 * 9 => Self::Hour,
            _ => Self::Day,
        };
        word.and_then(named).unwrap_or_else(suits)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
        }
    }

    pub(super) fn tabs(current: Self) -> Vec<ReachTab> {
        let names = ["Hour", "Day", "Week"];
        let tabs = Self::ALL.into_iter().zip(names);
        tabs.map(|(reach, name)| ReachTab {
            name,
            word: reach.word(),
            is_current: reach == current,
        })
        .collect()
    }

    /// The length of a bar, and of all bars. The slots of the poller have such bounds.
    fn lengths(self) -> (u64, u64) {
        match self {
            Self::Hour => (5 * MINUTE_MS, HOUR_MS),
            Self::Day => (HOUR_MS, 24 * HOUR_MS),
            Self::Week => (8 * HOUR_MS, 7 * 24 * HOUR_MS),
        }
    }
}

impl Ahead {
    pub(super) fn new(reach: Reach, dues: &[(&str, &Due)], clock: &Clock, base: &str) -> Self {
        let (step, length) = reach.lengths();
        let (now_ms, end) = (clock.now_ms(), clock.now_ms() + length);
        let first = now_ms / step;
        let bars =
            (first..).map(|number| ((number * step).max(now_ms), ((number + 1) * step).min(end)));
        let bars: Vec<_> = bars.take_while(|(from, _)| *from < end).collect();
        let mut ticks = 0;
        let mut layers: Vec<_> = dues
            .iter()
            .map(|(name, due)| {
                let mut counts = vec![0; bars.len()];
                // The details of a queue may be a minute old: what was due since then is no bar.
                // A slot that is longer than a bar begins where the bars of that queue end.
                let fits = |slot: &&DueSlot| slot.before_ms - slot.from_ms <= step;
                for slot in due.slots.iter().filter(fits) {
                    let bar = (slot.from_ms / step).saturating_sub(first);
                    let is_past = slot.from_ms / step < first;
                    let bar = usize::try_from(bar).unwrap_or(usize::MAX);
                    if let Some(count) = counts.get_mut(bar).filter(|_| !is_past) {
                        *count += slot.messages + slot.ticks;
                        ticks += slot.ticks;
                    }
                }
                (counts.iter().sum::<u64>(), *name, counts)
            })
            .filter(|(sum, ..)| *sum > 0)
            .collect();
        layers.sort_by(|one, other| (other.0, one.1).cmp(&(one.0, other.1)));
        let rest = layers.split_off(layers.len().min(MAX_LAYERS));
        let mut layers: Vec<_> = layers
            .into_iter()
            .map(|(_, name, counts)| Layer {
                name: show::text(name),
                address: Some(format!("{base}/queues/{}", segment(name))),
                counts,
            })
            .collect();
        if !rest.is_empty() {
            let sum = |bar: usize| rest.iter().map(|(.., counts)| counts[bar]).sum();
            layers.push(Layer {
                name: format!("{} others", show::number(rest.len() as u64)),
                address: None,
                counts: (0..bars.len()).map(sum).collect(),
            });
        }
        let caption = format!("What falls due in the next {}, by queue", reach.word());
        Self {
            chart: chart::stack(&Stack {
                caption: &caption,
                bars: &bars,
                layers: &layers,
                clock,
            }),
            ticks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::show::Zone;

    /// 20 minutes after a full hour.
    const NOW: u64 = 1_796_300_400_000;

    fn ahead(reach: Reach, names: &[&str]) -> String {
        let slot = |from_ms, before_ms, messages, ticks| DueSlot {
            from_ms,
            before_ms,
            messages,
            ticks,
        };
        let due = Due {
            slots: vec![
                slot(NOW - 40_000, NOW + MINUTE_MS, 1, 0),
                slot(NOW + MINUTE_MS, NOW + 5 * MINUTE_MS, 10, 0),
                slot(NOW + HOUR_MS - 40_000, NOW + 2 * HOUR_MS - 40_000, 100, 1),
                slot(NOW + 24 * HOUR_MS - 40_000, NOW + 30 * HOUR_MS, 1_000, 0),
            ],
            schedules: Vec::new(),
        };
        let dues: Vec<_> = names.iter().map(|name| (*name, &due)).collect();
        let clock = Clock::now(Zone::default()).at(NOW);
        Ahead::new(reach, &dues, &clock, "").chart.to_string()
    }

    #[test]
    fn bars_of_all_reaches_add_up_the_slots_of_all_queues() {
        for (reach, bars, sum) in [
            (Reach::Hour, 13, 20),
            (Reach::Day, 25, 224),
            (Reach::Week, 22, 2_224),
        ] {
            let chart = ahead(reach, &["a", "b"]);
            let rows = chart.matches("<tr>").count() - 1;
            assert!(rows.abs_diff(bars) <= 1, "{reach:?}: {rows}");
            assert!(
                chart.contains(&format!("of {} in all", show::number(sum))),
                "{reach:?}: {chart}"
            );
        }
    }

    #[test]
    fn more_than_five_queues_are_one_layer() {
        let chart = ahead(Reach::Hour, &["a", "b", "c", "d", "e", "f", "<g>"]);
        assert!(chart.contains("2 others <strong>20</strong>"), "{chart}");
        assert!(
            chart.contains("href=\"/queues/a\">a</a> <strong>10</strong>"),
            "{chart}"
        );
    }
}
