//! The part of the model for the verbs of schedules, and for timers that a claim meets.

use anyhow::Result;

use crate::model::message::{Message, Place};
use crate::model::schedules::fields::{Declaration, Refill};
use crate::model::schedules::schedule::Schedule;
use crate::model::world::{Now, World};
use crate::reply::{Reply, Text};
use crate::state::State;

const MEBIBYTE: u64 = 1_048_576;

fn texts(replies: Vec<String>) -> Reply {
    Reply::List(replies.into_iter().map(Reply::from).collect())
}

impl World {
    /// Whether this tick waits or is leased.
    fn is_live(&self, id: &Text) -> bool {
        let tick = self.messages.get(id).filter(|message| message.is_tick);
        tick.is_some_and(|tick| !matches!(tick.place, Place::Dead { .. }))
    }

    /// Removes those of these ticks that wait.
    pub(crate) fn remove_waiting(&mut self, ids: &[Text]) {
        for id in ids {
            match self.place(id) {
                Some(Place::Scheduled { .. }) => self.meet("a scheduled tick is replaced"),
                Some(Place::Ready { .. }) => self.meet("a ready tick is replaced"),
                Some(Place::Leased { .. }) => {
                    self.meet("a leased tick is not replaced");
                    continue;
                }
                _ => continue,
            }
            self.messages.remove(id);
            self.unready(id);
        }
    }

    /// Gives the timer the due time of the schedule, if the timer is in scheduled.
    fn place_timer(&mut self, schedule: &Schedule) {
        let (id, due) = (schedule.timer(), schedule.timer_due());
        self.unready(&id);
        self.messages.insert(id, Message::of(schedule, false, due));
    }

    /// Moves a timer from the ready list, unfired, to the time of its next fire.
    pub(crate) fn return_timer(&mut self, now: Now, timer: &Text) {
        let name = String::from_utf8_lossy(&timer.0[1..]).into_owned();
        let schedule = self.schedules.get(&name);
        let next = schedule.filter(|it| it.state == "active").map(|it| it.next);
        if let Some(message) = self.messages.get_mut(timer) {
            let due = next.unwrap_or(now.floor());
            message.place = Place::Scheduled { due };
        }
    }

    /// Fires a timer that a claim meets. Returns the tick, if it makes one, and moves the timer on.
    /// Adds the ticks that the new one replaces to `replaced`.
    pub(crate) fn fire_timer(
        &mut self,
        now: Now,
        timer: &Text,
        replaced: &mut Vec<Text>,
    ) -> Option<(Text, Message)> {
        let name = String::from_utf8_lossy(&timer.0[1..]).into_owned();
        let mut schedule = self.schedules.remove(&name)?;
        let id = |nominal: u64| Text::from(schedule.tick(nominal));
        let live = |nominal: u64| self.is_live(&id(nominal));
        let exists = |nominal: u64| self.messages.contains_key(&id(nominal));
        let mut fires = schedule.clone();
        let fired = fires.fire(now.floor(), live, exists);
        replaced.extend(fired.replaced.iter().map(|nominal| id(*nominal)));
        let tick = fired.tick.map(|nominal| {
            let message = Message::of(&fires, true, fires.due(nominal));
            (id(nominal), message)
        });
        schedule = fires;
        for event in fired.events {
            self.meet(event);
        }
        if let Some(message) = self.messages.get_mut(timer) {
            let due = schedule.timer_due();
            message.place = Place::Scheduled { due };
        }
        self.schedules.insert(name, schedule);
        tick
    }

    /// Stores a tick that is due now.
    fn make_tick(&mut self, now: Now, schedule: &mut Schedule, nominal: u64) {
        let message = Message::of(schedule, true, now.floor());
        self.messages.insert(schedule.tick(nominal).into(), message);
        if schedule.obeys_overlap() {
            schedule.live.push(nominal);
        }
        schedule.triggered += 1;
    }

