//! `dueq history`: what happened in a queue in each minute, hour or day.

use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use dueq::inspect::{HistoryPoint, HistoryResolution, TimeHistogram};
use serde_json::{Map, Value};

use crate::output::Outcome;
use crate::{Common, existing, output};

#[derive(Args)]
#[command(after_help = "\
Prints a line for each minute of the last hour in which something happened, by the server's clock in
UTC. The counts are of all workers and producers, and survive their restarts. Lateness is the time
from the due time to the start of the handler: half of the messages were at most p50 late, 99 of 100
at most p99. Both are at most 1.42 times too high. `scheduled` and `dead` are the numbers of messages
at the end.

Workers report it every 5 s, so what happens in the last 6 s of a minute may count in the next one.
While no worker runs, nothing is recorded: the first line after that has the counts of the pause.

Examples:
  dueq history orders
  dueq history orders --hours
  dueq history orders --days --json | jq '[.start_ms, .pushed, .lateness.p99_us]'")]
pub(crate) struct History {
    /// The queue
    queue: String,
    /// The last 168 hours
    #[arg(long)]
    hours: bool,
    /// The last 90 days
    #[arg(long, conflicts_with = "hours")]
    days: bool,
}

impl History {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let client = common.client_to_read().await?;
        let queue = common.queue_of(&client, &self.queue)?;
        existing::require(&client, &queue).await?;
        let resolution = match (self.hours, self.days) {
            (true, _) => HistoryResolution::Hours,
            (_, true) => HistoryResolution::Days,
            _ => HistoryResolution::Minutes,
        };
        let points = queue.history(resolution).await?.points;
        if common.json {
            for point in &points {
                output::json_line(&object(&self.queue, point))?;
            }
        } else if points.is_empty() {
            common.remark("nothing was recorded: workers record what happens while they run");
        } else {
            output::line(table(resolution, &points).trim_end())?;
        }
        Ok(Outcome::Done)
    }
}

const HEADER: [&str; 12] = [
    "from",
    "pushed",
    "delivered",
    "acked",
    "retried",
    "crashed",
    "cancelled",
    "died",
    "late p50",
    "late p99",
    "scheduled",
    "dead",
];

fn table(resolution: HistoryResolution, points: &[HistoryPoint]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(HEADER);
    let mut next_ms = None;
    for point in points {
        let missing = next_ms.map_or(0, |next: u64| {
            point.start_ms.saturating_sub(next) / resolution.slot_ms()
        });
        if missing > 0 {
            table.add_row([gap(resolution, missing)]);
        }
        table.add_row(row(resolution, point));
        next_ms = Some(point.start_ms + resolution.slot_ms());
    }
    for index in 1..HEADER.len() {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!("{}\n", table.trim_fmt())
}

/// The row that replaces `missing` slots in which nothing happened.
fn gap(resolution: HistoryResolution, missing: u64) -> String {
    let unit = match resolution {
        HistoryResolution::Minutes => "min",
        HistoryResolution::Hours => "h",
        HistoryResolution::Days => "d",
    };
    format!("... {missing} {unit} of nothing")
}

fn row(resolution: HistoryResolution, point: &HistoryPoint) -> [String; 12] {
    let moment = output::moment(point.start_ms);
    let from = match resolution {
        HistoryResolution::Days => moment.get(..10),
        _ => moment.get(..16),
    };
    let late = |part| {
        point
            .lateness
            .quantile_us(part)
            .map(shown)
            .unwrap_or_default()
    };
    [
        from.unwrap_or(&moment).replace('T', " "),
        point.pushed.to_string(),
        point.claimed.to_string(),
        point.acked.to_string(),
        point.retried.to_string(),
        point.crashed.to_string(),
        point.cancelled.to_string(),
        point.died.to_string(),
        late(0.5),
        late(0.99),
        point.scheduled.to_string(),
        point.dead.to_string(),
    ]
}

/// Formats a duration for people, in a fitting unit.
fn shown(us: u64) -> String {
    match us {
        u64::MAX => "> 12 d".to_owned(),
        0..10_000 => format!("{:.2} ms", us as f64 / 1e3),
        10_000..1_000_000 => format!("{} ms", us / 1_000),
        1_000_000..600_000_000 => format!("{:.1} s", us as f64 / 1e6),
        600_000_000..36_000_000_000 => format!("{} min", us / 60_000_000),
        _ => format!("{} h", us / 3_600_000_000),
    }
}

fn object(queue: &str, point: &HistoryPoint) -> Value {
    let mut object = Map::new();
    object.insert("queue".to_owned(), queue.into());
    let numbers = [
        ("start_ms", point.start_ms),
        ("end_ms", point.end_ms),
        ("scheduled", point.scheduled),
        ("ready", point.ready),
        ("leased", point.leased),
        ("dead", point.dead),
    ];
    let numbers = numbers.into_iter().chain(point.counts());
    object.extend(numbers.map(|(name, number)| (name.to_owned(), number.into())));
    object.insert("lateness".to_owned(), times(&point.lateness));
    object.insert("handling".to_owned(), times(&point.handling));
    Value::Object(object)
}

/// The quantiles as JSON; `null` if nothing was timed.
fn times(times: &TimeHistogram) -> Value {
    serde_json::json!({
        "count": times.count(),
        "p50_us": times.quantile_us(0.5),
        "p90_us": times.quantile_us(0.9),
        "p99_us": times.quantile_us(0.99),
        "p100_us": times.quantile_us(1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(minute: u64, pushed: u64) -> HistoryPoint {
        let mut point = HistoryPoint::default();
        point.start_ms = 1_700_000_040_000 + minute * 60_000;
        point.pushed = pushed;
        point
    }

    #[test]
    fn slots_without_events_are_shown_as_a_gap() {
        let shown = table(
            HistoryResolution::Minutes,
            &[point(0, 5), point(1, 6), point(26, 7)],
        );
        let words: Vec<Vec<_>> = shown
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(words[1][..3], ["2023-11-14", "22:14", "5"]);
        assert_eq!(words[2][..3], ["2023-11-14", "22:15", "6"]);
        assert_eq!(words[3], ["...", "24", "min", "of", "nothing"]);
        assert_eq!(words[4][..3], ["2023-11-14", "22:40", "7"]);
    }

    #[test]
    fn durations_are_shown_in_a_fitting_unit() {
        let texts = [128, 9_999, 11_585, 1_048_576, 1 << 33, 1 << 40, u64::MAX].map(shown);
        assert_eq!(
            texts,
            [
                "0.13 ms", "10.00 ms", "11 ms", "1.0 s", "143 min", "305 h", "> 12 d"
            ]
        );
    }
}
