//! Random calls about schedules, for the random client.

use crate::model::client::driver::Driver;
use crate::model::client::operation::{Item, Operation};
use crate::model::message::Due;
use crate::model::schedules::fields::{Declaration, Page, Refill};
use crate::model::schedules::schedule::{Schedule, more};
use crate::model::world::World;
use crate::queue::HOUR;
use crate::reply::Text;

const NAMES: [&str; 5] = ["a/s", "b", "c", "d", "f.g"];
const SETS: [&str; 2] = ["one", "two:2"];

impl Driver {
    pub(crate) fn schedule_call(&mut self, world: &World) -> Operation {
        if world.schedules.is_empty() {
            return self.declaration(world);
        }
        if world.messages.len() > 50 && self.chance(25) {
            return self.plan_room_for_ticks(world);
        }
        if (world.paused || world.closed(self.now).is_some()) && self.chance(20) {
            return Operation::Resume;
        }
        match self.random.u32(0..100) {
            0..20 => self.declaration(world),
            20..38 => Operation::Amend {
                change: self.pick(&["pause", "pause", "resume", "resume", "resume", "remove"]),
                names: self.some_names(),
            },
            38..46 => self.trigger_call(world),
            46..58 => self.refill_call(world),
            58..62 => self.page_of_schedules(world),
            62 => self.call_of_timers(world),
            79..81 => self.plan_a_change_in_the_past(world),
            81..83 => Operation::Peek {
                state: self.pick(&["scheduled", "ready"]),
                cursor: Text::default(),
                limit: self.pick(&[2, 1_000]),
            },
            63..68 => self.plan_a_taken_tick(world),
            68..74 => self.plan_a_timer_that_moves(world),
            74..79 => self.plan_a_replaced_tick(world),
            _ => {
                let count = self.pick(&[1, 3, 50]);
                let claim = self.claim_of(count);
                if self.chance(50) {
                    return claim;
                }
                self.plan([claim]);
                Operation::Promote(1_000)
            }
        }
    }

    fn some_names(&mut self) -> Vec<String> {
        let count = self.pick(&[1, 1, 1, 3]);
        (0..count).map(|_| self.schedule_name()).collect()
    }

    fn schedule_name(&mut self) -> String {
        self.pick(&NAMES).into()
    }

    fn declaration(&mut self, world: &World) -> Operation {
        let set = self.pick(&SETS).to_owned();
        let mut schedules = Vec::new();
        for name in NAMES {
            let Some(stored) = world.schedules.get(name) else {
                if self.chance(30) {
                    let schedule = self.schedule(name, world);
                    schedules.push(schedule);
                }
                continue;
            };
            // Sometimes the schedule belongs to another set, which is refused.
            if stored.set != set && !self.chance(2) {
                continue;
            }
            if self.chance(50) {
                schedules.push(stored.clone());
            } else if self.chance(40) {
                let schedule = self.schedule(name, world);
                schedules.push(schedule);
            }
        }
        if !schedules.is_empty() && self.chance(2) {
            schedules.push(schedules[0].clone());
        }
        let stored = world.sets.get(&set).copied().flatten().unwrap_or(5);
        Operation::Schedule(Declaration {
            set,
            revision: self
                .chance(40)
                .then(|| (stored + self.random.u64(0..3)).saturating_sub(1)),
            prune: self.chance(15),
            now: self.chance(15),
            dry_run: self.chance(8),
            schedules,
        })
    }

    fn schedule(&mut self, name: &str, world: &World) -> Schedule {
        let now = self.now.floor();
        let mut schedule = Schedule::random(&mut self.random, now);
        schedule.name = name.to_owned();
        schedule.payload = self.payload();
        if let Some((every, anchor)) = &mut schedule.every {
            let day = 24 * HOUR;
            *every = self.pick(&[*every, *every, *every, 10, 20_000, HOUR, day]);
            *anchor = self.pick(&[*anchor, *anchor, 2 * now]);
            schedule.jitter = schedule.jitter.min(*every - 1);
        } else {
            let last = world.schedules.get(name).map_or(0, |old| old.last);
            let first = now.max(last).max(schedule.start.unwrap_or(0));
            let count = self.pick(&[1, 3, 20, 20, 20, 256, 300]);
            schedule.list = more(&mut self.random, first, count);
            if self.chance(5) {
                // A list of fires in the past is invalid, unless it is final.
                schedule.list = vec![1, now - 1];
            }
        }
        schedule.max_attempts = self.chance(15).then(|| self.random.u64(1..4));
        if schedule.expires.is_some() && self.chance(60) {
            schedule.on_expire = Some(self.pick(&["drop", "dead"]));
        }
        if self.chance(2) {
            match self.random.u32(0..3) {
                0 => (schedule.max, schedule.missed) = (Some(5), "skip"),
                1 => (schedule.start, schedule.end) = (Some(now), Some(now - 1)),
                _ => schedule.jitter = schedule.every.map_or(0, |(every, _)| every),
            }
        }
        schedule
    }

