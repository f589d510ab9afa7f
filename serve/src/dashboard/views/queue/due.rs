//! The bars of due messages on the page of a queue, with a tab for each range of time.

use crate::dashboard::chart::{self, Due, Step};
use crate::dashboard::show::{Clock, Markup};
use crate::wire::overview::Dues;

/// The most bars of the tab that shows all messages.
const MAX_BARS: u64 = 50;
/// The latest time that the call accepts: the end of the year 9999.
const MAX_MS: u64 = 253_402_300_799_999;

/// One tab, for the template.
pub(super) struct Choice {
    pub(super) name: &'static str,
    pub(super) address: String,
    pub(super) is_current: bool,
}

/// How far ahead the bars reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tab {
    Hour,
    Day,
    TwoDays,
    All,
}

impl Tab {
    const ALL: [Self; 4] = [Self::Hour, Self::Day, Self::TwoDays, Self::All];

    /// The tab of this name.
    pub(super) fn named(word: Option<&str>) -> Option<Self> {
        let named = |word| Self::ALL.into_iter().find(|tab| tab.word() == word);
        word.and_then(named)
    }

    /// The tab that suits these counts: within an hour, within the rest of a day, and later. If nearly
    /// all of a day falls due within an hour, a day would be a single bar.
    pub(super) fn fit(hour: u64, rest_of_day: u64, later: u64) -> Self {
        match (hour, rest_of_day) {
            (0, 0) if later > 0 => Self::All,
            (hour, rest) if hour > 0 && rest <= hour / 9 => Self::Hour,
            _ => Self::Day,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::TwoDays => "48h",
            Self::All => "all",
        }
    }

    pub(super) fn choices(self, address: &str, range: &str) -> Vec<Choice> {
        let names = ["Hour", "Day", "48 h", "All"];
        let tabs = Self::ALL.into_iter().zip(names);
        tabs.map(|(tab, name)| Choice {
            name,
            address: format!("{address}?due={}&range={range}#due", tab.word()),
            is_current: tab == self,
        })
        .collect()
    }

    /// Now, and the bounds between the bars, which are round in the page's zone.
    pub(super) fn times(self, clock: &Clock, last_ms: u64) -> Vec<u64> {
        let now_ms = clock.now_ms();
        // The first bar covers only a part of a step, so there is one more bar than steps.
        let (step, bars) = match self {
            Self::Hour => (Step::Minutes(2), 31),
            Self::Day => (Step::Minutes(30), 49),
            Self::TwoDays => (Step::Minutes(60), 49),
            Self::All => {
                let length = last_ms.saturating_sub(now_ms).max(3_600_000);
                (Step::within(length, MAX_BARS), MAX_BARS as usize + 1)
            }
        };
        let mut times = vec![now_ms];
        for time in step.after(clock, now_ms, bars) {
            // Bars that begin after the last message would be empty.
            let is_over = self == Self::All
                && times.len() > 2
                && times.last().is_some_and(|begin| *begin > last_ms);
            if is_over || time > MAX_MS {
                break;
            }
            times.push(time);
        }
        times
    }

    fn caption(self, clock: &Clock) -> String {
        let within = match self {
            Self::Hour => "in the next hour",
            Self::Day => "in the next day",
            Self::TwoDays => "in the next 48 h",
            Self::All => "up to the last message",
        };
        format!("What falls due {within}, in {}", clock.zone().name())
    }
}

/// The times as a parameter of the call.
pub(super) fn addresses(times: &[u64]) -> String {
    let times: Vec<_> = times.iter().map(ToString::to_string).collect();
    times.join(",")
}

/// `ready` is the number of ready messages, if it is known.
pub(super) fn chart(
    tab: Tab,
    dues: &Dues,
    ready: Option<u64>,
    address: &str,
    clock: &Clock,
) -> Markup {
    let slots = dues.slots.iter().map(|slot| chart::Slot {
        from_ms: slot.from_ms,
        before_ms: slot.before_ms,
        count: slot.count,
    });
    let slots: Vec<_> = slots.collect();
    chart::due(&Due {
        caption: &tab.caption(clock),
        slots: &slots,
        ready,
        messages: &format!("{address}/messages"),
        clock,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::show::Zone;

    #[test]
    fn tab_suits_the_times_of_the_messages() {
        for (counts, tab) in [
            ((0, 0, 0), Tab::Day),
            ((90, 10, 5), Tab::Hour),
            ((90, 11, 0), Tab::Day),
            ((0, 1, 9), Tab::Day),
            ((0, 0, 1), Tab::All),
        ] {
            assert_eq!(Tab::fit(counts.0, counts.1, counts.2), tab, "{counts:?}");
        }
    }

    #[test]
    fn each_tab_asks_for_at_most_60_ascending_times() {
        let now = 1_796_299_230_000;
        let clock = Clock::now(Zone::named("Asia/Kathmandu").expect("a zone")).at(now);
        for tab in Tab::ALL {
            let mut length = 0;
            while length < 300_000_000_000_000 {
                let times = tab.times(&clock, now.saturating_add(length));
                assert_eq!(times[0], now);
                assert!(
                    (3..=60).contains(&times.len()),
                    "{tab:?} {length} {times:?}"
                );
                assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
                assert!(times.iter().all(|time| *time <= MAX_MS));
                length = length * 2 + 60_000;
            }
        }
        let week = Tab::All.times(&clock, now + 7 * 86_400_000);
        assert!(
            week.last() > Some(&(now + 7 * 86_400_000)),
            "all are in a bar"
        );
        assert!(Tab::All.times(&clock, 0).len() > 2, "all is overdue");
    }
}
