//! The history of the harness, and its progress on stderr.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::Result;

use crate::history::{Event, Phase, Role, Writer};

pub struct Log {
    writer: Writer,
    begun: Instant,
    numbers: AtomicU64,
    inner: Mutex<Inner>,
    quiet: bool,
}

#[derive(Default)]
struct Inner {
    /// For each kind: the number of faults with evidence of an effect.
    traced: BTreeMap<String, u64>,
    /// For each kind: the number of faults that found nothing to act on.
    not_applied: BTreeMap<String, u64>,
    wrong: Vec<String>,
}

impl Log {
    pub fn new(path: &Path, quiet: bool) -> Result<Self> {
        let writer = Writer::create(path)?;
        let pid = std::process::id();
        writer.write(&Event::Begin {
            role: Role::Harness,
            process: "harness".to_owned(),
            pid,
        })?;
        Ok(Self {
            writer,
            begun: Instant::now(),
            numbers: AtomicU64::new(0),
            inner: Mutex::default(),
            quiet,
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    pub fn write(&self, event: &Event) {
        if let Err(error) = self.writer.write(event) {
            self.wrong(format!(
                "the harness's own history cannot be written: {error:#}"
            ));
        }
    }

    /// The number of the next fault.
    pub fn next(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub fn fault(&self, fault: &str, number: u64, phase: Phase, detail: &str) {
        match phase {
            Phase::Trace => *self.inner().traced.entry(fault.to_owned()).or_default() += 1,
            Phase::NotApplied => {
                *self
                    .inner()
                    .not_applied
                    .entry(fault.to_owned())
                    .or_default() += 1
            }
            _ => {}
        }
        let word = match phase {
            Phase::Begin => "begins",
            Phase::Trace => "seen",
            Phase::End => "over",
            Phase::Recovered => "recovered",
            Phase::NotApplied => "not applied",
        };
        self.say(&format!(
            "fault {number} {fault} {word}{}{detail}",
            if detail.is_empty() { "" } else { ": " }
        ));
        let (fault, detail) = (fault.to_owned(), detail.to_owned());
        self.write(&Event::Fault {
            fault,
            number,
            phase,
            detail,
        });
    }

    /// Records a reason why the run is not valid.
    pub fn wrong(&self, what: String) {
        self.say(&format!("WRONG: {what}"));
        self.inner().wrong.push(what);
    }

    pub fn all_wrong(&self) -> Vec<String> {
        self.inner().wrong.clone()
    }

    pub fn traced(&self) -> BTreeMap<String, u64> {
        self.inner().traced.clone()
    }

    pub fn not_applied(&self) -> BTreeMap<String, u64> {
        self.inner().not_applied.clone()
    }

    /// Shows progress to people.
    pub fn say(&self, what: &str) {
        if !self.quiet {
            eprintln!("{:7.1} s  {what}", self.begun.elapsed().as_secs_f64());
        }
    }
}