    fn trigger_call(&mut self, world: &World) -> Operation {
        let name = self.schedule_name();
        let now = self.now.floor();
        let last = world.schedules.get(&name).map_or(now, |one| one.last);
        let times = self.chance(50).then(|| {
            let time = |driver: &mut Self| match driver.random.u32(0..10) {
                0 => now + driver.random.u64(1..5),
                1..5 => last,
                _ => now - driver.random.u64(0..20_000),
            };
            (0..self.random.usize(1..4)).map(|_| time(self)).collect()
        });
        Operation::Trigger { name, times }
    }

    fn refill_call(&mut self, world: &World) -> Operation {
        let lists: Vec<_> = world.schedules.values().cloned().collect();
        let crons = lists
            .iter()
            .filter(|one| one.every.is_none() && one.is_low());
        let crons: Vec<Schedule> = crons.cloned().collect();
        let mut items = Vec::new();
        for _ in 0..self.pick(&[1, 1, 2]) {
            let from = if self.chance(92) { &crons } else { &lists };
            let Some(one) = self.random.choice(from).cloned() else {
                continue;
            };
            items.push(self.refill_of(&one));
        }
        if items.is_empty() || self.chance(3) {
            items.push(self.refill_of(&Schedule {
                name: "unknown".into(),
                rules: "2026a".into(),
                ..Schedule::default()
            }));
        }
        Operation::Refill(items)
    }

    fn refill_of(&mut self, one: &Schedule) -> Refill {
        let newer = format!("{}b", one.rules.chars().take(20).collect::<String>());
        let rules = match self.random.u32(0..20) {
            0..3 => newer,
            3 | 4 => "2025z".to_owned(),
            _ => one.rules.clone(),
        };
        let behind = if rules > one.rules {
            one.last
        } else {
            one.last_listed
        };
        // Late fires count as missed, or as paused.
        let late = self
            .now
            .floor()
            .saturating_sub(self.pick(&[0, 3_000, 20_000]));
        let from = match self.random.u32(0..20) {
            0 => behind.saturating_sub(5_000),
            1..8 => behind,
            _ => behind.max(late),
        };
        let count = self.pick(&[0, 1, 5, 5, 20, 20, 256]);
        Refill {
            name: one.name.clone(),
            version: one.version + u64::from(self.chance(4)),
            last_listed: one.last_listed + u64::from(self.chance(4)),
            rules,
            is_final: self.chance(15),
            fires: more(&mut self.random, from, count),
        }
    }

    fn page_of_schedules(&mut self, world: &World) -> Operation {
        if self.chance(40) {
            return Operation::Schedules(Page::One(self.schedule_name()));
        }
        let place = |one: &Schedule| (one.set.clone(), one.name.clone());
        let places: Vec<_> = world.schedules.values().map(place).collect();
        let after = self.random.choice(places).filter(|_| self.random.bool());
        Operation::Schedules(Page::After(
            after,
            self.pick(&[1, 2, 1_000]),
            self.chance(30),
        ))
    }

    /// A call of a verb for messages with ids of schedules' timers, which such verbs do not find.
    fn call_of_timers(&mut self, world: &World) -> Operation {
        let timers = world.schedules.values().map(Schedule::timer);
        let ids: Vec<Text> = timers.chain([self.id()]).collect();
        match self.random.u32(0..5) {
            0 => Operation::Cancel {
                dead: true,
                since: None,
                ids,
            },
            1 => Operation::RunNow(ids),
            2 => Operation::RequeueIds(ids),
            3 => Operation::Get(ids[0].clone()),
            _ => Operation::Reschedule(ids.into_iter().map(|id| (id, self.due(), None)).collect()),
        }
    }

