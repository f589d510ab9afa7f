//! Judges that callers of the library got the outcomes that the server reported.

use std::collections::HashMap;

use crate::check::record::split;
use crate::history::{Call, Verb};

/// The operations of one process that have no outcome yet.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    asked: HashMap<u64, Asked>,
    seen: HashMap<Verb, HashMap<String, ReadState>>,
}

#[derive(Debug)]
struct Asked {
    verb: Verb,
    ids: Vec<String>,
    replicas: u32,
}

/// The server's answers about an id since its operation began.
#[derive(Debug, Default)]
struct ReadState {
    /// The most operations on this id that ran at once: if there were several, no answer can be
    /// assigned to one of them.
    askers: u32,
    shared: bool,
    /// Whether one of the operations waits for replicas.
    durable: bool,
    words: Vec<(u64, Word)>,
}

#[derive(Debug, PartialEq)]
enum Word {
    NoAnswer,
    /// A probe that could change nothing got no answer.
    NoEffect,
    Refused,
    Said(String),
}

/// The verb of a call, and its ids.
fn ids(call: &Call) -> (Option<Verb>, Vec<&str>) {
    match call {
        Call::Push { items, .. } => (
            Some(Verb::Push),
            items.iter().map(|item| item.0.as_str()).collect(),
        ),
        Call::Settle { verb, items } => (
            Some(*verb),
            items.iter().map(|item| item.0.as_str()).collect(),
        ),
        Call::Change { verb, items } => (
            Some(*verb),
            items.iter().map(|item| item.0.as_str()).collect(),
        ),
        _ => (None, Vec::new()),
    }
}

impl Asking {
    pub(crate) fn asked(&mut self, op: u64, verb: Verb, ids: Vec<String>, replicas: u32) {
        let seen = self.seen.entry(verb).or_default();
        for id in &ids {
            let seen = seen.entry(id.clone()).or_default();
            seen.shared |= seen.askers > 0;
            seen.askers += 1;
            seen.durable |= replicas > 0;
        }
        self.asked.insert(
            op,
            Asked {
                verb,
                ids,
                replicas,
            },
        );
    }

    /// Whether a caller is pushing this id with a durability other than `Memory`.
    pub(crate) fn waits_for_replicas(&self, id: &str) -> bool {
        self.seen
            .get(&Verb::Push)
            .and_then(|seen| seen.get(id))
            .is_some_and(|seen| seen.durable)
    }

    /// For an operation that asked for replicas: its ids, each with the call that certainly
    /// confirmed it.
    pub(crate) fn confirmed(&self, op: u64, outcomes: &[String]) -> Vec<(String, Option<u64>)> {
        let Some(Asked { verb, ids, .. }) = self.asked.get(&op).filter(|asked| asked.replicas > 0)
        else {
            return Vec::new();
        };
        let call = |id: &String, outcome: &String| {
            let seen = self.seen.get(verb)?.get(id).filter(|seen| !seen.shared)?;
            seen.words
                .iter()
                .rev()
                .find(|(_, word)| is_said(*verb, word, outcome))
                .map(|(call, _)| *call)
        };
        ids.iter()
            .zip(outcomes)
            .map(|(id, outcome)| (id.clone(), call(id, outcome)))
            .collect()
    }

    /// The ids for which a push has the outcome `finished`, each with the call that certainly
    /// reported that.
    pub(crate) fn finished(&self, op: u64, outcomes: &[String]) -> Vec<(String, Option<u64>)> {
        let Some(Asked { ids, .. }) = self.asked.get(&op).filter(|asked| asked.verb == Verb::Push)
        else {
            return Vec::new();
        };
        let call = |id: &String| {
            let seen = self
                .seen
                .get(&Verb::Push)?
                .get(id)
                .filter(|seen| !seen.shared)?;
            seen.words
                .iter()
                .rev()
                .find(|(_, word)| is_said(Verb::Push, word, "FINISHED"))
                .map(|(call, _)| *call)
        };
        let finished = ids
            .iter()
            .zip(outcomes)
            .filter(|(_, outcome)| *outcome == "FINISHED");
        finished.map(|(id, _)| (id.clone(), call(id))).collect()
    }

