//! Reads the logs of the scripts, and judges them without asking the server under test.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// One start of a handler, by the log.
#[derive(Debug, Clone, Copy)]
struct Start {
    at_ms: u64,
    lease_end_ms: u64,
    crashes: u64,
}

/// The combined logs of all scripts.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The due time of each message, as its producer asked for it.
    due_ms: HashMap<String, u64>,
    /// The starts of each message.
    starts: BTreeMap<String, Vec<Start>>,
    /// The number of handlers that completed, for each message.
    ends: BTreeMap<String, usize>,
    /// The outcomes of settlements, each with its message.
    outcomes: Vec<(String, String)>,
    lines: usize,
}

impl Log {
    /// Reads all logs of a folder.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let mut log = Self::default();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let Some("log") = path.extension().and_then(|end| end.to_str()) else {
                continue;
            };
            let name = path.file_stem().and_then(|name| name.to_str());
            let text = fs::read_to_string(&path)?;
            // A line may still be incomplete.
            let whole = text.rfind('\n').map_or("", |end| &text[..end]);
            for line in whole.lines() {
                let read = match name {
                    Some("producer") => log.pushed(line),
                    Some(name) if name.starts_with("handled") => log.handled(line),
                    Some(name) if name.starts_with("settled") => log.settled(line),
                    _ => Some(()),
                };
                read.with_context(|| format!("{}: {line:?}", path.display()))?;
            }
            log.lines += whole.lines().count();
        }
        for starts in log.starts.values_mut() {
            starts.sort_by_key(|start| start.at_ms);
        }
        Ok(log)
    }

    fn pushed(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        if words.next()? == "at" {
            let (id, at) = (words.next()?, words.next()?);
            self.due_ms.insert(id.to_owned(), at.parse().ok()?);
        }
        Some(())
    }

    fn handled(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let at_ms = words.next()?.parse().ok()?;
        let (word, id) = (words.next()?, words.next()?.to_owned());
        match word {
            "start" => self.starts.entry(id).or_default().push(Start {
                at_ms,
                lease_end_ms: words.next()?.parse().ok()?,
                crashes: words.next()?.parse().ok()?,
            }),
            "end" => *self.ends.entry(id).or_default() += 1,
            _ => return None,
        }
        Some(())
    }

    fn settled(&mut self, line: &str) -> Option<()> {
        let (id, outcome) = line.split_once(' ')?;
        self.outcomes.push((id.to_owned(), outcome.to_owned()));
        Some(())
    }

    pub(crate) fn lines(&self) -> usize {
        self.lines
    }

    /// The number of messages with this prefix whose handler has started.
    pub(crate) fn started(&self, prefix: &str) -> usize {
        self.starts
            .keys()
            .filter(|id| id.starts_with(prefix))
            .count()
    }

    /// The number of messages with this prefix whose handler has completed.
    pub(crate) fn ended(&self, prefix: &str) -> usize {
        self.ends.keys().filter(|id| id.starts_with(prefix)).count()
    }

    /// The number of expired leases, computed from the last start of each message.
    fn crashes(&self) -> u64 {
        let last = self.starts.values().filter_map(|starts| starts.last());
        last.map(|start| start.crashes).sum()
    }

    pub(crate) fn summary(&self) -> String {
        let starts: usize = self.starts.values().map(Vec::len).sum();
        let late = self.starts.iter().filter_map(|(id, starts)| {
            let due_ms = self.due_ms.get(id)?;
            Some(starts.first()?.at_ms.saturating_sub(*due_ms))
        });
        let mut late: Vec<_> = late.collect();
        late.sort_unstable();
        let at = |part: usize| {
            late.get(late.len() * part / 100)
                .copied()
                .unwrap_or_default()
        };
        format!(
            "{starts} starts, {} leases ran out; first start after the due time: p50 {} ms, p90 {} ms",
            self.crashes(),
            at(50),
            at(90)
        )
    }

    /// Asserts that each message was handled, none early, none twice unless its lease expired, and
    /// that only leases of killed consumers expired.
    pub(crate) fn judge(&self, messages: usize, slow: usize, kills: u64) -> Result<()> {
        ensure!(
            self.due_ms.len() == messages + slow,
            "{} pushed",
            self.due_ms.len()
        );
        for (id, due_ms) in &self.due_ms {
            let Some(starts) = self.starts.get(id) else {
                bail!("{id} was lost");
            };
            ensure!(self.ends.contains_key(id), "{id} did not come to its end");
            for start in starts {
                ensure!(
                    start.at_ms >= *due_ms,
                    "{id} is early: {start:?}, due at {due_ms}"
                );
            }
            for pair in starts.windows(2) {
                let (one, next) = (pair[0], pair[1]);
                ensure!(
                    next.at_ms >= one.lease_end_ms && next.crashes > one.crashes,
                    "{id} was handled twice under one lease: {one:?}, {next:?}"
                );
            }
            if id.starts_with("slow-") {
                ensure!(
                    starts.len() == 1,
                    "{id} lost its extended lease: {starts:?}"
                );
            }
        }
        for id in self.starts.keys() {
            ensure!(self.due_ms.contains_key(id), "{id} was never pushed");
        }
        // Each killed consumer held at most one message. All other leases were kept, even when the
        // answers of claims were lost.
        let crashes = self.crashes();
        ensure!(
            crashes <= kills,
            "{crashes} leases ran out, and {kills} consumers were killed"
        );
        let done = |id: &str| {
            self.outcomes
                .iter()
                .filter(|(of, outcome)| of == id && outcome == "done")
                .count()
        };
        for id in self.due_ms.keys() {
            ensure!(done(id) <= 1, "{id} was acked twice");
        }
        Ok(())
    }
}
