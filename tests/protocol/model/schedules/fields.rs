//! The fields of meta about schedules, and what the verb `schedules` returns of them.

use std::collections::BTreeMap;

use crate::model::client::operation::Operation;
use crate::model::schedules::schedule::{Schedule, joined, listed};
use crate::model::world::{Now, World};
use crate::reply::{Reply, Text, words};

/// The counts of schedules in meta.
pub(crate) fn counted(schedules: &BTreeMap<String, Schedule>) -> [(&'static str, u64); 3] {
    let count =
        |of: &dyn Fn(&&Schedule) -> bool| schedules.values().filter(|one| of(one)).count() as u64;
    [
        ("schedules", count(&|_| true)),
        ("low_lists", count(&|schedule| schedule.is_low())),
        ("dry_lists", count(&|schedule| schedule.state == "dry")),
    ]
}

impl Schedule {
    fn record(&self) -> Text {
        let numbers: Vec<u64> = [self.next, self.last, self.since]
            .into_iter()
            .chain(self.counts)
            .chain([self.triggered, self.resumed, self.version])
            .collect();
        let state = format!("{} {}", self.state, joined(&numbers));
        let (live, spec, options) = (joined(&self.live), self.spec(), self.options());
        [&state, &live, &spec, &options, &self.pattern]
            .map(String::as_str)
            .join("\n")
            .into()
    }

    fn fires_field(&self) -> Text {
        let head = format!(
            "{} {} {}",
            self.rules,
            self.last_listed,
            u8::from(self.is_final)
        );
        format!("{head}\n{}", joined(&self.list)).into()
    }

    fn shown(&self) -> Vec<Reply> {
        let mut shown: Vec<Reply> = vec![(&self.name).into(), self.state.into()];
        let numbers = [self.next, self.last, self.since]
            .into_iter()
            .chain(self.counts)
            .chain([self.triggered]);
        shown.extend(numbers.map(Reply::from));
        shown.push(self.version.to_string().into());
        shown.push(self.spec().into());
        shown.push(self.options().into());
        shown.push((&self.pattern).into());
        let is_cron = self.every.is_none();
        shown.extend([
            if is_cron {
                (&self.rules).into()
            } else {
                "".into()
            },
            (if is_cron { self.last_listed } else { 0 }).into(),
            usize::from(is_cron && self.is_final).into(),
            self.list.len().into(),
        ]);
        shown
    }
}

impl World {
    /// The names of a set's schedules, sorted.
    fn names_of(&self, set: &str) -> Vec<&str> {
        let of_set = self.schedules.values().filter(|one| one.set == set);
        of_set.map(|one| &*one.name).collect()
    }

    pub(crate) fn schedule_fields(&self) -> Vec<(Text, Text)> {
        let mut fields: Vec<(Text, Text)> = Vec::new();
        for (has, (name, count)) in self.has_counted.iter().zip(counted(&self.schedules)) {
            fields.extend(has.then(|| (name.into(), count.into())));
        }
        for schedule in self.schedules.values() {
            let name = &schedule.name;
            fields.push((format!("schedule:{name}").into(), schedule.record()));
            if schedule.every.is_none() {
                fields.push((format!("fires:{name}").into(), schedule.fires_field()));
            }
        }
        for (set, revision) in &self.sets {
            let revision = revision.map_or(String::new(), |revision| revision.to_string());
            let text = format!("{revision}\n{}", self.names_of(set).join("\n"));
            fields.push((format!("schedules:{set}").into(), text.into()));
        }
        if !self.sets.is_empty() {
            let sets: Vec<&str> = self.sets.keys().map(String::as_str).collect();
            fields.push(("schedule_sets".into(), sets.join("\n").into()));
        }
        fields
    }

    pub(crate) fn show_schedules(&self, now: Now, page: &Page) -> Reply {
        let reply = |cursor: String, items: Vec<Vec<Reply>>| {
            let items = items.into_iter().map(Reply::List).collect();
            Reply::List(vec![self.header(now), cursor.into(), Reply::List(items)])
        };
        let (after, limit, low) = match page {
            Page::One(name) => {
                let found = self.schedules.get(name);
                let items = found.map(|schedule| {
                    let whole = [(&schedule.payload).into(), joined(&schedule.list).into()];
                    [schedule.shown(), whole.to_vec()].concat()
                });
                return reply(String::new(), items.into_iter().collect());
            }
            Page::After(after, limit, low) => (after, *limit, *low),
        };
        let (mut items, mut looked) = (Vec::new(), String::new());
        for set in self.sets.keys() {
            for name in self.names_of(set) {
                let place = (set.clone(), name.to_owned());
                if after.as_ref().is_some_and(|after| place <= *after) {
                    continue;
                }
                if items.len() == limit {
                    return reply(looked, items);
                }
                let schedule = &self.schedules[name];
                if !low || schedule.is_low() {
                    items.push(schedule.shown());
                }
                looked = format!("{set} {name}");
            }
        }
        reply(String::new(), items)
    }
}

/// The arguments of a call of `schedule`.
#[derive(Clone, Debug)]
pub(crate) struct Declaration {
    pub(crate) set: String,
    pub(crate) revision: Option<u64>,
    pub(crate) prune: bool,
    pub(crate) now: bool,
    pub(crate) dry_run: bool,
    pub(crate) schedules: Vec<Schedule>,
}

/// The fires that a client adds to the list of a cron.
#[derive(Clone, Debug)]
pub(crate) struct Refill {
    pub(crate) name: String,
    pub(crate) version: u64,
    pub(crate) last_listed: u64,
    pub(crate) rules: String,
    pub(crate) is_final: bool,
    pub(crate) fires: Vec<u64>,
}

/// The arguments of a call of `schedules`.
#[derive(Clone, Debug)]
pub(crate) enum Page {
    One(String),
    /// At most this number of schedules after this set and name; with the flag, only those whose
    /// lists need fires.
    After(Option<(String, String)>, usize, bool),
}

impl Operation {
    /// ARGV of a call about schedules, without the time.
    pub(crate) fn schedule_words(&self) -> Vec<Text> {
        match self {
            Self::Schedule(call) => {
                let words = [
                    (call.dry_run, "dry_run"),
                    (call.now, "now"),
                    (call.prune, "prune"),
                ];
                let words = words.iter().filter(|(given, _)| *given);
                let words: Vec<&str> = words.map(|(_, word)| *word).collect();
                let revision = call.revision.map_or_else(Text::default, Text::from);
                let head = words![&call.set, revision, words.join(" ")];
                let schedules = call.schedules.iter().flat_map(Schedule::words);
                head.into_iter().chain(schedules).collect()
            }
            Self::Amend { change, names } => {
                let names = names.iter().map(Text::from);
                [(*change).into()].into_iter().chain(names).collect()
            }
            Self::Trigger { name, times } => {
                let times = match times {
                    None => words!["now"],
                    Some(times) => times.iter().copied().map(Text::from).collect(),
                };
                [name.into()].into_iter().chain(times).collect()
            }
            Self::Refill(items) => {
                let words = |item: &Refill| {
                    let fires = listed(&item.rules, item.is_final, &item.fires);
                    words![&item.name, item.version, item.last_listed, fires]
                };
                items.iter().flat_map(words).collect()
            }
            Self::Schedules(Page::One(name)) => words![name],
            Self::Schedules(Page::After(after, limit, low)) => {
                let cursor = after.as_ref().map(|(set, name)| format!("{set} {name}"));
                let low = if *low { "low" } else { "" };
                words![cursor.unwrap_or_default(), *limit as u64, low]
            }
            _ => Vec::new(),
        }
    }
}
