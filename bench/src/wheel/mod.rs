//! Measures what the timing wheel costs: CPU time of each operation, and memory of each timer.

mod load;

use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use load::{Payload, Sample, Size};

/// Measures the timing wheel.
///
/// Timers at random times within 30 s; half of them cancelled; resets to 30 s from now while the clock goes on; all fired in one
/// jump, or in steps of 1 s; the next expiration asked for; 10 timers within 30 days; the longest single call. Times are those on
/// the processor, and medians of the rounds; the longest call is the shortest of them, because what this machine adds is not the
/// wheel's. Bytes are the growth of a process of its own.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Timers in the wheel
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(10..))]
    timers: u32,
    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Fill a wheel, and print what memory that took
    #[arg(long, hide = true)]
    memory: bool,
    /// With --memory: timers that carry a Box<u64>
    #[arg(long, hide = true, requires = "memory")]
    boxed: bool,
}

/// Memory per timer, in bytes.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Memory {
    /// The memory when all timers are in the wheel.
    bytes_per_timer: f64,
    /// The peak while the wheel is filled: it may hold two copies while it grows.
    peak_bytes_per_timer: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let timers = arguments.timers as usize;
    if arguments.memory {
        let memory = match arguments.boxed {
            true => memory_here::<Box<u64>>(timers)?,
            false => memory_here::<u64>(timers)?,
        };
        println!("{}", serde_json::to_string(&memory)?);
        return Ok(());
    }
    // As many resets as make each timer wait for its second one, but at least five million.
    let size = Size {
        timers,
        resets: (2 * timers).max(5_000_000),
    };
    let (mut plain, mut boxed) = (Vec::new(), Vec::new());
    for round in 0..u64::from(arguments.rounds) {
        eprintln!("round {} of {}", round + 1, arguments.rounds);
        plain.push(load::measure::<u64>(size, round));
        boxed.push(load::measure::<Box<u64>>(size, round));
    }
    let report = json!({
        "timers": timers,
        "rounds": arguments.rounds,
        "resets": size.resets,
        "with_u64": figures(&plain, memory(timers, false)?)?,
        "with_box_u64": figures(&boxed, memory(timers, true)?)?,
    });
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}

/// Combines the figures of all rounds.
fn figures(samples: &[Sample], memory: Memory) -> Result<Map<String, Value>> {
    let of = |figure: fn(&Sample) -> f64| {
        let mut values: Vec<f64> = samples.iter().map(figure).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let median = |figure| {
        let values = of(figure);
        rounded(values[values.len() / 2])
    };
    let least = |figure| rounded(of(figure)[0]);
    let mut all = Map::new();
    for (name, value) in [
        ("insert_ns", median(|s| s.insert_ns)),
        ("cancel_ns", median(|s| s.cancel_ns)),
        ("reset_ns", median(|s| s.reset_ns)),
        ("drain_jump_ns", median(|s| s.drain_jump_ns)),
        ("drain_steps_ns", median(|s| s.drain_steps_ns)),
        ("next_ns", median(|s| s.next_ns)),
        ("sparse_us", median(|s| s.sparse_us)),
        ("worst_call_ms", least(|s| s.worst_call_ms)),
        ("worst_bounded_call_ms", least(|s| s.worst_bounded_call_ms)),
        ("bytes_per_timer", rounded(memory.bytes_per_timer)),
        ("peak_bytes_per_timer", rounded(memory.peak_bytes_per_timer)),
    ] {
        all.insert(name.to_owned(), value.into());
    }
    Ok(all)
}

/// Rounds to four digits; the measurement is less precise.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// Measures memory in a new process, as the operating system sees it: a counting allocator would
/// miss padding and unused blocks.
fn memory(timers: usize, boxed: bool) -> Result<Memory> {
    let mut child = Command::new(env::current_exe()?);
    child.args(["wheel", "--timers", &timers.to_string(), "--memory"]);
    if boxed {
        child.arg("--boxed");
    }
    let output = child.output()?;
    ensure!(
        output.status.success(),
        "memory: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Fills a wheel in this process, which has done nothing else before.
fn memory_here<T: Payload>(timers: usize) -> Result<Memory> {
    let (mut before, mut after) = (None, None);
    load::fill_without_keys::<T>(
        timers,
        || before = Some(status("VmRSS:")),
        || after = Some((status("VmRSS:"), status("VmHWM:"))),
    );
    let before = before.context("not begun")??;
    let (resident, peak) = after.context("not filled")?;
    let each = |bytes: f64| (bytes - before) / timers as f64;
    Ok(Memory {
        bytes_per_timer: each(resident?),
        peak_bytes_per_timer: each(peak?),
    })
}

/// The bytes in a line of this process's status.
fn status(name: &str) -> Result<f64> {
    let text =
        fs::read_to_string("/proc/self/status").context("memory is measured on Linux only")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .with_context(|| format!("no {name}"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024.0)
}
