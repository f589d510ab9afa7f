//! What Linux tells about a process.

use anyhow::{Context, Result};

/// A line of /proc/PID/status, in bytes.
pub(crate) fn status_bytes(pid: u32, field: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    kilobytes(&status, field).map(|kb| kb * 1_024).with_context(|| format!("no {field} of process {pid}"))
}

/// The processor time of a process so far, in microseconds.
pub(crate) fn cpu_us(pid: u32) -> Result<f64> {
    const TICK_US: f64 = 10_000.0; // of Linux, for every program
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, rest) = stat.rsplit_once(')').context("a name in brackets")?;
    let ticks = rest.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
    Ok(ticks.sum::<f64>() * TICK_US)
}

/// How many file descriptors a process has open.
pub(crate) fn descriptors(pid: u32) -> Result<u64> {
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64)
}

fn kilobytes(status: &str, field: &str) -> Option<u64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    rest.trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_status_of_a_process() {
        let status = "Name:\tx\nVmHWM:\t    1234 kB\nVmRSS:\t 12 kB\n";
        assert_eq!(kilobytes(status, "VmHWM"), Some(1_234));
        assert_eq!(kilobytes(status, "VmSwap"), None);
        assert!(status_bytes(std::process::id(), "VmRSS").expect("our own") > 100_000);
    }

    #[test]
    fn time_and_descriptors_of_our_own_process_are_read() {
        assert!(cpu_us(std::process::id()).expect("Linux") >= 0.0);
        let _file = std::fs::File::open("/proc/self/stat").expect("a file");
        assert!(descriptors(std::process::id()).expect("Linux") >= 1);
        assert!(descriptors(u32::MAX).is_err());
    }
}
