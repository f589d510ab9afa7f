//! Checks the guarantees over a whole run from the replies alone, independently of the model.
//!
//! Leases and `until` are compared with the latest time of the server's clock: a lease that ended
//! stays ended when the clock steps back.
//! A due time is compared with the current time: no message is early because the clock stepped
//! back.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

use crate::model::client::operation::{Hold, Operation};
use crate::model::history_of_pushes::Told;
use crate::model::repairs::{latest_deadline, repaired_deadline};
use crate::model::world::Now;
use crate::reply::{Reply, Text};
use crate::state::State;

/// A message that exists according to the replies.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) payload: Text,
    pub(crate) due: u64,
    /// Token and deadline of the last claim that is not settled.
    pub(crate) claim: Option<(Text, u64)>,
    /// The payload and due time of the next message, which waits for the end of this delivery.
    pub(crate) next: Option<(Text, u64)>,
}

#[derive(Default)]
pub(crate) struct History {
    pub(crate) lives: BTreeMap<Text, Life>,
    /// Times of the results CREATED, by the call's number and the item's position.
    pub(crate) created: BTreeMap<(usize, usize), Now>,
    /// When an id last ended by a cancel or a move, by the server's clock.
    pub(crate) ended: BTreeMap<Text, Now>,
    /// The calls, and positions in them, that stored a message or next message with
    /// `on_conflict=next`.
    pub(crate) followed: BTreeSet<(usize, usize)>,
    /// The ends of the windows of ids.
    pub(crate) windows: BTreeMap<Text, u64>,
    /// The ids of ticks that claims made.
    pub(crate) fired: BTreeSet<Text>,
    pub(crate) clock: u64,
    /// Whether release 0.1 answers some calls: it ignores windows.
    pub(crate) is_mixed: bool,
}

