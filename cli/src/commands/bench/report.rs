//! The report of a measurement, as text and as JSON.

use std::io;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::json;

use crate::commands::bench::figures::{Bar, Figures, PERCENTILES};
use crate::commands::bench::load::Throughput;
use crate::output;

/// The length of the longest bar, in characters.
const WIDTH: u64 = 50;

pub(super) struct Report {
    pub(super) queue: String,
    pub(super) throughput: Throughput,
    /// The messages a second of the lateness phase.
    pub(super) rate: u64,
    pub(super) lateness: Figures,
}

impl Report {
    pub(super) fn print(&self, json: bool) -> io::Result<()> {
        if json {
            output::json_line(&self.json())
        } else {
            output::line(&self.text())
        }
    }

    fn json(&self) -> serde_json::Value {
        let bars = self.lateness.histogram();
        let bars: Vec<_> = bars
            .iter()
            .map(|bar| json!({ "up_to_ms": bar.up_to_ms, "count": bar.count }))
            .collect();
        json!({
            "queue": self.queue,
            "life_per_s": self.throughput.life_per_s.round(),
            "push_ms": self.throughput.push_us.json(),
            "pushes": self.throughput.push_us.count(),
            "rate_per_s": self.rate,
            "lateness_ms": self.lateness.json(),
            "lateness_count": self.lateness.count(),
            "histogram": bars,
        })
    }

    fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["ms", "p50", "p90", "p99", "p99.9", "p99.99", "max"]);
        let lateness = format!("lateness at {}/s", self.rate);
        for (title, figures) in [
            ("push, 64 callers", &self.throughput.push_us),
            (&lateness, &self.lateness),
        ] {
            let cells =
                PERCENTILES.map(|(_, share)| format!("{:.2}", figures.percentile_ms(share)));
            table.add_row([title.to_owned()].into_iter().chain(cells));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!(
            "{:.0} messages a second pushed, delivered and acknowledged\n\n{}\n\nlateness of {} messages by the server's clock: up to this time, number of messages\n{}",
            self.throughput.life_per_s,
            table.trim_fmt(),
            self.lateness.count(),
            bars(&self.lateness.histogram()),
        )
    }
}

fn bars(histogram: &[Bar]) -> String {
    let most = histogram
        .iter()
        .map(|bar| bar.count)
        .max()
        .unwrap_or(0)
        .max(1);
    let lines = histogram.iter().map(|bar| {
        // A bar with few messages is visible too.
        let length = (bar.count * WIDTH).div_ceil(most);
        let line = format!(
            "{:>9.2} ms {:>8} {}",
            bar.up_to_ms,
            bar.count,
            "#".repeat(length as usize)
        );
        line.trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_bar_fills_the_width_and_shortest_is_visible() {
        let figures = Figures::new([vec![400; 1_000], vec![900], vec![100]].concat());
        let shown = bars(&figures.histogram());
        let lengths: Vec<_> = shown
            .lines()
            .map(|line| line.matches('#').count())
            .collect();
        assert_eq!(lengths, [1, 50, 1]);
        assert!(shown.starts_with("     0.25 ms        1 #\n"), "{shown}");
    }
}
