//! The memory of a structure, as the operating system sees it: the growth of a new process.
//!
//! A counting allocator would miss padding and idle blocks, and would slow down structures that
//! allocate often.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::load;
use super::timers::{Payload, Timers};

/// Bytes a timer.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Memory {
    /// When all timers are in.
    pub(super) resident: f64,
    /// The peak while filling: growing may hold two copies.
    pub(super) peak: f64,
}

/// Asks a new process.
pub(super) fn measure(name: &str, timers: usize, boxed: bool) -> Result<Memory> {
    let mut child = Command::new(std::env::current_exe()?);
    child.args([
        "wheel",
        "--timers",
        &timers.to_string(),
        "--memory-of",
        name,
    ]);
    if boxed {
        child.arg("--boxed");
    }
    let output = child.output()?;
    ensure!(
        output.status.success(),
        "memory of {name}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Fills the structure in this process, which has done nothing else.
pub(super) fn here<S: Timers<T>, T: Payload>(timers: usize) -> Result<Memory> {
    let (mut before, mut after) = (None, None);
    load::fill_without_keys::<S, T>(
        timers,
        || before = Some(status("VmRSS:")),
        || after = Some((status("VmRSS:"), status("VmHWM:"))),
    );
    let before = before.context("not begun")??;
    let (resident, peak) = after.context("not filled")?;
    let each = |bytes: f64| (bytes - before) / timers as f64;
    Ok(Memory {
        resident: each(resident?),
        peak: each(peak?),
    })
}

/// Bytes, of a line of this process's status.
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
