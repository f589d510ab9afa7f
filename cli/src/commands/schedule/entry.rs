//! Reads one schedule of a file.

use std::time::Duration;

use dueq::{Missed, OnExpire, Overlap, Schedule};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::commands::schedule::file::{Entry, Reader};
use crate::commands::schedule::values;

const KEYS: [&str; 18] = [
    "name",
    "every",
    "cron",
    "zone",
    "anchor",
    "payload",
    "payload_json",
    "missed",
    "within",
    "max",
    "overlap",
    "jitter",
    "start",
    "end",
    "limit",
    "max_attempts",
    "expires",
    "on_expire",
];
/// Of missed = "all", unless `max` says another number.
const USUAL_MAX: u64 = 1_000;

type Change = Box<dyn Fn(Schedule) -> Schedule>;

impl Reader<'_> {
    pub(super) fn schedule(&mut self, head: usize, table: &DeTable<'_>) -> Option<Entry> {
        let before = self.faults.len();
        let named = self.get(table, "name", values::text);
        self.name = named.map(|(_, name)| name.to_owned());
        for key in table.keys().filter(|key| !KEYS.contains(&&**key.get_ref())) {
            self.unknown(key, &KEYS);
        }
        match named {
            Some((line, name)) => {
                let minutely = Schedule::every(Duration::from_secs(60)).name(name);
                if let Err(error) = minutely.check(self.now) {
                    self.fault(line, error.to_string());
                }
            }
            None if !table.contains_key("name") => self.fault(head, "the schedule has no name"),
            None => {}
        }
        let (payload_bytes, options) = self.options(table);
        let schedule = self.rule(head, table);
        let schedule = schedule.and_then(|(line, rule)| self.checked(line, rule, options));
        if self.faults.len() > before {
            return None;
        }
        let (line, name) = named?;
        Some(Entry {
            schedule: schedule?.name(name),
            name: name.to_owned(),
            line,
            payload_bytes,
        })
    }

    /// The rule with its zone, and its line.
    fn rule(&mut self, head: usize, table: &DeTable<'_>) -> Option<(usize, Schedule)> {
        let every = self.get(table, "every", values::duration);
        let cron = self.get(table, "cron", values::text);
        let zone = self.get(table, "zone", values::text);
        match (table.contains_key("every"), table.contains_key("cron")) {
            (true, true) => self.fault(head, "it has every and cron: leave out one of them"),
            (false, false) => self.fault(
                head,
                "it has no rule: write every = \"15m\", or cron = \"0 2 * * *\" and zone = \"Europe/Paris\"",
            ),
            _ => {}
        }
        let (line, rule) = match (every, cron) {
            (Some((line, interval)), None) => (line, Schedule::every(interval)),
            (None, Some((line, pattern))) => match Schedule::cron(pattern) {
                Ok(cron) => (line, cron),
                Err(error) => {
                    self.fault(line, error.to_string());
                    return None;
                }
            },
            _ => return None,
        };
        let Some((zone_line, zone)) = zone else {
            return (!table.contains_key("zone")).then_some((line, rule));
        };
        // A pattern that fires each day is refused only for its zone.
        if let (None, Ok(daily)) = (every, Schedule::cron("0 0 * * *")) {
            let daily = daily.name("zone").zone(zone);
            if let Err(error) = daily.check(self.now) {
                self.fault(zone_line, error.to_string());
                return None;
            }
            return Some((line, rule.zone(zone)));
        }
        let zoned = rule.name("zone").zone(zone);
        if let Err(error) = zoned.check(self.now) {
            self.fault(zone_line, error.to_string());
            return None;
        }
        Some((line, zoned))
    }

    /// The options with their lines, and the length of the payload.
    fn options(&mut self, table: &DeTable<'_>) -> (usize, Vec<(usize, Change)>) {
        let mut options: Vec<(usize, Change)> = Vec::new();
        let mut add = |line, change: Change| options.push((line, change));
        let text = self.get(table, "payload", |key, value| {
            values::text(key, value).map(|text| text.as_bytes().to_vec())
        });
        let json = self.get(table, "payload_json", |_, value| {
            values::json(value).map(|value| value.to_string().into_bytes())
        });
        if let (Some(_), Some((line, _))) = (&text, &json) {
            self.fault(
                *line,
                "it has payload and payload_json: leave out one of them",
            );
        }
        let mut payload_bytes = 0;
        if let Some((line, payload)) = text.or(json) {
            payload_bytes = payload.len();
            add(line, Box::new(move |it| it.payload(payload.clone())));
        }
        for (key, set) in [
            ("anchor", Schedule::anchor as fn(_, _) -> _),
            ("start", Schedule::start),
            ("end", Schedule::end),
        ] {
            if let Some((line, time)) = self.get(table, key, values::moment) {
                add(line, Box::new(move |it| set(it, time)));
            }
        }
        let is_all = matches!(table.get("missed").map(Spanned::get_ref), Some(DeValue::String(word)) if word == "all");
        let max = self.get(table, "max", values::count);
        if let Some((line, _)) = max.filter(|_| !is_all) {
            self.fault(line, "max has no effect without missed = \"all\"");
        }
        let max = max.map_or(USUAL_MAX, |(_, max)| max);
        let missed = [
            ("one", Missed::One),
            ("skip", Missed::Skip),
            ("all", Missed::All { max }),
        ];
        if let Some((line, missed)) = self.get(table, "missed", |key, value| {
            values::word(key, value, &missed)
        }) {
            add(line, Box::new(move |it| it.missed(missed)));
        }
        let overlap = [
            ("allow", Overlap::Allow),
            ("skip", Overlap::Skip),
            ("replace", Overlap::Replace),
        ];
        if let Some((line, overlap)) = self.get(table, "overlap", |key, value| {
            values::word(key, value, &overlap)
        }) {
            add(line, Box::new(move |it| it.overlap(overlap)));
        }
        for (key, set) in [
            ("within", Schedule::within as fn(_, _) -> _),
            ("jitter", Schedule::jitter),
            ("expires", Schedule::expires_after),
        ] {
            if let Some((line, time)) = self.get(table, key, values::duration) {
                add(line, Box::new(move |it| set(it, time)));
            }
        }
        if let Some((line, limit)) = self.get(table, "limit", values::count) {
            add(line, Box::new(move |it| it.limit(limit)));
        }
        if let Some((line, limit)) = self.get(table, "max_attempts", values::count) {
            let limit = u32::try_from(limit).unwrap_or(u32::MAX);
            add(line, Box::new(move |it| it.max_attempts(limit)));
        }
        let fates = [("dead", OnExpire::Dead), ("drop", OnExpire::Drop)];
        if let Some((line, fate)) = self.get(table, "on_expire", |key, value| {
            values::word(key, value, &fates)
        }) {
            match table.contains_key("expires") {
                true => add(line, Box::new(move |it| it.on_expire(fate))),
                false => self.fault(line, "on_expire has no effect without expires"),
            }
        }
        (payload_bytes, options)
    }

    /// The schedule with its options. A refused option is a fault of its own line.
    fn checked(
        &mut self,
        line: usize,
        rule: Schedule,
        options: Vec<(usize, Change)>,
    ) -> Option<Schedule> {
        let rule = rule.name(self.name.clone().unwrap_or_default());
        let whole = options
            .iter()
            .fold(rule.clone(), |it, (_, change)| change(it));
        // The name was checked before.
        let whole = whole.name("schedule");
        if whole.check(self.now).is_ok() {
            return Some(whole);
        }
        let mut good = rule.name("schedule");
        if let Err(error) = good.check(self.now) {
            self.fault(line, error.to_string());
            return None;
        }
        for (line, change) in options {
            let more = change(good.clone());
            match more.check(self.now) {
                Ok(()) => good = more,
                Err(error) => self.fault(line, error.to_string()),
            }
        }
        None
    }
}