impl History {
    /// Records a call and its reply. A repetition has the number of the call that it repeats.
    pub(crate) fn note(
        &mut self,
        number: usize,
        now: Now,
        operation: &Operation,
        reply: &Reply,
        after: &State,
    ) -> Result<()> {
        self.clock = self.clock.max(now.floor());
        match operation {
            Operation::Push { attempt, items, .. } => {
                for (place, (item, answer)) in items.iter().zip(reply.items()?).enumerate() {
                    let told = Told {
                        call: (number, place),
                        attempt: attempt.as_ref(),
                        item,
                        answer: &answer,
                    };
                    self.pushed(now, &told, after)?;
                }
            }
            Operation::AckPush { hold, items } => {
                let result = reply.part(1)?.text()?;
                let answers = reply.part(2)?.list()?;
                if result != "REFUSED" {
                    self.settle(hold, &result, |_, _| false)?;
                }
                for (item, answer) in items.iter().zip(answers).filter(|_| result == "OK") {
                    let told = Told {
                        call: (usize::MAX, 0),
                        attempt: None,
                        item,
                        answer: &answer.text()?,
                    };
                    self.pushed(now, &told, after)?;
                }
            }
            Operation::Claim { token, .. } => {
                self.granted(now, token, reply)?;
                // The claim may have dropped expired messages, which the reply does not name.
                self.lives.retain(|id, _| after.messages.contains_key(id));
            }
            Operation::Ack(holds) => {
                self.settled(holds, reply, |_, _| false)?;
            }
            Operation::Release(holds) | Operation::EndLeases(holds) => {
                self.settled(holds, reply, |_, _| true)?;
                self.due_now(now, after);
            }
            Operation::Reap(_) => {
                for (id, life) in &mut self.lives {
                    if !after.claims.contains_key(id) {
                        life.end();
                    }
                }
                self.due_now(now, after);
            }
            Operation::RequeueIds(_) | Operation::RequeueOldest { .. } => {
                self.due_now(now, after);
            }
            Operation::Bury(items) => {
                let holds: Vec<Hold> = items.iter().map(|(hold, _)| hold.clone()).collect();
                self.settled(&holds, reply, |_, _| true)?;
            }
            Operation::Again(items) => {
                let holds: Vec<Hold> = items.iter().map(|(hold, _)| hold.clone()).collect();
                self.settled(&holds, reply, take_due)?;
            }
            Operation::Retry(items) => {
                let holds: Vec<Hold> = items.iter().map(|(hold, ..)| hold.clone()).collect();
                self.settled(&holds, reply, take_due)?;
            }
            Operation::Snooze(items) => {
                let holds: Vec<Hold> = items.iter().map(|(hold, _)| hold.clone()).collect();
                self.settled(&holds, reply, take_due)?;
            }
            Operation::Throttle(items) => {
                let holds: Vec<Hold> = items.iter().map(|(hold, _)| hold.clone()).collect();
                self.settled(&holds, reply, |_, _| true)?;
                self.due_now(now, after);
            }
            Operation::Extend(items) => {
                for (((id, token), _), answer) in items.iter().zip(reply.items()?) {
                    let Some(deadline) = number_in(&answer) else {
                        continue;
                    };
                    let claim = self.lives.get_mut(id).and_then(|life| life.claim.as_mut());
                    ensure!(
                        claim.as_ref().is_some_and(|claim| claim.0 == *token),
                        "{id:?}: extended with another token than the claim's"
                    );
                    if let Some(claim) = claim {
                        ensure!(deadline >= claim.1, "{id:?}: the lease was shortened");
                        claim.1 = deadline;
                    }
                }
            }
            Operation::Audit {
                part: "leases",
                repairs: true,
            } => {
                let claims = self.lives.values_mut();
                for (_, deadline) in claims.filter_map(|life| life.claim.as_mut()) {
                    if *deadline > latest_deadline(now) {
                        *deadline = repaired_deadline(now);
                    }
                }
            }
            Operation::Cancel { ids, .. } => {
                for (id, answer) in ids.iter().zip(reply.items()?) {
                    if answer == "CANCELLED" && self.lives.remove(id).is_some() {
                        self.ended.insert(id.clone(), now);
                        self.windows.remove(id);
                    }
                    if answer == "CANCELLED next" {
                        let life = self.lives.get_mut(id);
                        let next = life.and_then(|life| life.next.take());
                        ensure!(next.is_some(), "{id:?}: it had no next message");
                    }
                }
            }
            Operation::Reschedule(items) => {
                for ((id, ..), answer) in items.iter().zip(reply.items()?) {
                    self.moved(now, id, &answer)?;
                }
            }
            Operation::RunNow(ids) => {
                for (id, answer) in ids.iter().zip(reply.items()?) {
                    self.moved(now, id, &answer)?;
                }
            }
            Operation::Schedule(call) => self.declared(now, call, reply, after)?,
            Operation::Trigger { .. } => self.triggered(now, reply, after)?,
            Operation::Amend { change, names } if *change == "remove" => {
                names.iter().for_each(|name| self.forget_fires(name));
            }
            // The reply has no ids, so the state shows which messages are gone.
            Operation::Purge { .. } | Operation::Beat { .. } => {
                let gone = self
                    .lives
                    .keys()
                    .filter(|id| !after.messages.contains_key(*id))
                    .cloned()
                    .collect::<Vec<_>>();
                for id in gone {
                    self.lives.remove(&id);
                    if matches!(operation, Operation::Purge { .. }) {
                        self.windows.remove(&id);
                    }
                    self.ended.insert(id, now);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Makes a message due now that is released, requeued or reaped for the first time, even if its
    /// due time was later because the clock went back.
    fn due_now(&mut self, now: Now, after: &State) {
        for (id, life) in &mut self.lives {
            if State::score(&after.scheduled, id) == Some(now.floor() as f64) {
                life.due = life.due.min(now.floor());
            }
        }
    }

    fn granted(&mut self, now: Now, token: &Text, reply: &Reply) -> Result<()> {
        let deadline = reply.part(2)?.int()? as u64;
        for [id, payload, due, _, options] in &reply.deliveries()? {
            let (id, payload) = (id.bytes()?, payload.bytes()?);
            if options.text()?.split(' ').next() == Some("tick") && !self.lives.contains_key(id) {
                self.fired(id, payload, due.int()? as u64)?;
            }
            let life = self.lives.get_mut(id);
            ensure!(
                life.is_some(),
                "{id:?}: claimed after it was acked, cancelled or purged"
            );
            let Some(life) = life else { continue };
            ensure!(
                life.due <= now.floor(),
                "{id:?}: claimed at {now:?} before it was due at {}",
                life.due
            );
            ensure!(
                life.payload == *payload,
                "{id:?}: the payload is not the pushed one"
            );
            if let Some((_, expires)) = &life.claim {
                ensure!(
                    *expires <= self.clock,
                    "{id:?}: claimed while the lease of another claim lasted"
                );
            }
            life.claim = Some((token.clone(), deadline));
        }
        Ok(())
    }

    /// Checks settlements. `stays` says whether the message still exists, and may change its due
    /// time. A next message takes over in any case.
    fn settled(
        &mut self,
        holds: &[Hold],
        reply: &Reply,
        stays: fn(&mut Life, &str) -> bool,
    ) -> Result<()> {
        for (hold, answer) in holds.iter().zip(reply.items()?) {
            self.settle(hold, &answer, stays)?;
        }
        Ok(())
    }

    fn settle(
        &mut self,
        (id, token): &Hold,
        answer: &str,
        stays: fn(&mut Life, &str) -> bool,
    ) -> Result<()> {
        let claim = self.lives.get(id).and_then(|life| life.claim.clone());
        let current = claim.as_ref().is_some_and(|(held, _)| held == token);
        if ["GONE", "LOST"].contains(&answer) {
            let lasts = claim.is_some_and(|(_, deadline)| deadline > self.clock);
            ensure!(
                !(current && lasts),
                "{id:?}: {answer} although the lease lasts"
            );
        } else if !answer.starts_with("INVALID") {
            ensure!(
                current,
                "{id:?}: settled with another token than the claim's: {answer}"
            );
            let Some(life) = self.lives.get_mut(id) else {
                return Ok(());
            };
            life.claim = None;
            if !life.end() && !stays(life, answer) {
                self.lives.remove(id);
            }
        }
        Ok(())
    }

    fn moved(&mut self, now: Now, id: &Text, answer: &str) -> Result<()> {
        let Some(due) = number_in(answer).filter(|_| answer.starts_with("MOVED")) else {
            return Ok(());
        };
        ensure!(
            self.lives.contains_key(id),
            "{id:?}: moved although it does not exist"
        );
        self.ended.insert(id.clone(), now);
        if let Some(life) = self.lives.get_mut(id) {
            life.due = due;
        }
        Ok(())
    }
}

impl Life {
    /// Ends a delivery. Returns whether a next message takes over.
    fn end(&mut self) -> bool {
        let Some((payload, due)) = self.next.take() else {
            return false;
        };
        (self.payload, self.due, self.claim) = (payload, due, None);
        true
    }
}

fn take_due(life: &mut Life, answer: &str) -> bool {
    life.due = number_in(answer).unwrap_or(life.due);
    answer != "DROPPED"
}

/// Checks that no delivery of a claim had expired, by the options that the claim returned.
pub(crate) fn no_delivery_has_expired(now: Now, reply: &Reply) -> Result<()> {
    for [id, _, due, _, options] in &reply.deliveries()? {
        let options = options.text()?;
        let value = |name: &str| options.split(' ').find_map(|word| word.strip_prefix(name));
        let (fixed, given) = (value("expires_by="), value("expires="));
        let expiry = match (fixed, given) {
            (Some(ms), _) => ms.parse::<i64>()?,
            (None, Some(given)) if given.starts_with('+') => due.int()? + given.parse::<i64>()?,
            (None, Some(ms)) => ms.parse()?,
            (None, None) => continue,
        };
        ensure!(
            now.floor() as i64 <= expiry,
            "{id:?}: granted after {expiry}"
        );
    }
    Ok(())
}

fn number_in(answer: &str) -> Option<u64> {
    answer.split_once(' ')?.1.parse().ok()
}
