//! All starts of a run, from the logs of its nodes and the leases that the server holds.
//!
//! A start is a message that a claim grants. A node logs the answer of each claim before it uses
//! it, with the server's time in microseconds. A kill -9 can lose an answer. Then no node settles
//! the messages, so their lease stays in Redis until its deadline, and [`Watch`](super::watch)
//! sees it there. The time of that claim follows from the deadline to the millisecond.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use anyhow::{Context, Result};

use super::record::Entry;

/// A lease that the server held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) deadline_ms: u64,
    pub(crate) ids: Vec<String>,
}

/// A message that a claim granted, in microseconds of the server's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start {
    /// When the claim ran: not before, and not after. Both are equal if a node logged the answer.
    pub(crate) earliest_us: u64,
    pub(crate) latest_us: u64,
    /// The lease deadline, with extensions that were answered.
    pub(crate) deadline_us: u64,
    /// When the first settlement was applied, or may have been.
    pub(crate) settled_us: Option<u64>,
    /// The server's time of an acknowledgement that succeeded.
    pub(crate) acked_us: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct History {
    /// By time.
    pub(crate) starts: Vec<Start>,
    /// How many of them no node logged.
    pub(crate) unlogged: u64,
    /// How often nodes called each script.
    pub(crate) calls: BTreeMap<String, u64>,
}

impl History {
    /// Reads the logs of a folder.
    pub(crate) fn read(folder: &Path, held: &HashMap<String, Held>, lease_ms: u64) -> Result<Self> {
        let mut history = Self::default();
        let mut logged = HashSet::new();
        for file in std::fs::read_dir(folder)? {
            let path = file?.path();
            let text = std::fs::read_to_string(&path)?;
            let entries = entries(&text).with_context(|| path.display().to_string())?;
            history.add(entries, &mut logged);
        }
        history.add_unlogged(held, &logged, lease_ms);
        history.starts.sort_by_key(|start| start.latest_us);
        Ok(history)
    }

    /// Adds the entries of one process.
    fn add(&mut self, entries: Vec<Entry>, logged: &mut HashSet<String>) {
        let mut starts: HashMap<(String, String), Start> = HashMap::new();
        let mut asked = HashMap::new();
        for entry in entries {
            match entry {
                Entry::Granted {
                    us,
                    token,
                    deadline_ms,
                    ids,
                    ..
                } => {
                    for id in ids {
                        let start = Start {
                            earliest_us: us,
                            latest_us: us,
                            deadline_us: deadline_ms * 1_000,
                            settled_us: None,
                            acked_us: None,
                        };
                        starts.insert((id, token.clone()), start);
                    }
                    logged.insert(token);
                }
                Entry::Asked {
                    call,
                    us,
                    verb,
                    items,
                } => {
                    *self.calls.entry(verb.clone()).or_insert(0) += 1;
                    if !items.is_empty() {
                        asked.insert(call, (us, verb, items));
                    }
                }
                Entry::Settled { call, us, words } => {
                    let Some((asked_us, verb, items)) = asked.remove(&call) else {
                        continue;
                    };
                    for (item, word) in items.into_iter().zip(words) {
                        if let Some(start) = starts.get_mut(&item) {
                            start.answered(&verb, asked_us, us, &word);
                        }
                    }
                }
            }
        }
        // Settlements without an answer: from when they were sent, they may have been applied.
        for (asked_us, verb, items) in asked.into_values().filter(|asked| asked.1 != "extend") {
            for item in items {
                if let Some(start) = starts.get_mut(&item) {
                    start.answered(&verb, asked_us, asked_us, "");
                }
            }
        }
        self.starts.extend(starts.into_values());
    }

    /// Adds the claims whose answers no node logged.
    fn add_unlogged(
        &mut self,
        held: &HashMap<String, Held>,
        logged: &HashSet<String>,
        lease_ms: u64,
    ) {
        for (_, held) in held.iter().filter(|held| !logged.contains(held.0)) {
            // The script adds the lease to its time rounded up.
            let latest_us = held.deadline_ms.saturating_sub(lease_ms) * 1_000;
            let start = Start {
                earliest_us: latest_us.saturating_sub(999),
                latest_us,
                deadline_us: held.deadline_ms * 1_000,
                settled_us: None,
                acked_us: None,
            };
            self.starts.extend(held.ids.iter().map(|_| start));
            self.unlogged += held.ids.len() as u64;
        }
    }
}

impl Start {
    /// Until when the lease certainly lasted.
    pub(crate) fn end_us(&self) -> u64 {
        self.settled_us
            .map_or(self.deadline_us, |us| us.min(self.deadline_us))
    }

