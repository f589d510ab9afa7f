//! The part of the model for the verbs of nodes.

use anyhow::{Context, Result, ensure};

use crate::model::client::operation::{Hold, Presence};
use crate::model::message::{Due, Message, Place};
use crate::model::schedules::fields::counted;
use crate::model::world::{Now, READY_LIMIT, World};
use crate::reply::{Reply, Text};
use crate::state::State;

const ERROR_BYTES: usize = 1_024;
const LEASE_MOST: u64 = 86_400_000;
pub(crate) const SILENCE_MS: u64 = 3_000;
pub(crate) const TRIM: usize = 500;

impl World {
    pub(crate) fn promote(&mut self, now: Now, limit: usize) -> Reply {
        let mut due = self.listed("scheduled");
        let is_shut = self.paused || self.closed(now).is_some();
        due.retain(|(due, _)| *due <= now.floor() && !is_shut);
        due.truncate(limit.min(READY_LIMIT - self.ready.len()));
        for (due, id) in &due {
            if let Some(message) = self.messages.get_mut(id) {
                message.place = Place::Ready { due: *due };
            }
            self.ready.push(id.clone());
        }
        Reply::List(vec![
            self.finish(now, !due.is_empty(), false),
            due.len().into(),
        ])
    }

    /// Ends a delivery if the token is that of its claim. If a next message takes over, returns
    /// `answer` with its due time for `D`. Otherwise runs `settle` with the message and its claim's
    /// due time.
    pub(crate) fn held(
        &mut self,
        (id, token): &Hold,
        (verb, answer): (&str, &str),
        settle: impl FnOnce(&mut Message, u64) -> String,
    ) -> String {
        let due = match self.place(id) {
            None => return "GONE".to_owned(),
            Some(Place::Leased {
                token: current,
                due,
                ..
            }) if current == token => *due,
            Some(_) => return "LOST".to_owned(),
        };
        if let Some(next_due) = self.start_next(id, verb) {
            return answer.replace(" D", &format!(" {next_due}"));
        }
        let Some(message) = self.messages.get_mut(id) else {
            return "GONE".to_owned();
        };
        message.original = None;
        settle(message, due)
    }

    /// Ends the deliveries of a batch. The counter grows by the number of items that changed
    /// something.
    pub(crate) fn settled(
        &mut self,
        now: Now,
        counter: &'static str,
        replies: Vec<String>,
    ) -> Reply {
        let refused = |reply: &str| ["GONE", "LOST", "INVALID"].contains(&reply);
        let done = replies.iter().filter(|reply| !refused(reply)).count();
        if !counter.is_empty() {
            self.count(counter, done);
        }
        let replies = replies.into_iter().map(Reply::from).collect();
        Reply::List(vec![
            self.finish(now, done > 0, false),
            Reply::List(replies),
        ])
    }

    pub(crate) fn ack(&mut self, now: Now, holds: &[Hold]) -> Reply {
        let (mut replies, mut names) = (Vec::new(), 0);
        for (at, hold) in holds.iter().enumerate() {
            let is_acked = |at: usize| holds[at].0 == hold.0 && replies[at] == "OK";
            if (0..at).any(is_acked) {
                // The item is answered GONE even if its next message has taken over.
                replies.push("GONE".to_owned());
                continue;
            }
            let (reply, more) = self.ack_one(now, hold, "ack");
            replies.push(reply);
            names += more;
        }
        if names > 0 {
            self.forget(now, 2 * names);
        }
        self.settled(now, "acked", replies)
    }

    pub(crate) fn again(&mut self, now: Now, items: &[(Hold, Due)]) -> Reply {
        let is_frozen = self.is_frozen;
        let mut replies = Vec::new();
        for (hold, due) in items {
            replies.push(match due.at(now) {
                None => "INVALID".to_owned(),
                Some(due) => self.held(hold, ("again", "OK D"), |message, _| {
                    (message.failures, message.crashes, message.error) = (0, 0, Text::default());
                    if !is_frozen {
                        message.added.clear();
                    }
                    message.place = Place::Scheduled { due };
                    format!("OK {due}")
                }),
            });
        }
        self.settled(now, "repeated", replies)
    }

