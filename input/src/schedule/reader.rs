//! Parses one schedule.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use dueq::OnExpire;
use dueq::schedules::{MissedPolicy, OverlapPolicy, Schedule};

use crate::error::quoted;
use crate::schedule::values;
use crate::schedule::{DeclaredSchedule, Given, GivenValue, Notation, ScheduleFault};

const KEYS: [&str; 19] = [
    "name",
    "every",
    "cron",
    "zone",
    "anchor",
    "payload",
    "payload_json",
    "payload_base64",
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
/// The default `max` of missed = "all".
const USUAL_MAX: u64 = 1_000;

type Change = Box<dyn Fn(Schedule) -> Schedule>;
type Table = BTreeMap<String, (usize, Given)>;

pub(super) struct Reader {
    pub(super) notation: Notation,
    now: SystemTime,
    pub(super) faults: Vec<ScheduleFault>,
    /// The name of the schedule that is being parsed.
    pub(super) name: Option<String>,
}

impl Reader {
    pub(super) fn new(notation: Notation, now: SystemTime) -> Self {
        Self {
            notation,
            now,
            faults: Vec::new(),
            name: None,
        }
    }

    pub(super) fn fault(&mut self, place: usize, reason: impl Into<String>) {
        self.faults.push(ScheduleFault {
            place,
            name: self.name.clone(),
            reason: reason.into(),
        });
    }

    /// The reason for refusing a declaration that is this value instead of a table.
    pub(super) fn no_table(&self, value: &GivenValue) -> String {
        match self.notation {
            Notation::Toml => {
                "schedule is no table: write [[schedule]] above each schedule".to_owned()
            }
            Notation::Json => format!("it is {}: write an object", value.kind()),
        }
    }

    /// A key with a value, in the notation of the declaration.
    fn pair(&self, key: &str, value: &str) -> String {
        match self.notation {
            Notation::Toml => format!("{key} = {value:?}"),
            Notation::Json => format!("{key:?}: {value:?}"),
        }
    }

    fn unknown(&mut self, place: usize, name: &str) {
        let distance = |known: &&&str| strsim::osa_distance(known, name);
        // A long name is not a typing error, and comparing it would take long.
        let near = KEYS
            .iter()
            .filter(|known| name.len() <= 30 && distance(known) <= 2);
        let advice = match near.min_by_key(distance) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("there are {}", KEYS.join(", ")),
        };
        self.fault(place, format!("there is no key {}: {advice}", quoted(name)));
    }

    /// Parses a value by its reader; a refused value becomes a fault.
    fn get<'t, T>(
        &mut self,
        table: &'t Table,
        key: &str,
        read: impl FnOnce(&str, &'t GivenValue) -> Result<T, String>,
    ) -> Option<(usize, T)> {
        let (_, given) = table.get(key)?;
        match read(key, &given.value) {
            Ok(value) => Some((given.place, value)),
            Err(reason) => {
                self.fault(given.place, reason);
                None
            }
        }
    }

    pub(super) fn schedule(&mut self, place: usize, table: &Table) -> Option<DeclaredSchedule> {
        let before = self.faults.len();
        let named = self.get(table, "name", values::text);
        self.name = named.map(|(_, name)| name.to_owned());
        for (key, (place, _)) in table
            .iter()
            .filter(|(key, _)| !KEYS.contains(&key.as_str()))
        {
            self.unknown(*place, key);
        }
        match named {
            Some((place, name)) => {
                let minutely = Schedule::every(Duration::from_secs(60)).name(name);
                if let Err(error) = minutely.check(self.now) {
                    self.fault(place, error.to_string());
                }
            }
            None if !table.contains_key("name") => self.fault(place, "the schedule has no name"),
            None => {}
        }
        let (payload_bytes, options) = self.options(table);
        let schedule = self.rule(place, table);
        let schedule = schedule.and_then(|(place, rule)| self.checked(place, rule, options));
        if self.faults.len() > before {
            return None;
        }
        let (place, name) = named?;
        Some(DeclaredSchedule {
            schedule: schedule?.name(name),
            name: name.to_owned(),
            place,
            payload_bytes,
        })
    }

    /// The rule with its zone; and the place of the rule.
    fn rule(&mut self, place: usize, table: &Table) -> Option<(usize, Schedule)> {
        let every = self.get(table, "every", values::duration);
        let cron = self.get(table, "cron", values::text);
        let zone = self.get(table, "zone", values::text);
        match (table.contains_key("every"), table.contains_key("cron")) {
            (true, true) => self.fault(place, "it has every and cron: leave out one of them"),
            (false, false) => {
                let every = self.pair("every", "15m");
                let (cron, zone) = (
                    self.pair("cron", "0 2 * * *"),
                    self.pair("zone", "Europe/Paris"),
                );
                self.fault(
                    place,
                    format!("it has no rule: write {every}, or {cron} and {zone}"),
                );
            }
            _ => {}
        }
        let (place, rule) = match (every, cron) {
            (Some((place, interval)), None) => (place, Schedule::every(interval)),
            (None, Some((place, pattern))) => match Schedule::cron(pattern) {
                Ok(cron) => (place, cron),
                Err(error) => {
                    self.fault(place, error.to_string());
                    return None;
                }
            },
            _ => return None,
        };
        let Some((zone_place, zone)) = zone else {
            return (!table.contains_key("zone")).then_some((place, rule));
        };
        // A pattern for each day is valid, so if it is refused, the zone is at fault.
        if let (None, Ok(daily)) = (every, Schedule::cron("0 0 * * *")) {
            let daily = daily.name("zone").zone(zone);
            if let Err(error) = daily.check(self.now) {
                self.fault(zone_place, error.to_string());
                return None;
            }
            return Some((place, rule.zone(zone)));
        }
        let zoned = rule.name("zone").zone(zone);
        if let Err(error) = zoned.check(self.now) {
            self.fault(zone_place, error.to_string());
            return None;
        }
        Some((place, zoned))
    }

    /// The length of the payload; and the options, each with its line.
    fn options(&mut self, table: &Table) -> (usize, Vec<(usize, Change)>) {
        let mut options: Vec<(usize, Change)> = Vec::new();
        let mut add = |place, change: Change| options.push((place, change));
        let mut payload_bytes = 0;
        if let Some((place, payload)) = self.payload(table) {
            payload_bytes = payload.len();
            add(place, Box::new(move |it| it.payload(payload.clone())));
        }
        for (key, set) in [
            ("anchor", Schedule::anchor as fn(_, _) -> _),
            ("start", Schedule::start),
            ("end", Schedule::end),
        ] {
            if let Some((place, time)) = self.get(table, key, values::moment) {
                add(place, Box::new(move |it| set(it, time)));
            }
        }
        let missed = table.get("missed").map(|(_, given)| &given.value);
        let is_all = matches!(missed, Some(GivenValue::Text(word)) if word == "all");
        let max = self.get(table, "max", values::count);
        if let Some((place, _)) = max.filter(|_| !is_all) {
            let missed = self.pair("missed", "all");
            self.fault(place, format!("max has no effect without {missed}"));
        }
        let max = max.map_or(USUAL_MAX, |(_, max)| max);
        let missed = [
            ("one", MissedPolicy::One),
            ("skip", MissedPolicy::Skip),
            ("all", MissedPolicy::All { max }),
        ];
        if let Some((place, missed)) = self.get(table, "missed", |key, value| {
            values::word(key, value, &missed)
        }) {
            add(place, Box::new(move |it| it.missed(missed)));
        }
        let overlap = [
            ("allow", OverlapPolicy::Allow),
            ("skip", OverlapPolicy::Skip),
            ("replace", OverlapPolicy::Replace),
        ];
        if let Some((place, overlap)) = self.get(table, "overlap", |key, value| {
            values::word(key, value, &overlap)
        }) {
            add(place, Box::new(move |it| it.overlap(overlap)));
        }
        for (key, set) in [
            ("within", Schedule::within as fn(_, _) -> _),
            ("jitter", Schedule::jitter),
            ("expires", Schedule::expires_after),
        ] {
            if let Some((place, time)) = self.get(table, key, values::duration) {
                add(place, Box::new(move |it| set(it, time)));
            }
        }
        if let Some((place, limit)) = self.get(table, "limit", values::count) {
            add(place, Box::new(move |it| it.limit(limit)));
        }
        if let Some((place, limit)) = self.get(table, "max_attempts", values::count) {
            let limit = u32::try_from(limit).unwrap_or(u32::MAX);
            add(place, Box::new(move |it| it.max_attempts(limit)));
        }
        let fates = [("dead", OnExpire::Dead), ("drop", OnExpire::Drop)];
        if let Some((place, fate)) = self.get(table, "on_expire", |key, value| {
            values::word(key, value, &fates)
        }) {
            match table.contains_key("expires") {
                true => add(place, Box::new(move |it| it.on_expire(fate))),
                false => self.fault(place, "on_expire has no effect without expires"),
            }
        }
        (payload_bytes, options)
    }

    fn payload(&mut self, table: &Table) -> Option<(usize, Vec<u8>)> {
        let text = self.get(table, "payload", |key, value| {
            values::text(key, value).map(|text| text.as_bytes().to_vec())
        });
        let json = self.get(table, "payload_json", |_, value| {
            values::json(value).map(|value| value.to_string().into_bytes())
        });
        let bytes = self.get(table, "payload_base64", values::base64);
        let mut given = [
            ("payload", text),
            ("payload_json", json),
            ("payload_base64", bytes),
        ]
        .into_iter()
        .filter_map(|(key, payload)| payload.map(|payload| (key, payload)));
        let (first, payload) = given.next()?;
        if let Some((second, (place, _))) = given.next() {
            let reason = format!("it has {first} and {second}: leave out one of them");
            self.fault(place, reason);
        }
        Some(payload)
    }

    /// Adds the options to the schedule. A refused option becomes a fault with its own place.
    fn checked(
        &mut self,
        place: usize,
        rule: Schedule,
        options: Vec<(usize, Change)>,
    ) -> Option<Schedule> {
        let rule = rule.name(self.name.clone().unwrap_or_default());
        let whole = options
            .iter()
            .fold(rule.clone(), |it, (_, change)| change(it));
        // The real name was checked before.
        let whole = whole.name("schedule");
        if whole.check(self.now).is_ok() {
            return Some(whole);
        }
        let mut good = rule.name("schedule");
        if let Err(error) = good.check(self.now) {
            self.fault(place, error.to_string());
            return None;
        }
        for (place, change) in options {
            let more = change(good.clone());
            match more.check(self.now) {
                Ok(()) => good = more,
                Err(error) => self.fault(place, error.to_string()),
            }
        }
        None
    }
}
