//! Whether a process starts a handler for each granted message, with the granted values, or returns
//! the message.

use std::collections::{HashMap, HashSet};

use crate::check::verdict::Kind;
use crate::history::{Call, ClaimedItem, SettleItem, Verb};

/// The grants of one process without a handler or a settlement.
#[derive(Debug, Default)]
pub(crate) struct Granted {
    of: HashMap<String, Vec<Delivery>>,
    /// Id and token of grants taken as started while the process had another grant of the same
    /// message with the same content: a replaced master and the new one may both have granted it.
    guessed: HashSet<(String, String)>,
}

#[derive(Debug)]
struct Delivery {
    token: String,
    answered_us: u64,
    /// Version, due time, attempt.
    content: (u32, u64, u32),
    /// An extension was refused, or the claim waited too long for its connection: for the process
    /// the lease had ended.
    is_lost: bool,
}

/// A killed process may not have started its last grants, if they came so shortly before its last
/// line.
const ABOUT_TO_BEGIN_US: u64 = 30_000_000;

/// The last time that each master answered a process nothing for as long as a lease. A node beats
/// more often: then it has no connection.
///
/// A worker counts a lease from when it began the claim, which may wait for a connection. So such a
/// silence can use up the lease of the claim that each queue had begun in it, before any handler can
/// start.
#[derive(Debug, Default)]
pub(crate) struct Silences {
    /// By master.
    of: HashMap<u16, Silence>,
}

#[derive(Debug, Default)]
struct Silence {
    answered_us: u64,
    ended_us: Option<u64>,
    /// The queues with a claim since.
    claimed: HashSet<u16>,
}

impl Silences {
    /// The master answered.
    pub(crate) fn answered(&mut self, master: u16, lease_us: u64, t_us: u64) {
        let silence = self.of.entry(master).or_default();
        let last_us = std::mem::replace(&mut silence.answered_us, t_us);
        if last_us > 0 && lease_us > 0 && t_us - last_us >= lease_us {
            silence.ended_us = Some(t_us);
            silence.claimed.clear();
        }
    }

    /// A claim was answered that was sent at this time. Returns whether it may have begun in the
    /// silence, a lease ago: only the first of its queue can.
    pub(crate) fn used_up(&mut self, claim: (u16, u16), lease_us: u64, asked_us: u64) -> bool {
        let (master, queue) = claim;
        let silence = self.of.entry(master).or_default();
        let is_near = |ended_us| asked_us < ended_us + lease_us;
        silence.claimed.insert(queue) && silence.ended_us.is_some_and(is_near)
    }
}

impl Granted {
    /// `is_lost`: its lease may have run out for the process before it was answered.
    pub(crate) fn claimed(
        &mut self,
        token: &str,
        answered_us: u64,
        items: &[ClaimedItem],
        is_lost: bool,
    ) {
        for item in items {
            let delivery = Delivery {
                token: token.to_owned(),
                answered_us,
                content: (item.1, item.2, item.3),
                is_lost,
            };
            self.of.entry(item.0.clone()).or_default().push(delivery);
        }
    }

    /// What a claim without an answer was granted, as the process learned later.
    pub(crate) fn held(&mut self, token: &str, answered_us: u64, items: &[ClaimedItem]) {
        let is_new = |item: &&ClaimedItem| {
            let mut known = self.of.get(&item.0).into_iter().flatten();
            !known.any(|delivery| delivery.token == token)
        };
        let new: Vec<_> = items.iter().filter(is_new).cloned().collect();
        self.claimed(token, answered_us, &new, false);
    }

    /// A settlement returns the message, or follows a handler's start.
    pub(crate) fn invoked(&mut self, call: &Call) {
        let (verb, items) = match call {
            Call::Settle { verb, items } => (verb, &items[..]),
            Call::Follow { ack, .. } => (&Verb::Ack, std::slice::from_ref(&**ack)),
            _ => return,
        };
        for item in items.iter().filter(|_| *verb != Verb::Extend) {
            if self.remove(&item.0, |delivery| delivery.token == item.1) {
                continue;
            }
            // It is given back: the handler that started had the other grant.
            let key = (item.0.clone(), item.1.clone());
            if *verb == Verb::Release && self.guessed.remove(&key) {
                self.remove(&item.0, |_| true);
            }
        }
    }

