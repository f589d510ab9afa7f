//! The timing wheel beside other timer structures.

mod contestants;
mod lists;
mod load;
mod memory;
mod report;
mod stopwatch;
mod structures;
#[cfg(test)]
mod tests;
mod timers;

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};

use contestants::Contestant;
use load::Size;
use report::Results;

/// Measures the timing wheel beside other timer structures.
///
/// Every structure has the same work: timers at random times within 30 s; half of them cancelled; resets to 30 s from now while
/// the clock goes on; all fired in one jump, or in steps of 1 s; the next expiration asked for; 10 timers within 30 days;
/// the longest single call. All take turns in rounds. Times are those on the processor, and medians; the longest call is the shortest of the rounds,
/// because what this machine adds to one is not the structure's. Resets, sleeping, and the search for the longest call, stop after 5 s.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Timers in each structure
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(10..))]
    timers: u32,
    /// Rounds, in which all structures take turns
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Only these structures, by their names in JSON
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// One object, with one in it for each structure
    #[arg(long)]
    json: bool,
    /// Fill this structure alone, and print what memory that took
    #[arg(long, value_name = "NAME", hide = true)]
    memory_of: Option<String>,
    /// With --memory-of: timers that carry a Box<u64>
    #[arg(long, hide = true, requires = "memory_of")]
    boxed: bool,
}

impl Arguments {
    /// As many resets as make each timer wait for its second one, and five million at least.
    fn size(&self) -> Size {
        let timers = self.timers as usize;
        Size {
            timers,
            resets: (2 * timers).max(5_000_000),
        }
    }

    fn chosen(&self, all: Vec<Contestant>) -> Result<Vec<Results>> {
        for name in &self.only {
            ensure!(
                all.iter().any(|contestant| contestant.name == name),
                "there is no structure {name}"
            );
        }
        let is_chosen =
            |name: &str| self.only.is_empty() || self.only.iter().any(|chosen| chosen == name);
        Ok(all
            .into_iter()
            .filter(|contestant| is_chosen(contestant.name))
            .map(Results::new)
            .collect())
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let _inside = structures::enter_runtime();
    if let Some(name) = &arguments.memory_of {
        return memory_of(name, arguments);
    }
    let mut plain = arguments.chosen(contestants::all::<u64>())?;
    let mut boxed = arguments.chosen(contestants::all::<Box<u64>>())?;
    for round in 0..arguments.rounds {
        let turns = plain.len();
        for turn in 0..turns {
            // Each round begins with another structure, so that none always follows the same one.
            let turn = (turn + round as usize) % turns;
            eprint!(
                "round {} of {}: {}",
                round + 1,
                arguments.rounds,
                plain[turn].contestant.name
            );
            let began = Instant::now();
            for results in [&mut plain[turn], &mut boxed[turn]] {
                results.samples.push((results.contestant.measure)(
                    arguments.size(),
                    u64::from(round),
                ));
            }
            eprintln!(", {:.1} s", began.elapsed().as_secs_f64());
        }
    }
    eprintln!("memory");
    for (results, is_boxed) in [(&mut plain, false), (&mut boxed, true)] {
        for results in results {
            results.memory = Some(memory::measure(
                results.contestant.name,
                arguments.timers as usize,
                is_boxed,
            )?);
        }
    }
    print(arguments, &plain, &boxed)
}

fn print(arguments: &Arguments, plain: &[Results], boxed: &[Results]) -> Result<()> {
    let Size { timers, resets } = arguments.size();
    if arguments.json {
        let mut all = Map::new();
        for (name, value) in [
            ("timers", timers),
            ("rounds", arguments.rounds as usize),
            ("resets", resets),
        ] {
            all.insert(name.to_owned(), value.into());
        }
        all.extend(report::json(plain));
        all.insert("with_box_u64".to_owned(), report::json(boxed).into());
        println!("{}", serde_json::to_string_pretty(&Value::from(all))?);
        return Ok(());
    }
    println!(
        "{timers} timers, {} rounds, {resets} resets; * is the best of a column",
        arguments.rounds
    );
    println!("\nT = u64\n{}", report::table(plain));
    println!("\nT = Box<u64>\n{}", report::table(boxed));
    Ok(())
}

fn memory_of(name: &str, arguments: &Arguments) -> Result<()> {
    let all = if arguments.boxed {
        contestants::all::<Box<u64>>()
    } else {
        contestants::all::<u64>()
    };
    let contestant = all
        .into_iter()
        .find(|contestant| contestant.name == name)
        .context("no such structure")?;
    let memory = (contestant.memory)(arguments.timers as usize)?;
    println!("{}", serde_json::to_string(&memory)?);
    Ok(())
}