    pub(crate) fn invoked(&mut self, number: u64, call: &Call, probes: bool) {
        self.note(number, call, |place| match call {
            Call::Push { items, .. } if probes && !items[place].4.contains("on_conflict=") => {
                Word::NoEffect
            }
            _ => Word::NoAnswer,
        });
    }

    pub(crate) fn answered(&mut self, number: u64, call: &Call, verdicts: &[String]) {
        self.note(number, call, |place| {
            verdicts.get(place).map_or(Word::NoAnswer, |word| {
                // What a partition remembers counts if the other one has nothing.
                let word = word.strip_prefix("AWAY ").unwrap_or(word);
                Word::Said(word.to_owned())
            })
        });
    }

    pub(crate) fn refused(&mut self, number: u64, call: &Call) {
        self.note(number, call, |_| Word::Refused);
    }

    fn note(&mut self, number: u64, call: &Call, word: impl Fn(usize) -> Word) {
        let (Some(verb), ids) = ids(call) else { return };
        let Some(seen) = self.seen.get_mut(&verb).filter(|seen| !seen.is_empty()) else {
            return;
        };
        for (place, id) in ids.into_iter().enumerate() {
            let Some(seen) = seen.get_mut(id) else {
                continue;
            };
            match seen.words.iter_mut().find(|(call, known)| {
                *call == number && matches!(known, Word::NoAnswer | Word::NoEffect)
            }) {
                Some(known) => known.1 = word(place),
                None => seen.words.push((number, word(place))),
            }
        }
    }

    /// Describes operations that made calls but have no outcome.
    pub(crate) fn never_told(&self) -> Vec<String> {
        let called = |asked: &Asked| {
            let seen = self.seen.get(&asked.verb);
            asked.ids.iter().any(|id| {
                seen.and_then(|seen| seen.get(id))
                    .is_some_and(ReadState::was_called)
            })
        };
        let silent = self.asked.iter().filter(|(_, asked)| called(asked));
        silent
            .map(|(op, Asked { verb, ids, .. })| {
                format!("{verb:?} of {ids:?}, operation {op}, got no outcome")
            })
            .collect()
    }

    /// Judges the outcomes of an operation. Describes those that are not true.
    pub(crate) fn told(&mut self, op: u64, outcomes: &[String]) -> Vec<String> {
        let Some(Asked { verb, ids, .. }) = self.asked.remove(&op) else {
            return vec![format!(
                "an outcome of operation {op}, which was not started"
            )];
        };
        let mut lies = Vec::new();
        if ids.len() != outcomes.len() {
            lies.push(format!(
                "{verb:?} of {} ids got {} outcomes",
                ids.len(),
                outcomes.len()
            ));
        }
        let Some(seen) = self.seen.get_mut(&verb) else {
            return lies;
        };
        for (id, outcome) in ids.iter().zip(outcomes) {
            let Some(of_id) = seen.get_mut(id) else {
                continue;
            };
            if !of_id.shared && !of_id.allows(verb, outcome) {
                lies.push(format!(
                    "{verb:?} of {id} got {outcome:?}; the server answered {:?}",
                    of_id.words
                ));
            }
            of_id.askers = of_id.askers.saturating_sub(1);
            if of_id.askers == 0 {
                seen.remove(id);
            }
        }
        lies
    }
}

impl ReadState {
    fn allows(&self, verb: Verb, outcome: &str) -> bool {
        match outcome.as_bytes().first() {
            // The outcome "may have taken effect" is true if no answer says whether the call has.
            Some(b'?') => {
                self.durable
                    || self.words.is_empty()
                    || self.words.iter().any(|(_, word)| match word {
                        Word::NoAnswer | Word::NoEffect => true,
                        Word::Refused => false,
                        // A call that was sent at most once by the library may be sent again after
                        // either outcome.
                        Word::Said(said) if verb == Verb::Throttle => {
                            // The queue has further partitions, and the throttle did not reach some
                            // of them.
                            outcome.starts_with("?the delivery is settled") && acted(verb, said)
                        }
                        Word::Said(said) => said == "EXPIRED" || said.starts_with("FINISHED "),
                    })
            }
            // The outcome "has not taken effect" is true only if no call may have taken effect. A
            // get never has one.
            Some(b'!') => self.words.iter().all(|(_, word)| match word {
                Word::NoAnswer => verb == Verb::Get,
                Word::Refused | Word::NoEffect => true,
                Word::Said(said) => !acted(verb, said),
            }),
            _ => self.words.iter().any(|(_, word)| match word {
                // This answer is possible only after an earlier try whose answer was lost.
                Word::Said(said) if said == "CANCELLED earlier" => {
                    outcome == "CANCELLED"
                        && self.words.iter().any(|(_, word)| *word == Word::NoAnswer)
                }
                word => is_said(verb, word, outcome),
            }),
        }
    }