    /// An extension was answered. What is no longer leased needs no handler.
    pub(crate) fn extended(&mut self, items: &[SettleItem], verdicts: &[String]) {
        let refused = |word: &str| matches!(word, "LOST" | "GONE");
        for (item, _) in items.iter().zip(verdicts).filter(|(_, word)| refused(word)) {
            let of_id = self.of.get_mut(&item.0).into_iter().flatten();
            of_id
                .filter(|delivery| delivery.token == item.1)
                .for_each(|delivery| delivery.is_lost = true);
        }
    }

    pub(crate) fn started(
        &mut self,
        id: &str,
        content: (u32, u64, u32),
    ) -> Result<(), (Kind, String)> {
        let of_id = self.of.get(id).into_iter().flatten();
        let mut same = of_id.filter(|delivery| delivery.content == content);
        if let (Some(first), Some(_)) = (same.next(), same.next()) {
            self.guessed.insert((id.to_owned(), first.token.clone()));
        }
        if self.remove(id, |delivery| delivery.content == content) {
            return Ok(());
        }
        Err(match self.of.get(id) {
            Some(claims) => {
                let claims: Vec<_> = claims.iter().map(|delivery| delivery.content).collect();
                let what = "version, due, attempt";
                (
                    Kind::ApiLies,
                    format!("a handler of {id} saw {what} {content:?}, claimed were {claims:?}"),
                )
            }
            None => (
                Kind::Unexpected,
                format!("a handler of {id} started without a claim"),
            ),
        })
    }

    /// Describes the remaining grants at the end of a process: all of them if it ended on request.
    pub(crate) fn forgotten(&self, ended: bool, last_us: u64) -> Vec<String> {
        let all = self
            .of
            .iter()
            .flat_map(|(id, deliveries)| deliveries.iter().map(move |delivery| (id, delivery)));
        let late = all.filter(|(_, delivery)| {
            !delivery.is_lost && (ended || delivery.answered_us + ABOUT_TO_BEGIN_US < last_us)
        });
        late.map(|(id, Delivery { token, answered_us, content, .. })| {
            format!("{id} was granted by {token} at {answered_us} us (version, due, attempt {content:?}), and neither begun nor given back")
        })
        .collect()
    }

    fn remove(&mut self, id: &str, is: impl Fn(&Delivery) -> bool) -> bool {
        let Some(deliveries) = self.of.get_mut(id) else {
            return false;
        };
        let Some(place) = deliveries.iter().position(is) else {
            return false;
        };
        deliveries.remove(place);
        if deliveries.is_empty() {
            self.of.remove(id);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two masters grant the same message to one process. It starts one handler, and perhaps gives
    /// a grant back.
    fn forgotten(given_back: &[(Verb, &str)]) -> usize {
        let mut granted = Granted::default();
        for token in ["old", "new"] {
            granted.claimed(
                token,
                1,
                &[ClaimedItem("a".into(), 1, 2, 3, 100, String::new())],
                false,
            );
        }
        granted.started("a", (1, 2, 3)).expect("granted");
        for (verb, token) in given_back {
            let items = vec![SettleItem("a".into(), (*token).into(), String::new())];
            granted.invoked(&Call::Settle { verb: *verb, items });
        }
        granted.forgotten(true, 1).len()
    }

    #[test]
    fn of_two_grants_one_is_started_and_one_given_back() {
        assert_eq!(forgotten(&[]), 1);
        assert_eq!(forgotten(&[(Verb::Release, "old")]), 0);
        assert_eq!(forgotten(&[(Verb::Release, "new")]), 0);
        assert_eq!(
            forgotten(&[(Verb::Ack, "old")]),
            1,
            "of the handler that started"
        );
    }

    #[test]
    fn a_grant_whose_extension_is_refused_needs_no_handler() {
        for (word, forgotten) in [("OK 5", 1), ("LOST", 0), ("GONE", 0)] {
            let mut granted = Granted::default();
            let item = ClaimedItem("a".into(), 1, 2, 3, 100, String::new());
            granted.held("token", 1, &[item]);
            let extension = [SettleItem("a".into(), "token".into(), "2000".into())];
            granted.extended(&extension, &[word.to_owned()]);
            assert_eq!(granted.forgotten(true, 1).len(), forgotten, "{word}");
        }
    }
}
