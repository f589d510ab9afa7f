//! The report of the rounds: medians, a table of them with ratios, and JSON.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, Table};
use serde_json::{Map, Value, json};

use super::contestants::Contestant;
use super::load::Sample;
use super::memory::Memory;

/// One structure with one kind of value.
pub(super) struct Results {
    pub(super) contestant: Contestant,
    pub(super) samples: Vec<Sample>,
    pub(super) memory: Option<Memory>,
}

/// A figure: its name in JSON, its heading, and where it comes from.
struct Figure {
    name: &'static str,
    heading: &'static str,
    of: fn(&Results) -> Option<f64>,
}

const FIGURES: [Figure; 11] = [
    Figure {
        name: "insert_ns",
        heading: "insert\nns",
        of: |r| r.median(|s| s.insert_ns),
    },
    Figure {
        name: "cancel_ns",
        heading: "cancel\nns",
        of: |r| r.median(|s| s.cancel_ns),
    },
    Figure {
        name: "reset_ns",
        heading: "reset\nns",
        of: |r| r.median(|s| s.reset_ns),
    },
    Figure {
        name: "drain_jump_ns",
        heading: "drain,\njump ns",
        of: |r| r.median(|s| s.drain_jump_ns),
    },
    Figure {
        name: "drain_steps_ns",
        heading: "drain,\n1 s steps",
        of: |r| r.median(|s| s.drain_steps_ns),
    },
    Figure {
        name: "next_ns",
        heading: "next\nns",
        of: |r| r.median(|s| s.next_ns),
    },
    Figure {
        name: "sparse_us",
        heading: "sparse\nus",
        of: |r| r.median(|s| s.sparse_us),
    },
    Figure {
        name: "worst_call_ms",
        heading: "worst\ncall ms",
        of: |r| r.least(|s| s.worst_call_ms),
    },
    Figure {
        name: "worst_bounded_call_ms",
        heading: "bounded\ncall ms",
        of: |r| r.least(|s| s.worst_bounded_call_ms),
    },
    Figure {
        name: "bytes_per_timer",
        heading: "bytes a\ntimer",
        of: |r| r.memory.map(|memory| memory.resident),
    },
    Figure {
        name: "peak_bytes_per_timer",
        heading: "bytes,\npeak",
        of: |r| r.memory.map(|memory| memory.peak),
    },
];

/// The goal against tokio-util: the figure, and how many times better.
const GOALS: [(&str, f64); 6] = [
    ("insert_ns", 2.0),
    ("cancel_ns", 4.0),
    ("reset_ns", 7.0),
    ("drain_jump_ns", 6.0),
    ("drain_steps_ns", 6.0),
    ("bytes_per_timer", 2.0),
];

impl Results {
    pub(super) fn new(contestant: Contestant) -> Self {
        Self {
            contestant,
            samples: Vec::new(),
            memory: None,
        }
    }

    fn sorted(&self, of: fn(&Sample) -> Option<f64>) -> Vec<f64> {
        let mut values: Vec<f64> = self.samples.iter().filter_map(of).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    fn median(&self, of: fn(&Sample) -> Option<f64>) -> Option<f64> {
        let values = self.sorted(of);
        values.get(values.len() / 2).copied()
    }

    fn least(&self, of: fn(&Sample) -> Option<f64>) -> Option<f64> {
        self.sorted(of).first().copied()
    }

    fn figure(&self, name: &str) -> Option<f64> {
        FIGURES
            .iter()
            .find(|figure| figure.name == name)
            .and_then(|figure| (figure.of)(self))
    }
}

/// The figures of all structures, by name, with the goals that were met or missed.
pub(super) fn json(results: &[Results]) -> Map<String, Value> {
    let mut all = Map::new();
    for structure in results {
        let mut object = Map::new();
        for figure in &FIGURES {
            object.insert(
                figure.name.to_owned(),
                (figure.of)(structure).map(rounded).into(),
            );
        }
        object.insert("note".to_owned(), structure.contestant.note.into());
        all.insert(structure.contestant.name.to_owned(), object.into());
    }
    all.insert("goals_against_tokio_util".to_owned(), goals(results).into());
    all
}

fn goals(results: &[Results]) -> Map<String, Value> {
    let named = |name| {
        results
            .iter()
            .find(|structure| structure.contestant.name == name)
    };
    let (Some(dueq), Some(tokio_util)) = (named("dueq"), named("tokio_util")) else {
        return Map::new();
    };
    let ratio = |name| Some(tokio_util.figure(name)? / dueq.figure(name)?);
    let goals = GOALS.iter().filter_map(|&(name, goal)| {
        let ratio = ratio(name)?;
        Some((
            name.to_owned(),
            json!({"times_better": rounded(ratio), "goal": goal, "met": ratio >= goal}),
        ))
    });
    goals.collect()
}

/// Four digits exceed the precision of the measurement.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// The figures for people: each with its ratio to dueq's, and `*` at the best of a column.
pub(super) fn table(results: &[Results]) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(
        [""].into_iter()
            .chain(FIGURES.iter().map(|figure| figure.heading)),
    );
    let best: Vec<Option<f64>> = FIGURES
        .iter()
        .map(|figure| results.iter().filter_map(figure.of).min_by(f64::total_cmp))
        .collect();
    let mut notes = Vec::new();
    for structure in results {
        let mut label = structure.contestant.label.to_owned();
        if !structure.contestant.note.is_empty() {
            notes.push(structure.contestant.note);
            label += &format!(" ({})", notes.len());
        }
        let mut row = vec![Cell::new(label)];
        for (figure, &best) in FIGURES.iter().zip(&best) {
            let text = match (figure.of)(structure) {
                Some(value) => text(value, results.first().and_then(figure.of), best),
                None => "-".to_owned(),
            };
            row.push(Cell::new(text).set_alignment(CellAlignment::Right));
        }
        table.add_row(row);
    }
    let notes = (1..)
        .zip(notes)
        .map(|(number, note)| format!("\n({number}) {note}"));
    let goals = goals(results).into_iter().map(|(name, goal)| {
        let met = if goal["met"] == true { "met" } else { "missed" };
        format!(
            "\n{name}: {} times better than tokio-util, goal {}: {met}",
            goal["times_better"], goal["goal"]
        )
    });
    format!(
        "{table}{}{}",
        notes.collect::<String>(),
        goals.collect::<String>()
    )
}

fn text(value: f64, dueq: Option<f64>, best: Option<f64>) -> String {
    let mark = if best == Some(value) { "*" } else { "" };
    let times = dueq.map_or(String::new(), |dueq| format!("\n{}x", short(value / dueq)));
    format!("{}{mark}{times}", short(value))
}

/// Three digits where that is short.
fn short(value: f64) -> String {
    match value {
        ..0.095 => format!("{value:.3}"),
        ..9.95 => format!("{value:.1}"),
        ..1e5 => format!("{value:.0}"),
        _ => format!("{value:.0e}"),
    }
}