    /// The schedules of a call as they would be stored, or the reasons why they are refused.
    fn judge_schedules(&self, now: Now, call: &Declaration) -> Result<Vec<Schedule>, Vec<String>> {
        let longest = self.limit("max_payload_bytes").unwrap_or(MEBIBYTE);
        let (mut judged, mut replies) = (Vec::<Schedule>::new(), Vec::new());
        for given in &call.schedules {
            let old = self.schedules.get(&given.name);
            let mut schedule = given.declared_in(&call.set);
            let is_twice = judged.iter().any(|other| other.name == given.name);
            let is_anothers = old.is_some_and(|old| old.set != call.set);
            let is_long = given.payload.0.len() as u64 > longest;
            let is_split = self.map.is_some() || !self.is_home;
            schedule.begin(now.floor().max(old.map_or(0, |old| old.last)));
            let is_same = old.is_some_and(|old| old.says_the_same(&schedule));
            let is_dry = schedule.state == "dry" && !is_same;
            let is_bad = given.is_invalid() || is_twice || is_anothers || is_long || is_split;
            replies.push(
                if is_bad || is_dry {
                    "INVALID"
                } else {
                    "KEPT 0"
                }
                .to_owned(),
            );
            if !is_bad {
                judged.push(schedule);
            }
        }
        match replies.iter().any(|reply| reply == "INVALID") {
            true => Err(replies),
            false => Ok(judged),
        }
    }

    pub(crate) fn declare(&mut self, now: Now, call: &Declaration, after: &State) -> Result<Reply> {
        let answer = |header: Reply, word: &str, replies: Vec<String>, removed: Vec<String>| {
            let more = 0i64.into();
            Reply::List(vec![
                header,
                word.into(),
                texts(replies),
                texts(removed),
                more,
            ])
        };
        let stored = self.sets.get(&call.set).copied().flatten();
        if let (Some(revision), Some(stored)) = (call.revision, stored)
            && revision < stored
        {
            let (header, word) = (self.finish(now, false, false), format!("STALE {stored}"));
            return Ok(answer(header, &word, Vec::new(), Vec::new()));
        }
        let judged = match self.judge_schedules(now, call) {
            Ok(judged) => judged,
            Err(replies) => {
                let header = self.finish(now, false, false);
                return Ok(answer(header, "INVALID", replies, Vec::new()));
            }
        };
        let is_given = |name: &str| judged.iter().any(|given| given.name == name);
        let of_set = self.schedules.values().filter(|one| one.set == call.set);
        let others = of_set.filter(|one| call.prune && !is_given(&one.name));
        let removed: Vec<String> = others.map(|one| one.name.clone()).collect();
        let replies: Vec<String> = judged
            .iter()
            .map(|given| match self.schedules.get(&given.name) {
                Some(old) if old.says_the_same(given) => format!("KEPT {}", old.next),
                Some(_) => format!("CHANGED {}", given.next),
                None => format!("CREATED {}", given.next),
            })
            .collect();
        if call.dry_run {
            let header = self.finish(now, false, false);
            return Ok(answer(header, "OK", replies, removed));
        }
        self.create(after)?;
        let given = !judged.is_empty();
        (self.has_layout_3, self.has_layout_4) =
            (self.has_layout_3 | given, self.has_layout_4 | given);
        for schedule in judged {
            self.grow(&schedule.payload);
            self.store_schedule(now, call, schedule);
        }
        for name in &removed {
            self.remove_schedule(name);
        }
        let revision = call.revision.or(stored);
        self.sets.insert(call.set.clone(), revision);
        let header = self.finish(now, true, false);
        Ok(answer(header, "OK", replies, removed))
    }

    fn store_schedule(&mut self, now: Now, call: &Declaration, mut schedule: Schedule) {
        let old = self.schedules.get(&schedule.name);
        if old.is_some_and(|old| old.says_the_same(&schedule)) {
            return;
        }
        schedule.version = old.map_or(0, |old| old.version + 1).max(now.0);
        if let Some(old) = old {
            (schedule.live, schedule.triggered) = (old.live.clone(), old.triggered);
            let is_past = old.last > now.floor();
            if old.state == "paused" && schedule.state != "ended" {
                schedule.state = "paused";
                self.meet("a paused schedule is changed");
            }
            if is_past {
                self.meet("a change before the last fire");
            }
        } else if call.now {
            let id = Text::from(schedule.tick(now.floor()));
            if !self.messages.contains_key(&id) {
                self.make_tick(now, &mut schedule, now.floor());
                self.meet("schedule makes a tick at once");
            }
        }
        if schedule.expires.is_some() {
            (self.is_expiring, self.is_selective) = (true, true);
        }
        self.place_timer(&schedule);
        self.schedules.insert(schedule.name.clone(), schedule);
    }

    fn remove_schedule(&mut self, name: &str) -> bool {
        let Some(schedule) = self.schedules.remove(name) else {
            return false;
        };
        let timer = schedule.timer();
        self.unready(&timer);
        self.messages.remove(&timer);
        true
    }

