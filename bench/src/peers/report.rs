//! The report of a run: a table with ratios, and JSON.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use super::measured::Measured;
use super::systems::{KINDS, System};

pub(crate) struct Report<'a> {
    systems: &'a [System],
    /// The name and version of the Redis that the measured systems use.
    server: Option<String>,
    quick: bool,
    took: Duration,
}

/// A column of the table: its title, its text, and whether more is better.
type Column = (&'static str, fn(&Measured) -> Option<f64>, bool);

const COLUMNS: &[Column] = &[
    ("push c64 /s", |m| m.push_c64_per_s.median(), true),
    ("push bulk /s", |m| m.push_bulk_per_s.median(), true),
    ("life /s", |m| m.life_per_s.median(), true),
    ("Redis us/life", |m| m.redis_us_per_life.median(), false),
    (
        "delayed us/life",
        |m| m.redis_us_per_delayed_life.median(),
        false,
    ),
    ("1,000/s p50 ms", |m| m.lateness.quantile_ms(0.5), false),
    ("p99 ms", |m| m.lateness.quantile_ms(0.99), false),
    ("10/s p50 ms", |m| m.lateness_10.quantile_ms(0.5), false),
    ("p99 ms", |m| m.lateness_10.quantile_ms(0.99), false),
    ("50,000 s", |m| m.burst_50k_s.median(), false),
    ("bytes", |m| m.bytes_per_message.median(), false),
    (
        "client MB",
        |m| m.client_peak_bytes.median().map(|bytes| bytes / 1e6),
        false,
    ),
    ("idle /s", |m| m.idle_requests_per_s.median(), false),
];

impl<'a> Report<'a> {
    pub(crate) fn new(
        systems: &'a [System],
        server: Option<String>,
        quick: bool,
        took: Duration,
    ) -> Self {
        Self {
            systems,
            server,
            quick,
            took,
        }
    }

    /// Whether every system that a comparison needs was measured, in every figure of the table.
    pub(crate) fn is_complete(&self) -> bool {
        self.gaps().is_empty()
    }

    pub(crate) fn missing(&self) -> String {
        self.gaps().join(", ")
    }

    fn gaps(&self) -> Vec<&'static str> {
        let measured = |key| {
            self.systems
                .iter()
                .any(|system| system.kind.key == key && is_measured(&system.measured))
        };
        KINDS
            .iter()
            .filter(|kind| kind.required && !measured(kind.key))
            .map(|kind| kind.key)
            .collect()
    }

    pub(crate) fn json(&self, curves: bool) -> Value {
        let systems = self
            .systems
            .iter()
            .map(|system| (system.kind.key.to_owned(), system.measured.json(curves)));
        let mut object: serde_json::Map<_, _> = systems.collect();
        object.insert("server".to_owned(), json!(self.server));
        object.insert("complete".to_owned(), json!(self.is_complete()));
        object.insert("missing".to_owned(), json!(self.gaps()));
        object.insert("quick".to_owned(), json!(self.quick));
        object.insert("took_s".to_owned(), json!(self.took.as_secs()));
        Value::Object(object)
    }

    pub(crate) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY);
        table.set_header(
            ["system"]
                .into_iter()
                .chain(COLUMNS.iter().map(|column| column.0)),
        );
        for system in self.systems {
            let cells = COLUMNS
                .iter()
                .map(|(_, figure, _)| figure(&system.measured).map_or("-".to_owned(), short));
            table.add_row([system.kind.key.to_owned()].into_iter().chain(cells));
        }
        for (title, others) in [("dueq / floor", false), ("dueq / best peer", true)] {
            let cells = COLUMNS.iter().map(|column| {
                self.ratio(*column, others)
                    .map_or(String::new(), |r| format!("{r:.2}x"))
            });
            table.add_row([title.to_owned()].into_iter().chain(cells));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let failures: String = self
            .systems
            .iter()
            .flat_map(|system| {
                system
                    .measured
                    .failures
                    .iter()
                    .map(move |f| format!("\n{}: {f}", system.kind.key))
            })
            .collect();
        let server = self
            .server
            .as_deref()
            .map(|server| format!(" on {server}"))
            .unwrap_or_default();
        format!("{table}\n{} s{server}{failures}", self.took.as_secs())
    }

    fn ratio(&self, (_, figure, more): Column, others: bool) -> Option<f64> {
        let of = |key| {
            self.systems
                .iter()
                .find(|system| system.kind.key == key)
                .and_then(|s| figure(&s.measured))
        };
        let against = if others {
            let peers = self.systems.iter().filter(|system| system.kind.is_peer());
            // Ratios leave out systems that delivered early.
            let figures = peers
                .filter_map(|system| figure(&system.measured))
                .filter(|figure| *figure > 0.0);
            if more {
                figures.reduce(f64::max)
            } else {
                figures.reduce(f64::min)
            }?
        } else {
            of("floor")?
        };
        Some(of("dueq")? / against)
    }
}

/// Whether each kind of figure was measured. If a peer fails in one workload, it still counts as
/// measured: the failure is its figure.
fn is_measured(measured: &Measured) -> bool {
    measured.push_c64_per_s.median().is_some()
        && measured.life_per_s.median().is_some()
        && !measured.lateness.is_empty()
}

fn short(figure: f64) -> String {
    match figure.abs() {
        large if large >= 10_000.0 => format!("{:.0}k", figure / 1_000.0),
        large if large >= 100.0 => format!("{figure:.0}"),
        middle if middle >= 10.0 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        let shown = [169_432.0, 804.4, 44.44, 0.359, -3.2].map(short);
        assert_eq!(shown, ["169k", "804", "44.4", "0.36", "-3.20"]);
    }
}
