//! The part of the model for rate, `max_leased`, expiry, snooze and throttle.

use crate::model::client::operation::Hold;
use crate::model::message::{Due, Message, Place};
use crate::model::schedules::schedule::is_timer;
use crate::model::world::{Now, World};
use crate::reply::{Reply, Text};

/// How many candidates a claim reads at least if some in its share have expired.
const ROOM: usize = 250;
const ERROR_BYTES: usize = 1_024;

/// What the limits allow to one claim.
pub(crate) struct Grant {
    pub(crate) share: usize,
    tokens: f64,
    step: Option<f64>,
    burst: f64,
    places: i64,
    costs: Option<Vec<u64>>,
    next_cost: u64,
    positions: Vec<usize>,
    looked: usize,
    /// The expired candidates: position, id, and for how long each has been expired.
    expired: Vec<(usize, Text, u64)>,
}

/// The error text of a message that expired, together with its former error.
fn with_former(why: &str, separator: &str, former: &Text) -> Text {
    let mut text = why.as_bytes().to_vec();
    if !former.0.is_empty() {
        text.extend(separator.as_bytes());
        text.extend(&former.0);
    }
    text.truncate(ERROR_BYTES);
    Text(text)
}

impl Message {
    /// The time after which no attempt starts. `due` is the original due time.
    pub(crate) fn expiry(&self, due: u64) -> Option<u64> {
        match (self.word("expires_by"), &self.expires) {
            (Some(ms), _) => Some(ms),
            (None, Some(Due::In(ms))) => Some(due + ms),
            (None, Some(Due::At(ms))) => Some(*ms),
            _ => None,
        }
    }

    fn fix_expiry(&mut self, due: u64) {
        let has = self.word("expires_by").is_some();
        if let (Some(Due::In(_)), Some(ms), false) = (&self.expires, self.expiry(due), has) {
            self.added.push(("expires_by", ms));
        }
    }

    /// Gives a delivery a later due time, or ends the message if it would expire before that.
    pub(crate) fn later(&mut self, now: Now, due: u64, claimed_due: u64) -> String {
        if self.expiry(claimed_due).is_some_and(|expiry| due > expiry) {
            if self.on_expire == Some("drop") {
                return "DROPPED".to_owned();
            }
            self.error = with_former("expires before it is due again", ": ", &self.error);
            self.place = Place::Dead { at: now.floor() };
            return "DEAD expired".to_owned();
        }
        self.fix_expiry(claimed_due);
        self.place = Place::Scheduled { due };
        format!("SCHEDULED {due}")
    }
}

impl World {
    /// The value of `closed_until`, if it is in the future.
    pub(crate) fn opens(&self, now: Now) -> Option<u64> {
        self.closed_until
            .filter(|until| *until > now.floor() && !self.is_frozen)
    }

    pub(crate) fn is_at_max_leased(&self) -> bool {
        let leased = self.listed("leased").len() as u64;
        self.limit("max_leased").is_some_and(|most| leased >= most)
    }

    /// Opens a queue that was full, after a call that ended a lease.
    pub(crate) fn reopen(&mut self) {
        if self.was_full && !self.is_at_max_leased() {
            (self.was_full, self.is_full) = (false, false);
        }
    }

    /// Opens a queue that only its rate closed. Returns whether it was so.
    pub(crate) fn forget_rate_opening(&mut self, now: Now) -> bool {
        let is_the_rates = self.opens(now).is_some() && self.opens(now) == self.rate_until;
        if is_the_rates {
            let rest = self.break_until.filter(|until| *until > now.floor());
            (self.closed_until, self.is_full) = (Some(rest.unwrap_or(0)), self.was_full);
        }
        is_the_rates
    }

    fn rate(&self) -> Option<[u64; 3]> {
        let text = self.limits.get("rate")?.text();
        let parts: Vec<u64> = text
            .split('/')
            .filter_map(|part| part.parse().ok())
            .collect();
        parts.try_into().ok()
    }

    /// The most starts that one message may cost.
    pub(crate) fn most_cost(&self) -> u64 {
        self.rate().map_or(1_000_000, |[.., burst]| burst)
    }

