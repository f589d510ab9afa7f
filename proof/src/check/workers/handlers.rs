//! Judges that a process starts a handler for each granted message, with the granted values, or
//! gives the message back.

use std::collections::{HashMap, HashSet};

use crate::check::verdict::Kind;
use crate::history::{Call, ClaimedItem, SettleItem, Verb};

/// The grants of one process that have neither a handler nor a settlement yet.
#[derive(Debug, Default)]
pub(crate) struct Granted {
    of: HashMap<String, Vec<Delivery>>,
    /// Id and token of grants that are assumed to be started although the process had another grant
    /// of that message with equal content. A replaced master and the new one may both have granted
    /// it.
    guessed: HashSet<(String, String)>,
}

#[derive(Debug)]
struct Delivery {
    token: String,
    answered_us: u64,
    /// The granted version, due time and attempt.
    content: (u32, u64, u32),
    /// Whether the process lost the lease: an extension was refused, or the claim waited too long
    /// for its connection.
    is_lost: bool,
}

/// If a process was killed, it may not have started grants that came this shortly before its last
/// line.
const ABOUT_TO_BEGIN_US: u64 = 30_000_000;

/// For each master, the last time for which it did not answer a process for as long as a lease. A
/// node beats more often than that, so it then has no connection.
///
/// A worker counts a lease from the moment at which it begins the claim, and a claim may wait for a
/// connection. So during such a silence the lease of the first claim of each queue may be used up
/// before a handler can start.
#[derive(Debug, Default)]
pub(crate) struct Silences {
    /// The silence of each master.
    of: HashMap<u16, Silence>,
}

#[derive(Debug, Default)]
struct Silence {
    answered_us: u64,
    ended_us: Option<u64>,
    /// The queues that have made a claim since the silence.
    claimed: HashSet<u16>,
}

impl Silences {
    /// Notes an answer of the master.
    pub(crate) fn answered(&mut self, master: u16, lease_us: u64, t_us: u64) {
        let silence = self.of.entry(master).or_default();
        let last_us = std::mem::replace(&mut silence.answered_us, t_us);
        if last_us > 0 && lease_us > 0 && t_us - last_us >= lease_us {
            silence.ended_us = Some(t_us);
            silence.claimed.clear();
        }
    }

    /// Notes an answered claim that was sent at this time. Returns whether its lease may be used up
    /// by the silence: that holds only for the first claim of its queue.
    pub(crate) fn used_up(&mut self, claim: (u16, u16), lease_us: u64, asked_us: u64) -> bool {
        let (master, queue) = claim;
        let silence = self.of.entry(master).or_default();
        let is_near = |ended_us| asked_us < ended_us + lease_us;
        silence.claimed.insert(queue) && silence.ended_us.is_some_and(is_near)
    }
}

impl Granted {
    /// Notes granted messages. `is_lost`: their lease may have expired for the process before the
    /// answer came.
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

    /// Notes messages that a claim without an answer was granted, as the process learned later.
    pub(crate) fn held(&mut self, token: &str, answered_us: u64, items: &[ClaimedItem]) {
        let is_new = |item: &&ClaimedItem| {
            let mut known = self.of.get(&item.0).into_iter().flatten();
            !known.any(|delivery| delivery.token == token)
        };
        let new: Vec<_> = items.iter().filter(is_new).cloned().collect();
        self.claimed(token, answered_us, &new, false);
    }

    /// Notes a settlement: it gives the message back, or follows a handler's start.
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
            // The message is given back: the handler that started belongs to the other grant.
            let key = (item.0.clone(), item.1.clone());
            if *verb == Verb::Release && self.guessed.remove(&key) {
                self.remove(&item.0, |_| true);
            }
        }
    }

    /// Notes an answered extension. A message whose lease is over needs no handler.
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

    /// Describes the grants that are left at the end of a process: all of them if it ended on
    /// request.
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

    /// Two masters grant one message to one process, which starts one handler and perhaps gives a
    /// grant back. Returns the number of forgotten grants.
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
    fn one_of_two_grants_is_started_and_one_given_back() {
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