    /// Plans a message that takes the id of the next tick, and claims around that fire.
    fn plan_a_taken_tick(&mut self, world: &World) -> Operation {
        let soon = self.now.floor()..self.now.floor() + 3_000;
        let active = world.schedules.values().filter(|one| one.state == "active");
        let near = active.filter(|one| soon.contains(&one.next));
        let ticks: Vec<String> = near.map(|one| one.tick(one.next)).collect();
        let Some(id) = self.random.choice(ticks) else {
            return self.push();
        };
        let mut item = Item {
            id: id.into(),
            due: Due::In(self.pick(&[1_000, 60_000])),
            ..self.item()
        };
        item.drop_options();
        for _ in 0..4 {
            let claim = self.claim_of(50);
            self.plan([claim]);
        }
        self.push_of(None, vec![item])
    }

    /// Plans ticks by hand that wait behind a due timer, which the next claim handles.
    fn plan_a_replaced_tick(&mut self, world: &World) -> Operation {
        let now = self.now.floor();
        let replacing = world
            .schedules
            .values()
            .filter(|one| one.overlap == "replace");
        let due = replacing.filter(|one| one.state == "active" && one.timer_due() < now);
        let names: Vec<String> = due.map(|one| one.name.clone()).collect();
        let Some(name) = self.random.choice(names) else {
            return self.declaration(world);
        };
        let claim = self.claim_of(1);
        self.plan([claim]);
        if self.chance(50) {
            self.plan([Operation::Promote(1_000)]);
        }
        let times = (0..2).map(|_| now - self.random.u64(0..20_000)).collect();
        Operation::Trigger {
            name,
            times: Some(times),
        }
    }

    fn claim_of(&mut self, count: usize) -> Operation {
        Operation::Claim {
            count,
            token: self.token(),
            lease: self.lease().clamp(1, 5_000),
        }
    }

    /// Plans a schedule that changes while its timer is ready, or a purge that meets the timer.
    fn plan_a_timer_that_moves(&mut self, world: &World) -> Operation {
        let claim = self.claim_of(50);
        let crons = world.schedules.values().filter(|one| one.every.is_none());
        let crons: Vec<Schedule> = crons.cloned().collect();
        let change = match self.random.choice(&crons).cloned() {
            Some(one) if self.chance(50) => {
                // Newer time zone rules remove fires that are due.
                let mut refill = self.refill_of(&one);
                refill.rules = format!("{}c", one.rules);
                refill.fires = more(&mut self.random, self.now.floor() + 3_000, 20);
                Operation::Refill(vec![refill])
            }
            _ if self.chance(40) => Operation::Purge {
                state: self.pick(&["ready", "scheduled"]),
                limit: self.pick(&[1, 1, 1_000]),
            },
            _ => Operation::Amend {
                change: self.pick(&["pause", "resume"]),
                names: NAMES.map(String::from).to_vec(),
            },
        };
        self.plan([claim, change]);
        Operation::Promote(1_000)
    }

    /// Plans a change of schedules after the clock went back to a time before their last fires.
    fn plan_a_change_in_the_past(&mut self, world: &World) -> Operation {
        let set = self.pick(&SETS).to_owned();
        let of_set = world.schedules.values().filter(|one| one.set == set);
        let names: Vec<String> = of_set.map(|one| one.name.clone()).collect();
        let change = Operation::Schedule(Declaration {
            set,
            revision: None,
            prune: false,
            now: false,
            dry_run: false,
            schedules: names
                .iter()
                .map(|name| self.schedule(name, world))
                .collect(),
        });
        let claim = self.claim_of(50);
        self.plan([claim, change]);
        self.set_back = Some((2, self.random.u64(500_000..5_000_000)));
        self.claim_of(50)
    }

    /// Plans the end of many messages, because each makes the model and the comparison of states
    /// slower.
    fn plan_room_for_ticks(&mut self, world: &World) -> Operation {
        let held = Self::current(world);
        let state = self.pick(&["dead", "dead", "scheduled"]);
        let limit = 1_000;
        match held.is_empty() || self.chance(50) {
            true => Operation::Purge { state, limit },
            false => Operation::Ack(held),
        }
    }
}