    /// Answers of different connections are logged in any order: that of an extension may follow
    /// that of the ack which ended its lease.
    fn answered(&mut self, verb: &str, asked_us: u64, us: u64, word: &str) {
        match (verb, word.split_once(' ').map_or(word, |parts| parts.0)) {
            ("extend", "OK") => {
                let deadline_ms = word.split(' ').nth(1).and_then(|ms| ms.parse::<u64>().ok());
                let deadline_us = deadline_ms.unwrap_or(0) * 1_000;
                self.deadline_us = self.deadline_us.max(deadline_us);
            }
            ("extend", _) => {}
            ("ack", "OK") => {
                self.settle(us);
                self.acked_us = Some(us);
            }
            // An earlier try without an answer was applied, or this one was.
            _ => self.settle(asked_us),
        }
    }

    fn settle(&mut self, us: u64) {
        self.settled_us = Some(self.settled_us.map_or(us, |first| first.min(us)));
    }
}

/// The entries of a log. Its last line may be incomplete: the process was killed.
pub(crate) fn entries(text: &str) -> Result<Vec<Entry>> {
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    complete
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| line.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(us: u64, token: &str) -> Entry {
        Entry::Granted {
            us,
            token: token.into(),
            deadline_ms: us / 1_000 + 2_000,
            ids: vec!["a".into()],
            details: Vec::new(),
        }
    }

    fn asked(call: u64, us: u64, verb: &str, token: &str) -> Entry {
        Entry::Asked {
            call,
            us,
            verb: verb.into(),
            items: vec![("a".into(), token.into())],
        }
    }

    fn settled(call: u64, us: u64, word: &str) -> Entry {
        Entry::Settled {
            call,
            us,
            words: vec![word.into()],
        }
    }

    fn history(entries: Vec<Entry>, held: &[(&str, u64)]) -> History {
        let (mut history, mut logged) = (History::default(), HashSet::new());
        history.add(entries, &mut logged);
        let held = held.iter().map(|(token, deadline_ms)| {
            let ids = vec!["a".into()];
            let deadline_ms = *deadline_ms;
            ((*token).to_owned(), Held { deadline_ms, ids })
        });
        history.add_unlogged(&held.collect(), &logged, 2_000);
        history
    }

    #[test]
    fn lease_ends_with_its_ack() {
        let entries = vec![
            granted(1_000, "t"),
            asked(1, 5_000, "ack", "t"),
            settled(1, 5_400, "OK"),
        ];
        let start = history(entries, &[]).starts[0];
        assert_eq!((start.end_us(), start.acked_us), (5_400, Some(5_400)));
    }

    #[test]
    fn unanswered_ack_may_have_ended_the_lease() {
        let entries = vec![granted(1_000, "t"), asked(1, 5_000, "ack", "t")];
        let start = history(entries, &[]).starts[0];
        assert_eq!((start.end_us(), start.acked_us), (5_000, None));
    }

    #[test]
    fn extension_prolongs_the_lease() {
        let entries = vec![
            granted(1_000, "t"),
            asked(1, 5_000, "extend", "t"),
            settled(1, 5_400, "OK 9000"),
        ];
        assert_eq!(history(entries, &[]).starts[0].end_us(), 9_000_000);
    }

    #[test]
    fn late_answer_of_an_extension_does_not_undo_an_ack() {
        let entries = vec![
            granted(1_000, "t"),
            asked(1, 5_000, "extend", "t"),
            asked(2, 5_100, "ack", "t"),
            settled(2, 5_500, "OK"),
            settled(1, 5_400, "OK 9000"),
        ];
        assert_eq!(history(entries, &[]).starts[0].end_us(), 5_500);
    }

    #[test]
    fn claim_without_logged_answer_counts_by_its_lease() {
        let history = history(vec![granted(1_000, "t")], &[("t", 2_001), ("u", 2_008)]);
        assert_eq!((history.starts.len(), history.unlogged), (2, 1));
        let start = history.starts[1];
        assert_eq!((start.earliest_us, start.latest_us), (7_001, 8_000));
        assert_eq!(start.end_us(), 2_008_000);
    }

    #[test]
    fn incomplete_last_line_is_left_out() {
        let line = serde_json::to_string(&granted(1, "t")).expect("JSON");
        let read = |text: &str| entries(text).map(|entries| entries.len());
        assert_eq!(read(&format!("{line}\n{}", &line[..9])).expect("one"), 1);
        assert!(read(&format!("{}\n{line}\n", &line[..9])).is_err());
    }
}
