//! Reads a file of schedules, and reports all its faults with their lines.

use std::collections::HashMap;
use std::ops::Range;
use std::time::SystemTime;

use dueq::Schedule;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::output::visible;

/// A schedule of a file.
pub(crate) struct Entry {
    pub(super) schedule: Schedule,
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) payload_bytes: usize,
}

/// Why a file is refused.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) line: usize,
    /// The schedule, if it has a name.
    pub(crate) name: Option<String>,
    pub(crate) reason: String,
}

/// Reads a file. `now` is the time after which its schedules must fire.
pub(crate) fn read(text: &str, now: SystemTime) -> Result<Vec<Entry>, Vec<Fault>> {
    let (file, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let faults = errors.iter().map(|error| Fault {
            line: line_of(text, error.span().unwrap_or_default()),
            name: None,
            reason: visible(error.message().replace('\n', ", ").as_bytes()),
        });
        return Err(faults.collect());
    }
    let mut reader = Reader {
        text,
        now,
        faults: Vec::new(),
        name: None,
    };
    let entries = reader.file(file.get_ref());
    if reader.faults.is_empty() {
        return Ok(entries);
    }
    reader.faults.sort_by_key(|fault| fault.line);
    Err(reader.faults)
}

/// The number of the line where a span begins.
fn line_of(text: &str, span: Range<usize>) -> usize {
    let before = text.as_bytes().get(..span.start).unwrap_or_default();
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

pub(super) struct Reader<'a> {
    text: &'a str,
    pub(super) now: SystemTime,
    pub(super) faults: Vec<Fault>,
    /// The schedule that is read.
    pub(super) name: Option<String>,
}

impl Reader<'_> {
    pub(super) fn fault(&mut self, line: usize, reason: impl Into<String>) {
        self.faults.push(Fault {
            line,
            name: self.name.clone(),
            reason: reason.into(),
        });
    }

    pub(super) fn unknown(&mut self, key: &Spanned<std::borrow::Cow<'_, str>>, known: &[&str]) {
        let (line, name) = (line_of(self.text, key.span()), key.get_ref());
        let distance = |known: &&&str| strsim::osa_distance(known, name);
        let near = known
            .iter()
            .filter(|known| distance(known) <= 2)
            .min_by_key(distance);
        let advice = match near {
            Some(near) => format!("did you mean {near}?"),
            None if known.len() == 1 => format!("write [[{}]] above each schedule", known[0]),
            None => format!("there are {}", known.join(", ")),
        };
        self.fault(line, format!("there is no key {name:?}: {advice}"));
    }

    fn file(&mut self, file: &DeTable<'_>) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut is_declared = false;
        for (key, value) in file {
            if key.get_ref() != "schedule" {
                self.unknown(key, &["schedule"]);
                continue;
            }
            is_declared = true;
            let DeValue::Array(items) = value.get_ref() else {
                let line = line_of(self.text, key.span());
                self.fault(
                    line,
                    "schedule is no list: write [[schedule]] above each schedule",
                );
                continue;
            };
            for item in items {
                let line = line_of(self.text, item.span());
                match item.get_ref() {
                    DeValue::Table(table) => entries.extend(self.schedule(line, table)),
                    _ => self.fault(
                        line,
                        "schedule is no table: write [[schedule]] above each schedule",
                    ),
                }
                self.name = None;
            }
        }
        if !is_declared && self.faults.is_empty() {
            self.fault(
                1,
                "the file has no [[schedule]]: to declare none, write schedule = []",
            );
        }
        self.refuse_repeated_names(&entries);
        entries
    }

    fn refuse_repeated_names(&mut self, entries: &[Entry]) {
        let mut lines = HashMap::new();
        for entry in entries {
            if let Some(first) = lines.insert(entry.name.as_str(), entry.line) {
                self.name = Some(entry.name.clone());
                self.fault(
                    entry.line,
                    format!("line {first} declares a schedule of this name"),
                );
            }
        }
        self.name = None;
    }

    /// A value by its reader; a refused one is a fault.
    pub(super) fn get<'t, T>(
        &mut self,
        table: &'t DeTable<'_>,
        key: &str,
        read: impl FnOnce(&str, &'t DeValue<'_>) -> Result<T, String>,
    ) -> Option<(usize, T)> {
        let value = table.get(key)?;
        let line = line_of(self.text, value.span());
        match read(key, value.get_ref()) {
            Ok(value) => Some((line, value)),
            Err(reason) => {
                self.fault(line, reason);
                None
            }
        }
    }
}