    /// Reads the limits for a claim, and refills the rate by the time that has passed.
    pub(crate) fn read_limits(&mut self, now: Now, share: usize) -> Grant {
        let mut grant = Grant {
            share,
            tokens: f64::INFINITY,
            step: None,
            burst: f64::INFINITY,
            places: i64::MAX,
            costs: None,
            next_cost: 1,
            positions: Vec::new(),
            looked: 0,
            expired: Vec::new(),
        };
        if let Some([starts, window_ms, burst]) = self.rate() {
            let step = (window_ms * 1_000) as f64 / (starts - burst + 1) as f64;
            let (burst, now_us) = (burst as f64, now.0 as f64);
            let ahead = (self.tat.unwrap_or(0) as f64 - now_us)
                .min(burst * step)
                .max(0.0);
            self.tat = Some((now_us + ahead).ceil() as u64);
            grant.tokens = ((burst * step - ahead) / step).floor();
            (grant.step, grant.burst) = (Some(step), burst);
        }
        if let Some(most) = self.limit("max_leased") {
            grant.places = most as i64 - self.listed("leased").len() as i64;
        }
        let most = grant.tokens.min(grant.places as f64).max(0.0);
        grant.share = (share as f64).min(most) as usize;
        grant
    }

    /// The candidates that may be granted: they have not expired, and the starts that are left
    /// cover their costs.
    pub(crate) fn choose(&self, now: Now, grant: &mut Grant, available: &[Text]) -> Vec<Text> {
        let plain = self
            .messages
            .values()
            .all(|message| message.attributes().is_none());
        if plain {
            return available.iter().take(grant.share).cloned().collect();
        }
        let first = &available[..grant.share.min(available.len())];
        let ids = self.choose_among(now, grant, first);
        let room = grant.share.max(ROOM).min(available.len());
        if grant.expired.is_empty() || !self.is_expiring || room <= first.len() {
            return ids;
        }
        self.choose_among(now, grant, &available[..room])
    }

    fn choose_among(&self, now: Now, grant: &mut Grant, candidates: &[Text]) -> Vec<Text> {
        let (mut ids, mut costs, mut left) = (Vec::new(), Vec::new(), grant.tokens);
        (grant.expired, grant.positions, grant.next_cost) = (Vec::new(), Vec::new(), 1);
        grant.looked = candidates.len();
        for (position, id) in candidates.iter().enumerate() {
            let Some(message) = self.messages.get(id) else {
                continue;
            };
            let due = message.original.unwrap_or(message.place.time());
            let late = message
                .expiry(due)
                .map_or(0, |expiry| now.floor().saturating_sub(expiry));
            let cost = message.cost.filter(|_| grant.step.is_some()).unwrap_or(1);
            let cost = (cost as f64).min(grant.burst);
            if late > 0 {
                grant.expired.push((position, id.clone(), late));
            } else if ids.len() == grant.share || cost > left {
                (grant.looked, grant.next_cost) = (position, cost as u64);
                break;
            } else {
                left -= cost;
                costs.push(cost as u64);
                ids.push(id.clone());
                grant.positions.push(position);
            }
        }
        grant.costs = Some(costs);
        ids
    }

    /// Ends the expired candidates. Returns how many candidates leave ready or scheduled.
    pub(crate) fn expire(&mut self, now: Now, grant: &Grant, taken: usize) -> usize {
        if grant.costs.is_none() {
            return taken;
        }
        let next = grant.positions.get(taken).copied();
        let taken = next.unwrap_or(grant.looked);
        let (mut died, mut dropped, mut names) = (0, 0, 0);
        for (_, id, late) in grant.expired.iter().filter(|(at, ..)| *at < taken) {
            let Some(message) = self.messages.get_mut(id) else {
                continue;
            };
            if message.on_expire == Some("drop") {
                if message.window.is_some() {
                    names += self.note_outcome(now, id, true);
                }
                self.messages.remove(id);
                dropped += 1;
                continue;
            }
            let why = format!("expired {late} ms ago");
            message.error = with_former(&why, "; before that: ", &message.error);
            (message.original, message.place) = (None, Place::Dead { at: now.floor() });
            died += 1;
        }
        self.count("died", died);
        self.count("expired", died + dropped);
        self.forget(now, 2 * names);
        taken
    }

    /// Charges the granted messages to the rate, and closes the queue if the next message may not
    /// start now. `granted` has their positions among the chosen candidates.
    pub(crate) fn charge(&mut self, now: Now, grant: &Grant, granted: &[usize]) {
        let cost = match &grant.costs {
            Some(costs) => granted.iter().map(|at| costs[*at]).sum(),
            None => granted.len() as u64,
        };
        let mut opens = None;
        if let (Some(step), Some(tat)) = (grant.step, self.tat) {
            let tat = tat + (cost as f64 * step).ceil() as u64;
            self.tat = Some(tat);
            if grant.tokens - (cost as f64) < grant.next_cost as f64 {
                let some = (5_000.0 / step).min(grant.burst / 2.0).ceil();
                let enough = some.max(grant.next_cost as f64).min(grant.burst);
                let at = ((tat as f64 - (grant.burst - enough) * step) / 1_000.0).ceil();
                opens = Some((at as u64).max(now.floor() + 1));
                self.rate_until = opens;
            }
        }
        let is_full = grant.places <= granted.len() as i64;
        if is_full || opens.is_some() {
            self.closed_until = Some(opens.unwrap_or(0));
            (self.is_full, self.was_full) = (is_full, is_full);
        }
    }