    pub(crate) fn retry(&mut self, now: Now, items: &[(Hold, u64, Text)]) -> Reply {
        let queue_limit = self.limit("max_attempts").unwrap_or(20);
        let (is_frozen, mut replies, mut names) = (self.is_frozen, Vec::new(), 0);
        for (hold, after, error) in items {
            let reply = match Due::In(*after).at(now) {
                None => "INVALID".to_owned(),
                Some(due) => self.held(hold, ("retry", "SCHEDULED D"), |message, claimed_due| {
                    message.failures += 1;
                    message.error = Text(error.0.iter().copied().take(ERROR_BYTES).collect());
                    if message.failures >= message.max_attempts.unwrap_or(queue_limit) {
                        message.place = Place::Dead { at: now.floor() };
                        return "DEAD".to_owned();
                    }
                    if is_frozen {
                        message.place = Place::Scheduled { due };
                        return format!("SCHEDULED {due}");
                    }
                    message.later(now, due, claimed_due)
                }),
            };
            replies.push(self.after_later(now, hold, reply, &mut names));
        }
        self.forget(now, 2 * names);
        self.settled_later(now, "retried", replies)
    }

    pub(crate) fn release(&mut self, now: Now, holds: &[Hold]) -> Reply {
        let release = |message: &mut Message, due: u64| {
            message.place = Place::Scheduled {
                due: due.min(now.floor()),
            };
            "OK".to_owned()
        };
        let settle = |hold: &Hold| self.held(hold, ("release", "OK"), release);
        let replies = holds.iter().map(settle).collect();
        self.settled(now, "released", replies)
    }

    pub(crate) fn bury(&mut self, now: Now, items: &[(Hold, Text)]) -> Reply {
        let (mut replies, mut died) = (Vec::new(), 0);
        for (hold, reason) in items {
            replies.push(self.held(hold, ("bury", "OK"), |message, _| {
                died += 1;
                message.error = Text(reason.0.iter().copied().take(ERROR_BYTES).collect());
                message.place = Place::Dead { at: now.floor() };
                "OK".to_owned()
            }));
        }
        self.count("died", died);
        self.settled(now, "", replies)
    }

    pub(crate) fn extend(&mut self, now: Now, items: &[(Hold, u64)]) -> Reply {
        let mut replies = Vec::new();
        for ((id, token), lease) in items {
            let place = self.messages.get_mut(id).map(|message| &mut message.place);
            replies.push(match place {
                _ if *lease < 1 || *lease > LEASE_MOST => "INVALID".to_owned(),
                None => "GONE".to_owned(),
                Some(Place::Leased {
                    token: current,
                    deadline,
                    own,
                    since,
                    ..
                }) if current == token => {
                    if !*own && !self.is_frozen {
                        self.starts.insert(id.clone(), *since);
                    }
                    *own = true;
                    *deadline = (*deadline).max(now.ceil() + lease);
                    format!("OK {deadline}")
                }
                Some(_) => "LOST".to_owned(),
            });
        }
        self.settled(now, "", replies)
    }

    pub(crate) fn reap(&mut self, now: Now, limit: usize, after: &State) -> Result<Reply> {
        let mut late = self.listed("leased");
        let (seen, reap_after) = self
            .beats
            .as_ref()
            .map_or((0, 0), |(_, _, seen, reap_after)| (*seen, *reap_after));
        let awake =
            seen <= now.floor() && now.floor() - seen <= SILENCE_MS && reap_after <= now.floor();
        late.retain(|(deadline, _)| *deadline <= now.floor() && awake);
        late.truncate(limit);
        let mut died = 0;
        for (_, id) in &late {
            died += usize::from(self.crash(now, id, after)? == "DEAD");
        }
        self.count("crashed", late.len());
        self.count("died", died);
        Ok(Reply::List(vec![
            self.finish(now, !late.is_empty(), false),
            late.len().into(),
            died.into(),
        ]))
    }

    /// Ends these leases as a reap of only these deliveries would.
    pub(crate) fn end_leases(&mut self, now: Now, holds: &[Hold], after: &State) -> Result<Reply> {
        let mut replies = Vec::new();
        for (id, token) in holds {
            replies.push(match self.place(id) {
                None => "GONE".to_owned(),
                Some(Place::Leased { token: current, .. }) if current == token => {
                    self.crash(now, id, after)?
                }
                Some(_) => "LOST".to_owned(),
            });
        }
        self.count(
            "died",
            replies.iter().filter(|reply| *reply == "DEAD").count(),
        );
        Ok(self.settled(now, "crashed", replies))
    }

