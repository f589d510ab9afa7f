//! Resources of this process, as the operating system reports them.

use std::fs;

/// Memory in use now, in bytes.
pub(crate) fn memory() -> Option<f64> {
    status("VmRSS:")
}

/// Greatest memory use so far, in bytes.
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

/// Processor time so far, in seconds.
pub(crate) fn cpu() -> Option<f64> {
    // Nanoseconds of this thread, the only busy one here.
    let text = fs::read_to_string("/proc/self/schedstat").ok()?;
    Some(text.split(' ').next()?.parse::<f64>().ok()? / 1e9)
}
