//! Reads figures about a process from Linux.

use anyhow::{Context, Result};

/// The unit of Linux's CPU times in microseconds; it is fixed for all programs.
const TICK_US: f64 = 10_000.0;

/// The value of a line of /proc/PID/status, in bytes.
pub fn status_bytes(pid: u32, field: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    kilobytes(&status, field)
        .map(|kb| kb * 1_024)
        .with_context(|| format!("no {field} of process {pid}"))
}

/// The CPU time of a process so far, in microseconds.
pub fn cpu_us(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, rest) = stat.rsplit_once(')').context("a name in brackets")?;
    let ticks = rest
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse::<f64>().ok());
    Ok(ticks.sum::<f64>() * TICK_US)
}

/// The CPU time that the host has withheld from this machine so far, summed over all cores, in
/// microseconds.
pub fn stolen_us() -> Result<f64> {
    Ok(stolen_ticks(&std::fs::read_to_string("/proc/stat")?) * TICK_US)
}

/// Parses the eighth figure of the first line; 0 if the kernel is too old to have it.
fn stolen_ticks(stat: &str) -> f64 {
    stat.lines()
        .next()
        .and_then(|line| line.split_whitespace().nth(8))
        .and_then(|ticks| ticks.parse().ok())
        .unwrap_or(0.0)
}

/// The number of open file descriptors of a process.
pub fn descriptors(pid: u32) -> Result<u64> {
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64)
}

fn kilobytes(status: &str, field: &str) -> Option<u64> {
    let rest = status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
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
    fn stolen_time_is_the_eighth_figure_of_all_cores() {
        assert_eq!(
            stolen_ticks("cpu  1 2 3 4 5 6 7 88 9 10\ncpu0 1 2 3 4 5 6 7 44 9 10\n"),
            88.0
        );
        assert_eq!(stolen_ticks("cpu 1 2 3\ncpu0 1 2 3 4 5 6 7 8\n"), 0.0);
        assert!(stolen_us().expect("Linux") >= 0.0);
    }

    #[test]
    fn time_and_descriptors_of_our_own_process_are_read() {
        assert!(cpu_us(std::process::id()).expect("Linux") >= 0.0);
        let _file = std::fs::File::open("/proc/self/stat").expect("a file");
        assert!(descriptors(std::process::id()).expect("Linux") >= 1);
        assert!(descriptors(u32::MAX).is_err());
    }
}
