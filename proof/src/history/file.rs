//! The file of a history: one event a line.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context, Result};

use super::Event;

/// Appends to a history.
#[derive(Debug)]
pub struct Writer(Mutex<File>);

impl Writer {
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::options().append(true).create_new(true).open(path);
        Ok(Self(Mutex::new(file.with_context(|| {
            format!("the history {}", path.display())
        })?)))
    }

    /// Writes the line by one call: a kill leaves it complete or torn, never mixed with another.
    pub fn write(&self, event: &Event) -> Result<()> {
        // Read the time under the lock, so that the lines of a file are in order of their times.
        let mut file = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut line = serde_json::to_vec(&(now_us(), event))?;
        line.push(b'\n');
        Ok(file.write_all(&line)?)
    }
}

/// The time of this machine's monotonic clock, which all processes share.
pub fn now_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000
        + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000
}

/// The lines of a history. Leaves out a torn last line; any other unreadable line is an error.
pub fn read(path: &Path) -> Result<impl Iterator<Item = Result<(u64, Event)>>> {
    let file = File::open(path).with_context(|| format!("the history {}", path.display()))?;
    let (name, mut number) = (path.display().to_string(), 0_u64);
    let mut reader = BufReader::with_capacity(1 << 20, file);
    Ok(std::iter::from_fn(move || {
        let mut line = Vec::new();
        number += 1;
        match reader.read_until(b'\n', &mut line) {
            Err(error) => Some(Err(error.into())),
            Ok(_) if line.last() != Some(&b'\n') => None,
            Ok(_) => {
                Some(serde_json::from_slice(&line).with_context(|| format!("{name}:{number}")))
            }
        }
    }))
}
