//! The report of a measurement, as text and as JSON.

use std::io;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::json;

use crate::commands::bench::figures::{Bar, PERCENTILES};
use crate::commands::bench::load::{Lateness, PAYLOAD_BYTES, Throughput};
use crate::commands::bench::server::{Cost, Waiting};
use crate::output;

/// The length of the longest bar, in characters.
const WIDTH: u64 = 50;

pub(super) struct Report {
    pub(super) queue: String,
    pub(super) waiting: Option<Waiting>,
    pub(super) throughput: Throughput,
    pub(super) lateness: Lateness,
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
        let (lateness, cost) = (&self.lateness, Cost::json);
        let bars = lateness.late_us.histogram();
        let bars: Vec<_> = bars
            .iter()
            .map(|bar| json!({ "up_to_ms": bar.up_to_ms, "count": bar.count }))
            .collect();
        json!({
            "queue": self.queue,
            "life_per_s": self.throughput.life_per_s.round(),
            "push_ms": self.throughput.push_us.json(),
            "pushes": self.throughput.push_us.count(),
            "rate_per_s": lateness.rate,
            "lateness_ms": lateness.late_us.json(),
            "lateness_count": lateness.late_us.count(),
            "histogram": bars,
            "waiting": self.waiting.map(Waiting::json),
            "throughput_cost": self.throughput.cost.map(cost),
            "rate_cost": lateness.cost.map(cost),
        })
    }

    fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["ms", "p50", "p90", "p99", "p99.9", "p99.99", "max"]);
        let late_us = &self.lateness.late_us;
        let lateness = format!("lateness at {}/s", self.lateness.rate);
        for (title, figures) in [
            ("push, 64 callers", &self.throughput.push_us),
            (&lateness, late_us),
        ] {
            let cells =
                PERCENTILES.map(|(_, share)| format!("{:.2}", figures.percentile_ms(share)));
            table.add_row([title.to_owned()].into_iter().chain(cells));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!(
            "{:.0} messages a second pushed, delivered and acknowledged\n\n{}\n\nlateness of {} messages by the server's clock: up to this time, number of messages\n{}\n\n{}",
            self.throughput.life_per_s,
            table.trim_fmt(),
            late_us.count(),
            bars(&late_us.histogram()),
            self.server(),
        )
    }

    /// The lines about the server's capacity.
    fn server(&self) -> String {
        let (Some(waiting), Some(busy), Some(steady)) =
            (self.waiting, self.throughput.cost, self.lateness.cost)
        else {
            return "memory and processor time of Redis are unknown: this is a cluster, or the user may not run INFO".to_owned();
        };
        format!(
            "{}\n{}\n{}",
            waiting.text(PAYLOAD_BYTES),
            busy.text(),
            steady.text()
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
        // At least one character: a bar with few messages stays visible.
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
    use crate::commands::bench::figures::Figures;

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
