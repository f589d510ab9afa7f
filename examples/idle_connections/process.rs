//! What this process uses, as far as the operating system tells.

use std::fs;

/// Bytes in memory now.
pub(crate) fn memory() -> Option<f64> {
    status("VmRSS:")
}

/// Bytes in memory at most so far.
pub(crate) fn peak_memory() -> Option<f64> {
    status("VmHWM:")
}

fn status(name: &str) -> Option<f64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB"))?;
    Some(kib.trim().parse::<f64>().ok()? * 1024.0)
}

/// Seconds on the processor so far.
pub(crate) fn cpu() -> Option<f64> {
    // Nanoseconds of this thread, which is the only one that works here.
    let text = fs::read_to_string("/proc/self/schedstat").ok()?;
    Some(text.split(' ').next()?.parse::<f64>().ok()? / 1e9)
}