    pub(crate) fn amend(&mut self, now: Now, change: &str, names: &[String]) -> Reply {
        let (mut replies, mut changed) = (Vec::new(), false);
        for name in names {
            if change == "remove" {
                let removed = self.remove_schedule(name);
                changed |= removed;
                replies.push(if removed { "OK 0" } else { "GONE" }.to_owned());
                continue;
            }
            let Some(mut schedule) = self.schedules.remove(name) else {
                replies.push("GONE".to_owned());
                continue;
            };
            let before = schedule.state;
            match change {
                "pause" => schedule.pause(),
                _ => {
                    let is_early = before == "paused" && schedule.last < schedule.since;
                    match schedule.resume(now.floor()) {
                        0 if is_early => self.meet("resumed before the first fire"),
                        0 => {}
                        _ => self.meet("fires count as paused"),
                    }
                }
            }
            if schedule.state != before {
                changed = true;
                self.meet(format!("{change} of {before} gives {}", schedule.state));
                self.place_timer(&schedule);
            }
            let is_active = schedule.state == "active";
            let next = if is_active { schedule.next } else { 0 };
            replies.push(format!("OK {next}"));
            self.schedules.insert(name.clone(), schedule);
        }
        Reply::List(vec![self.finish(now, changed, false), texts(replies)])
    }

    pub(crate) fn trigger(&mut self, now: Now, name: &str, times: Option<&[u64]>) -> Reply {
        let Some(mut schedule) = self.schedules.remove(name) else {
            return Reply::List(vec![self.finish(now, false, false), "GONE".into()]);
        };
        let before = schedule.clone();
        let is_live = |nominal: &u64| self.is_live(&schedule.tick(*nominal).into());
        if schedule.obeys_overlap() {
            schedule.live = schedule.live.iter().copied().filter(is_live).collect();
        }
        let live = schedule.live.clone();
        let (now_ms, mut replies, mut made) = (now.floor(), Vec::new(), false);
        for nominal in times.unwrap_or(&[now_ms]) {
            let id = schedule.tick(*nominal);
            let overlaps = times.is_none() && !live.is_empty();
            replies.push(if *nominal > now_ms {
                "INVALID".to_owned()
            } else if self.messages.contains_key(&Text::from(&id)) {
                format!("EXISTS {id}")
            } else if overlaps && schedule.overlap == "skip" {
                "OVERLAPS".to_owned()
            } else {
                if overlaps && schedule.overlap == "replace" {
                    let ids = live.iter().map(|nominal| schedule.tick(*nominal).into());
                    self.remove_waiting(&ids.collect::<Vec<_>>());
                }
                self.make_tick(now, &mut schedule, *nominal);
                made = true;
                self.made_again(now, &Text::from(&id));
                format!("CREATED {id}")
            });
        }
        // If no tick was made, the schedule stays as it is stored.
        let stored = if made { schedule } else { before };
        self.schedules.insert(name.to_owned(), stored);
        Reply::List(vec![self.finish(now, made, false), texts(replies)])
    }

    pub(crate) fn refill(&mut self, now: Now, items: &[Refill]) -> Reply {
        let replies: Vec<String> = items.iter().map(|item| self.refill_one(item)).collect();
        let changed = replies.iter().any(|reply| reply.starts_with("OK"));
        Reply::List(vec![self.finish(now, changed, false), texts(replies)])
    }

    fn refill_one(&mut self, item: &Refill) -> String {
        let Some(schedule) = self.schedules.get_mut(&item.name) else {
            return "GONE".to_owned();
        };
        let first = item.fires.first().copied().unwrap_or(u64::MAX);
        let is_newer = item.rules > schedule.rules;
        let is_early = first <= schedule.last || !is_newer && first <= schedule.last_listed;
        let kept = if is_newer { 0 } else { schedule.list.len() };
        if schedule.every.is_some() {
            return "INVALID".to_owned();
        } else if (item.version, item.last_listed) != (schedule.version, schedule.last_listed) {
            return "CHANGED".to_owned();
        } else if item.rules < schedule.rules {
            return "KEPT".to_owned();
        } else if is_early || kept + item.fires.len() > 512 {
            return "INVALID".to_owned();
        }
        let before = schedule.state;
        let listed = schedule.refill(&item.rules, item.is_final, &item.fires);
        let (timer, due) = (schedule.timer(), schedule.timer_due());
        let after = schedule.state;
        if let Some(message) = self.messages.get_mut(&timer)
            && let Place::Scheduled { .. } = message.place
        {
            message.place = Place::Scheduled { due };
        }
        self.meet(format!("refill of {before} gives {after}"));
        if is_newer {
            self.meet("newer rules replace a list");
        }
        format!("OK {listed}")
    }
}