    pub(crate) fn snooze(&mut self, now: Now, items: &[(Hold, Due)]) -> Reply {
        let (mut replies, mut names) = (Vec::new(), 0);
        for (hold, due) in items {
            let reply = match due.at(now) {
                None => "INVALID".to_owned(),
                Some(due) => self.held(hold, ("snooze", "SCHEDULED D"), |message, claimed_due| {
                    let snoozes = message.word("snoozes").unwrap_or(0);
                    message.drop_word("snoozes");
                    message.fix_expiry(claimed_due);
                    message.added.push(("snoozes", snoozes + 1));
                    message.later(now, due, claimed_due)
                }),
            };
            replies.push(self.after_later(now, hold, reply, &mut names));
        }
        self.forget(now, 2 * names);
        self.settled_later(now, "snoozed", replies)
    }

    /// Removes a dropped message. Adds to `names` how many names `recent` gets.
    pub(crate) fn after_later(
        &mut self,
        now: Now,
        (id, _): &Hold,
        reply: String,
        names: &mut usize,
    ) -> String {
        if reply == "DROPPED" {
            if let Some(Place::Leased { window: true, .. }) = self.place(id) {
                *names += self.note_outcome(now, id, true);
            }
            self.messages.remove(id);
        }
        reply
    }

    /// Ends the deliveries of a batch of retries or snoozes.
    pub(crate) fn settled_later(
        &mut self,
        now: Now,
        counter: &'static str,
        replies: Vec<String>,
    ) -> Reply {
        let count = |of: &dyn Fn(&str) -> bool| replies.iter().filter(|reply| of(reply)).count();
        let scheduled = count(&|reply| reply.starts_with("SCHEDULED"));
        let died = count(&|reply| reply.starts_with("DEAD"));
        let expired = count(&|reply| ["DEAD expired", "DROPPED"].contains(&reply));
        self.count(counter, scheduled);
        self.count("died", died);
        self.count("expired", expired);
        let replies = replies.iter().map(|reply| reply.replace(" expired", ""));
        self.settled(now, "", replies.collect())
    }

    pub(crate) fn throttle(&mut self, now: Now, items: &[(Hold, u64)]) -> Reply {
        let (mut replies, mut latest) = (Vec::new(), 0);
        for (hold, wait_ms) in items {
            let give_back = |message: &mut Message, due: u64| {
                let due = due.min(now.floor());
                message.place = Place::Scheduled { due };
                "OK".to_owned()
            };
            replies.push(match wait_ms {
                0 => "INVALID".to_owned(),
                _ => self.held(hold, ("throttle", "OK"), give_back),
            });
            if replies.last().is_some_and(|reply| reply == "OK") {
                latest = latest.max(*wait_ms);
            }
        }
        if latest > 0 {
            for id in std::mem::take(&mut self.ready) {
                if is_timer(&id) {
                    self.return_timer(now, &id);
                    continue;
                }
                let message = self.messages.get_mut(&id).expect("a ready message");
                message.place = Place::Scheduled {
                    due: message.place.time(),
                };
            }
        }
        let (opens, _) = self.close_for(now, latest);
        for reply in &mut replies {
            if reply == "OK" {
                *reply = format!("OK {opens}");
            }
        }
        self.settled(now, "throttled", replies)
    }

    pub(crate) fn close(&mut self, now: Now, wait_ms: u64) -> Reply {
        let exists = self.incarnation.is_some();
        let (opens, changed) = self.close_for(now, if exists { wait_ms } else { 0 });
        let header = self.finish(now, changed, false);
        Reply::List(vec![header, format!("OK {opens}").into()])
    }

    fn close_for(&mut self, now: Now, wait_ms: u64) -> (u64, bool) {
        let most = self.limit("max_throttle_ms").unwrap_or(900_000);
        let asked = if wait_ms > 0 {
            now.ceil() + wait_ms.min(most)
        } else {
            0
        };
        self.close_until(now, asked)
    }

    /// Closes the queue until this time, unless it is closed for longer. Returns the end of the
    /// closing, and whether it is later than before.
    pub(crate) fn close_until(&mut self, now: Now, asked: u64) -> (u64, bool) {
        let before = self.opens(now).unwrap_or(0);
        if asked > now.floor() {
            self.break_until = self.break_until.max(Some(asked));
        }
        if asked > before {
            (self.closed_until, self.is_full) = (Some(asked), self.was_full);
        }
        (asked.max(before), asked > before)
    }
}