    /// Whether there was a call that was answered or may have been applied.
    fn was_called(&self) -> bool {
        self.words.iter().any(|(_, word)| *word != Word::Refused)
    }
}

/// Whether the outcome equals the server's answer, apart from a time that the library does not
/// return.
fn is_said(verb: Verb, word: &Word, outcome: &str) -> bool {
    let Word::Said(said) = word else { return false };
    match verb {
        Verb::Again | Verb::RunNow => split(said).0 == outcome,
        // The number after FINISHED is the end of the earlier message; the library does not return
        // it.
        Verb::Push if outcome == "FINISHED" => split(said).0 == outcome,
        _ => said == outcome,
    }
}

fn acted(verb: Verb, said: &str) -> bool {
    match split(said).0 {
        "CREATED" | "MOVED" | "OK" | "SCHEDULED" | "CANCELLED" | "REQUEUED" => true,
        "DEAD" | "DROPPED" => matches!(verb, Verb::Retry | Verb::Snooze),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::ChangeItem;

    /// The number of lies, if a cancel got these answers and this outcome. `None` is a call without
    /// an answer.
    fn lies(answers: &[Option<&str>], told: &str) -> usize {
        lies_of(Verb::Cancel, answers, told)
    }

    fn lies_of(verb: Verb, answers: &[Option<&str>], told: &str) -> usize {
        let items = vec![ChangeItem("a".into(), String::new())];
        let call = Call::Change { verb, items };
        let mut asking = Asking::default();
        asking.asked(1, verb, vec!["a".into()], 0);
        for (number, answer) in (0..).zip(answers) {
            asking.invoked(number, &call, false);
            match answer {
                Some("REFUSED") => asking.refused(number, &call),
                Some(word) => asking.answered(number, &call, &[(*word).to_owned()]),
                None => {}
            }
        }
        asking.told(1, &[told.to_owned()]).len()
    }

    #[test]
    fn caller_answer_needs_a_matching_answer_of_the_queue() {
        assert_eq!(lies(&[Some("CANCELLED")], "CANCELLED"), 0);
        assert_eq!(lies(&[None, Some("ABSENT")], "ABSENT"), 0);
        assert_eq!(lies(&[Some("LEASED")], "CANCELLED"), 1);
        assert_eq!(lies(&[], "CANCELLED"), 1);
        assert_eq!(lies(&[None, Some("CANCELLED earlier")], "CANCELLED"), 0);
        assert_eq!(lies(&[Some("CANCELLED earlier")], "CANCELLED"), 1);
        assert_eq!(
            lies(&[Some("REFUSED"), Some("CANCELLED earlier")], "CANCELLED"),
            1
        );
    }

    #[test]
    fn not_applied_needs_calls_that_were_all_refused() {
        assert_eq!(lies(&[Some("REFUSED")], "!no"), 0);
        assert_eq!(lies(&[Some("ABSENT")], "!no"), 0);
        assert_eq!(lies(&[None, Some("REFUSED")], "!no"), 1);
        assert_eq!(lies_of(Verb::Get, &[None, Some("REFUSED")], "!no"), 0);
        assert_eq!(lies(&[Some("CANCELLED")], "!no"), 1);
        assert_eq!(lies(&[None, Some("REFUSED")], "?perhaps"), 0);
    }

    #[test]
    fn throttle_may_close_only_some_of_the_partitions() {
        let of_id = ReadState {
            words: vec![(1, Word::Said("OK 1234".to_owned()))],
            ..ReadState::default()
        };
        let part = "?the delivery is settled, and 8 of the 12 partitions of queue q are closed";
        assert!(of_id.allows(Verb::Throttle, part));
        assert!(!of_id.allows(Verb::Throttle, "?perhaps"));
        assert!(!of_id.allows(Verb::Ack, part));
    }
}