    /// Ends a lease without a settlement, and returns what becomes of the message. From the second
    /// crash on the script chooses the delay, and the model checks its limits.
    fn crash(&mut self, now: Now, id: &Text, after: &State) -> Result<String> {
        if let Some(due) = self.start_next(id, "reap") {
            return Ok(format!("SCHEDULED {due}"));
        }
        let most = self.limit("max_crashes").unwrap_or(5);
        let message = self
            .messages
            .get_mut(id)
            .context("a lease without a message")?;
        let Place::Leased { due, .. } = message.place else {
            anyhow::bail!("{id:?} has no lease");
        };
        message.crashes += 1;
        let before = message
            .original
            .replace(due)
            .filter(|_| message.crashes > 1);
        ensure!(
            before.is_none_or(|before| before == due),
            "the original due time of {id:?} has changed"
        );
        if message.crashes > most {
            let mut reason = format!("the lease ran out {} times", message.crashes).into_bytes();
            if !message.error.0.is_empty() {
                reason.extend(b"; before that: ");
                reason.extend(&message.error.0);
            }
            (message.error, message.original) = (Text(reason), None);
            message.place = Place::Dead { at: now.floor() };
            return Ok("DEAD".to_owned());
        }
        let due = match message.crashes {
            1 => {
                message.original = None;
                due.min(now.floor())
            }
            crashes => {
                let chosen = State::score(&after.scheduled, id)
                    .context("not scheduled after a crash")? as u64;
                let half = 500 << (crashes - 1).min(20);
                let range = now.ceil() + half..=now.ceil() + 3 * half;
                ensure!(
                    range.contains(&chosen),
                    "{id:?} is due at {chosen} after crash {crashes}"
                );
                chosen
            }
        };
        message.place = Place::Scheduled { due };
        Ok(format!("SCHEDULED {due}"))
    }
}

const LEAD_MS: u64 = 2_500;
const HOLD_MS: u64 = 5_000;
const PARK_MOST: u64 = 60_000;

impl World {
    pub(crate) fn beat(&mut self, now: Now, node: &Text, presence: Presence) -> Reply {
        if self.incarnation.is_none() {
            return Reply::List([vec![self.header(now)], vec![0i64.into(); 4]].concat());
        }
        let clock = now.floor();
        let never = || (Default::default(), 0, clock, 0);
        let (mut leader, mut until, seen, mut reap_after) = self.beats.take().unwrap_or_else(never);
        let parked_until = self.parked_until.unwrap_or(0);
        let mut announced = match parked_until > clock + PARK_MOST || self.is_frozen {
            true => 0,
            false => parked_until,
        };
        let all = self.nodes.len();
        self.nodes.retain(|_, seen| *seen + SILENCE_MS > clock);
        let silent = self.nodes.len() < all || announced + SILENCE_MS < clock;
        let reopened = seen > clock && !self.is_frozen && self.forget_rate_opening(now);
        if seen > clock || clock - seen > SILENCE_MS && silent {
            reap_after = clock + HOLD_MS;
        }
        self.nodes.retain(|_, seen| *seen <= clock.max(announced));
        if presence == Presence::Leave {
            self.nodes.remove(node);
            if leader == *node {
                leader = Text::default();
                until = if self.map.is_some() { clock } else { until };
            }
        } else {
            let park = match presence {
                Presence::Park(ms) => ms,
                _ => 0,
            };
            self.nodes.insert(node.clone(), clock + park);
            let most = announced.max(clock + LEAD_MS);
            if leader.0.is_empty() || until <= clock || until > most || leader == *node {
                (leader, until) = (node.clone(), clock + park.max(LEAD_MS));
            }
            if park > 0 {
                announced = announced.max(clock + park);
            }
        }
        if !self.is_frozen && announced != parked_until {
            self.parked_until = Some(announced);
        }
        let leads = i64::from(leader == *node);
        if leads == 1 && self.map.is_some() {
            self.leader_rank = Some("stay");
        }
        self.beats = Some((leader, until, clock, reap_after));

        self.forget(now, TRIM);
        let trimmed = self.trim_dead(clock);
        self.count("trimmed", trimmed);
        let header = self.finish(now, trimmed > 0 || reopened, false);
        let is_closed = self.closed(now).is_some();
        let [_, (_, low_lists), _] = counted(&self.schedules);
        let low_lists = match (self.has_layout_4, &self.map) {
            (true, _) => Some(low_lists.into()),
            (false, map) => map.as_ref().map(|_| (-1_i64).into()),
        };
        let parts = [
            header,
            leads.into(),
            self.nodes.len().into(),
            reap_after.into(),
            if is_closed { 0 } else { self.ready.len() }.into(),
        ];
        Reply::List(parts.into_iter().chain(low_lists).collect())
    }
}
