//! All grants of a run, from the logs of its nodes.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::{Context, Result};

use crate::limits::history::entries;
use crate::limits::record::Entry;

/// A message that a claim granted, in microseconds of the server's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) us: u64,
    pub(super) attempt: u64,
    pub(super) deadline_us: u64,
    /// When an ack that succeeded was applied.
    pub(super) acked_us: Option<u64>,
    /// Whether the node may have given it back, or may have acked it without an answer.
    pub(super) is_settled: bool,
}

#[derive(Debug, Default)]
pub(super) struct History {
    /// By id, in the order of time.
    pub(super) grants: HashMap<String, Vec<Grant>>,
    /// How often nodes called each script.
    pub(super) calls: BTreeMap<String, u64>,
}

impl History {
    /// Reads the logs of a folder.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let mut history = Self::default();
        for file in std::fs::read_dir(folder)? {
            let path = file?.path();
            let text = std::fs::read_to_string(&path)?;
            history.add(entries(&text).with_context(|| path.display().to_string())?);
        }
        for grants in history.grants.values_mut() {
            grants.sort_by_key(|grant| (grant.us, grant.attempt));
        }
        Ok(history)
    }

    /// Adds the entries of one process.
    fn add(&mut self, entries: Vec<Entry>) {
        let mut grants: HashMap<(String, String), Grant> = HashMap::new();
        let mut asked = HashMap::new();
        for entry in entries {
            match entry {
                Entry::Granted {
                    us,
                    token,
                    deadline_ms,
                    ids,
                    details,
                } => {
                    for (index, id) in ids.into_iter().enumerate() {
                        let detail = details.get(index).or(details.first());
                        let attempt = detail.and_then(|detail| detail.split(' ').nth(1));
                        let grant = Grant {
                            us,
                            attempt: attempt.and_then(|text| text.parse().ok()).unwrap_or(0),
                            deadline_us: deadline_ms * 1_000,
                            acked_us: None,
                            is_settled: false,
                        };
                        grants.insert((id, token.clone()), grant);
                    }
                }
                Entry::Asked {
                    call, verb, items, ..
                } => {
                    *self.calls.entry(verb.clone()).or_insert(0) += 1;
                    if verb != "extend" {
                        for item in &items {
                            if let Some(grant) = grants.get_mut(item) {
                                grant.is_settled |= verb != "ack";
                            }
                        }
                    }
                    asked.insert(call, (verb, items));
                }
                Entry::Settled { call, us, words } => {
                    let (verb, items) = asked.remove(&call).unwrap_or_default();
                    for (item, word) in items.into_iter().zip(words) {
                        if let Some(grant) = grants.get_mut(&item).filter(|_| verb == "ack") {
                            match &*word {
                                "OK" => grant.acked_us = Some(us),
                                _ => grant.is_settled = true, // an earlier try may have acked it
                            }
                        }
                    }
                }
            }
        }
        for ((id, _), grant) in grants {
            self.grants.entry(id).or_default().push(grant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_and_acks_are_read() {
        let mut history = History::default();
        history.add(vec![
            Entry::Granted {
                us: 5,
                token: "t".into(),
                deadline_ms: 7,
                ids: vec!["a".into(), "b".into()],
                details: vec!["4 1 tick".into(), "3 2 tick crashes=1".into()],
            },
            Entry::Asked {
                call: 1,
                us: 6,
                verb: "ack".into(),
                items: vec![("a".into(), "t".into())],
            },
            Entry::Settled {
                call: 1,
                us: 8,
                words: vec!["OK".into()],
            },
        ]);
        let a = history.grants["a"][0];
        assert_eq!((a.attempt, a.acked_us, a.deadline_us), (1, Some(8), 7_000));
        let b = history.grants["b"][0];
        assert_eq!((b.attempt, b.acked_us), (2, None));
    }
}
