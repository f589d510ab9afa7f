//! Instructions that Redis executes for one message, counted by callgrind: a busy machine does not
//! change this figure.

mod calls;
mod counter;
mod parts;
pub(crate) mod ticks;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use comfy_table::{CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};

use crate::peers::systems::root;
use calls::{Calls, Scripts};
use counter::Counter;

/// The largest ratio by which a figure may grow before a comparison fails.
const MOST: f64 = 1.01;

/// Instructions of Redis per message for push, claim and ack, counted by callgrind.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Folder of the scripts [default: the repository's lua/dist/]
    #[arg(long, value_name = "DIR")]
    scripts: Option<PathBuf>,
    /// Form of the argument `until` of push [default: the form that push.lua of that folder expects]
    #[arg(long, value_enum)]
    until: Option<calls::Until>,
    /// Options of each pushed message, such as 'expires=+60000' or 'window=60000'
    #[arg(long, value_name = "WORDS", default_value = "")]
    options: String,
    /// A setting of the queues, such as rate=1000000/1000/1000000 or max_leased=100000; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Count on a master of a cluster, in partitions of a queue with a map
    #[arg(long)]
    cluster: bool,
    /// How often each figure is counted; the mean is shown
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also write the JSON to this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Print the ratio to each figure of this file; exit with 1 if one is above 1.01
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
}

#[derive(Serialize, Deserialize)]
struct Counted {
    /// The name and version of the server.
    server: String,
    valgrind: String,
    date: String,
    /// The instructions per message, by figure.
    instructions: BTreeMap<String, u64>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let before: Option<Counted> = match &arguments.compare {
        Some(file) => {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            Some(
                serde_json::from_str(&text)
                    .with_context(|| format!("{} holds no counts", file.display()))?,
            )
        }
        None => None,
    };
    let folder = arguments
        .scripts
        .clone()
        .unwrap_or_else(|| root().join("lua/dist"));
    let scripts = Scripts::read(&folder, arguments.until)?;
    let counted = count(&scripts, arguments)?;

    let json = format!("{}\n", serde_json::to_string_pretty(&counted)?);
    if let Some(file) = &arguments.save {
        std::fs::write(file, &json).with_context(|| format!("cannot write {}", file.display()))?;
    }
    if arguments.json {
        print!("{json}");
    } else {
        println!(
            "{}, valgrind {}: instructions per message",
            counted.server, counted.valgrind
        );
        println!("{}", table(&counted, before.as_ref()));
    }
    let Some(before) = before else { return Ok(()) };
    if before.server != counted.server {
        eprintln!(
            "the file is of {}, this run of {}: the ratios compare servers, too",
            before.server, counted.server
        );
    }
    let grown = grown(&counted, &before)?;
    if !grown.is_empty() {
        bail!("above {MOST} of before: {}", grown.join(", "));
    }
    Ok(())
}

fn count(scripts: &Scripts, arguments: &Arguments) -> Result<Counted> {
    let rounds = arguments.rounds;
    let mut counter = Counter::start(arguments.cluster)?;
    let mut calls = Calls::new(counter.connection()?, scripts, arguments.cluster)?;
    calls.use_features(&arguments.options, &arguments.settings)?;
    calls.warm_up(&mut counter)?;
    counter.idle()?;
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for round in 1..=rounds {
        eprintln!("counting, round {round} of {rounds}");
        let figures = calls.round(&mut counter)?;
        for (figure, instructions) in figures.into_iter().chain(calls.parts(&mut counter)?) {
            *sums.entry(figure).or_default() += instructions;
        }
    }
    Ok(Counted {
        server: calls.server()?,
        valgrind: counter::version()?,
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        instructions: sums
            .into_iter()
            .map(|(figure, sum)| (figure, sum / u64::from(rounds)))
            .collect(),
    })
}

/// The figures that have grown too much, each with its ratio. A figure that only one side has is an
/// error.
fn grown(counted: &Counted, before: &Counted) -> Result<Vec<String>> {
    if !counted.instructions.keys().eq(before.instructions.keys()) {
        bail!("the file has other figures than this run: save it again");
    }
    let ratios = counted
        .instructions
        .iter()
        .map(|(figure, count)| (figure, ratio(*count, before.instructions[figure])));
    Ok(ratios
        .filter(|(_, ratio)| *ratio > MOST)
        .map(|(figure, ratio)| format!("{figure} {ratio:.3}"))
        .collect())
}

fn ratio(count: u64, before: u64) -> f64 {
    count as f64 / before as f64
}

fn table(counted: &Counted, before: Option<&Counted>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    let mut header = vec!["figure", "instructions"];
    header.extend(before.map(|_| ["before", "ratio"]).iter().flatten());
    table.set_header(header);
    for (figure, count) in &counted.instructions {
        let mut row = vec![figure.clone(), count.to_string()];
        if let Some(earlier) = before.and_then(|before| before.instructions.get(figure)) {
            row.extend([
                earlier.to_string(),
                format!("{:.3}", ratio(*count, *earlier)),
            ]);
        }
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(figures: &[(&str, u64)]) -> Counted {
        let instructions = figures
            .iter()
            .map(|(figure, count)| ((*figure).to_owned(), *count))
            .collect();
        Counted {
            server: String::new(),
            valgrind: String::new(),
            date: String::new(),
            instructions,
        }
    }

    #[test]
    fn figure_that_grew_by_over_one_percent_is_named() {
        let before = counted(&[("ack", 1_000), ("push", 1_000)]);
        assert_eq!(
            grown(&counted(&[("ack", 1_010), ("push", 1_011)]), &before).expect("alike"),
            ["push 1.011"]
        );
        assert!(
            grown(&counted(&[("ack", 900)]), &before).is_err(),
            "a figure is missing"
        );
    }
}
