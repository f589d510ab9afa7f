//! Measures figures against a growing quantity (waiting messages, nodes, callers); and a storm.

pub(crate) mod concurrency;
pub(crate) mod legs;
pub(crate) mod nodes;
pub(crate) mod partitions;
pub(crate) mod queues;
pub(crate) mod scale;
mod stores;
pub(crate) mod storm;

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;

/// The options of all curves.
#[derive(clap::Args)]
pub(crate) struct Output {
    /// Also write the JSON to this file, for `plot`
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

impl Output {
    /// Prints the result as JSON, and saves it with `--save`.
    pub(crate) fn write(&self, result: &Value) -> Result<()> {
        println!("{result:#}");
        self.save
            .as_deref()
            .map_or(Ok(()), |file| save(file, result))
    }
}

fn save(file: &Path, result: &Value) -> Result<()> {
    Ok(std::fs::write(file, format!("{result:#}\n"))?)
}

/// A message with a payload like those of all other measurements.
fn message(due: dueq::Due) -> dueq::Message {
    dueq::Message::new(dueq_bench_driver::Message::new(None).payload)
        .new_id()
        .due(due)
}

pub(crate) fn median(figures: &mut [f64]) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures[figures.len() / 2]
}
