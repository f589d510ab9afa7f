//! Rows of bars, one row a counter: how often something happened in each slot of time.

use std::fmt::Write;

use crate::dashboard::chart::figure::{AXIS, Figure, slots, times};
use crate::dashboard::chart::scale::height;
use crate::dashboard::chart::time::span;
use crate::dashboard::show::{Clock, Markup, number};

const PIXELS: u64 = 24;
/// The height of a row: as of its name beside it.
const ROW: u64 = 32;
/// `STEP` is the width of a slot in the drawing before it is stretched, `BAR` the width of its bar.
const STEP: u64 = 10;
const BAR: u64 = 8;

/// One counter and its values.
pub(in crate::dashboard) struct Counter {
    pub(in crate::dashboard) name: &'static str,
    /// Whether the counter counts trouble: its bars are red.
    pub(in crate::dashboard) is_bad: bool,
    /// The value in each slot; `None` where nothing was recorded.
    pub(in crate::dashboard) counts: Vec<Option<u64>>,
}

/// The data of the chart.
pub(in crate::dashboard) struct Flow<'a> {
    pub(in crate::dashboard) caption: &'a str,
    /// The begin and the end of each slot.
    pub(in crate::dashboard) slots: &'a [(u64, u64)],
    pub(in crate::dashboard) counters: &'a [Counter],
    pub(in crate::dashboard) clock: &'a Clock,
}

impl Counter {
    fn sum(&self) -> u64 {
        let counts = self.counts.iter().flatten();
        counts.fold(0, |sum, count| sum.saturating_add(*count))
    }

    fn most(&self) -> u64 {
        self.counts.iter().flatten().copied().max().unwrap_or(0)
    }
}

/// Draws a row of bars for each counter. Each row has its own scale, so that one crash is visible
/// beside a million pushes; the number "peak" states it.
pub(in crate::dashboard) fn flow(flow: &Flow<'_>) -> Markup {
    let mut names = vec!["Time"];
    names.extend(flow.counters.iter().map(|counter| counter.name));
    let rows = flow
        .slots
        .iter()
        .enumerate()
        .map(|(place, (from, before))| {
            let mut row = vec![Markup::escaped(&span(flow.clock, *from, *before))];
            row.extend(flow.counters.iter().map(|counter| {
                let count = counter.counts.get(place).copied().flatten();
                count.map_or_else(|| "–".to_owned(), number)
            }));
            row
        });
    Figure {
        id: "flow",
        caption: flow.caption,
        is_titled: false,
        legend: String::new(),
        drawing: drawing(flow),
        columns: &names,
        rows: rows.collect(),
    }
    .markup()
}

fn drawing(flow: &Flow<'_>) -> String {
    let mut names = String::from("<ul class=\"rows\">");
    let mut area = String::new();
    let width = flow.slots.len().max(1) as u64 * STEP;
    let mut y = 0;
    for counter in flow.counters {
        let (name, sum, most) = (counter.name, number(counter.sum()), number(counter.most()));
        let class = if counter.is_bad { "bar bad" } else { "bar" };
        let path = path(counter);
        // Writing to a `String` cannot fail.
        let _ = write!(
            names,
            "<li><strong>{name}</strong> <span>{sum}</span> <span class=\"quiet\">peak {most}</span></li>"
        );
        let _ = write!(
            area,
            "<svg y=\"{y}\" width=\"100%\" height=\"{PIXELS}\" viewBox=\"0 0 {width} {PIXELS}\" \
             preserveAspectRatio=\"none\"><path class=\"{class}\" d=\"{path}\"/></svg>"
        );
        y += ROW;
    }
    let begin = flow.slots.first().map_or(0, |(from, _)| *from);
    let end = flow.slots.last().map_or(0, |(_, before)| *before);
    let values = flow
        .slots
        .iter()
        .enumerate()
        .map(|(place, (from, before))| {
            let mut text = span(flow.clock, *from, *before);
            for counter in flow.counters {
                let count = counter.counts.get(place).copied().flatten();
                let count = count.map_or_else(|| "–".to_owned(), number);
                let _ = write!(text, " · {} {count}", counter.name);
            }
            (place as u64 * STEP, STEP, text)
        });
    area += &slots(values, width, y);
    area += &times(flow.clock, (begin, end), y, |ms| {
        (ms.saturating_sub(begin), end.saturating_sub(begin))
    });
    format!(
        "<div class=\"plot\">{names}</ul><svg class=\"area\" role=\"img\" aria-label=\"{}\" \
         height=\"{}\">{area}</svg></div>",
        Markup::escaped(flow.caption),
        y + AXIS
    )
}

/// The SVG path of a counter's bars, with a line below the slots that have a record.
fn path(counter: &Counter) -> String {
    let most = counter.most();
    let mut path = String::new();
    for (count, place) in counter.counts.iter().zip(0..) {
        let Some(count) = count else { continue };
        let x = place * STEP;
        let y = PIXELS - 1 - height(*count, most, PIXELS - 1);
        let _ = write!(path, "M{x} {PIXELS}V{y}h{BAR}V{PIXELS}Z");
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::show::Zone;

    fn chart(counts: &[Option<u64>]) -> String {
        let slots = counts.iter().zip(0..);
        let slots: Vec<_> = slots
            .map(|(_, at)| (at * 60_000, (at + 1) * 60_000))
            .collect();
        let counter = Counter {
            name: "pushed",
            is_bad: false,
            counts: counts.to_vec(),
        };
        flow(&Flow {
            caption: "Flow",
            slots: &slots,
            counters: &[counter],
            clock: &Clock::now(Zone::default()).at(0),
        })
        .to_string()
    }

    #[test]
    fn bars_have_gaps_where_nothing_was_recorded() {
        let chart = chart(&[Some(2), None, Some(0), Some(4)]);
        assert!(
            chart.contains("d=\"M0 24V12h8V24ZM20 24V23h8V24ZM30 24V0h8V24Z\""),
            "{chart}"
        );
        assert!(
            chart.contains("<span>6</span> <span class=\"quiet\">peak 4</span>"),
            "{chart}"
        );
        assert!(
            chart.contains("<title>1970-01-01 00:03 – 00:04 UTC · pushed 4</title>"),
            "{chart}"
        );
        assert_eq!(chart.matches("<td>–</td>").count(), 1);
    }

    #[test]
    fn chart_draws_no_data_equal_counts_and_u64_max() {
        for counts in [
            &[][..],
            &[None],
            &[Some(0), Some(0)],
            &[Some(7), Some(7)],
            &[Some(u64::MAX), Some(u64::MAX), Some(1)],
        ] {
            let chart = chart(counts);
            assert!(!chart.contains("NaN"), "{chart}");
            let bars = counts.iter().flatten().count();
            assert_eq!(chart.matches("24Z").count(), bars, "{chart}");
        }
    }
}
