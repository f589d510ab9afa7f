//! Random cron patterns, together with the sets of values that they match.

use fastrand::Rng;

/// Time zones with clock changes of an hour, of half an hour, of two hours, at midnight, and twice
/// around Ramadan; and one without changes.
const ZONES: &[&str] = &[
    "UTC",
    "Europe/Paris",
    "Europe/Dublin",
    "America/New_York",
    "America/St_Johns",
    "America/Sao_Paulo",
    "America/Santiago",
    "America/Havana",
    "America/Nuuk",
    "America/Asuncion",
    "Atlantic/Azores",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Jerusalem",
    "Asia/Kolkata",
    "Asia/Tehran",
    "Australia/Lord_Howe",
    "Australia/Sydney",
    "Pacific/Auckland",
    "Pacific/Chatham",
    "Pacific/Easter",
    "Pacific/Norfolk",
    "Antarctica/Troll",
];

/// A field of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Field {
    text: String,
    /// The numbers that the field matches.
    values: Vec<u8>,
}

#[derive(Debug, Clone)]
pub(super) struct Pattern {
    pub(super) text: String,
    pub(super) zone: &'static str,
    minute: Field,
    hour: Field,
    day: Field,
    month: Field,
    weekday: Field,
}

/// A local time, to the minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Local {
    pub(super) month: u8,
    pub(super) day: u8,
    /// The day of the week, counted from Sunday, which is 0.
    pub(super) weekday: u8,
    pub(super) hour: u8,
    pub(super) minute: u8,
}

impl Pattern {
    pub(super) fn random(rng: &mut Rng) -> Self {
        let zone = ZONES[rng.usize(..ZONES.len())];
        let minute = field(rng, 0, 59, true, 4);
        let hour = field(rng, 0, 23, true, 2);
        // The day has no steps: programs differ in whether `*/2` restricts the day.
        let day = field(rng, 1, 28, false, 5);
        let month = field(rng, 1, 12, false, 8);
        let weekday = field(rng, 0, 6, false, 5);
        Self::of([minute, hour, day, month, weekday], zone)
    }

    fn of(fields: [Field; 5], zone: &'static str) -> Self {
        let text = fields.each_ref().map(|field| &*field.text).join(" ");
        let [minute, hour, day, month, weekday] = fields;
        Self {
            text,
            zone,
            minute,
            hour,
            day,
            month,
            weekday,
        }
    }

    /// Whether the times of the day are fixed: no `*` and no step in minutes and hours.
    pub(super) fn is_fixed(&self) -> bool {
        let is_open = |field: &Field| field.text.contains(['*', '/']);
        !is_open(&self.minute) && !is_open(&self.hour)
    }

    /// Whether a local time matches. If both day fields are restricted, one of them suffices.
    pub(super) fn matches(&self, local: Local) -> bool {
        let day = self.day.values.contains(&local.day);
        let weekday = self.weekday.values.contains(&local.weekday);
        let is_day = match self.day.text == "*" || self.weekday.text == "*" {
            true => day && weekday,
            false => day || weekday,
        };
        is_day
            && self.minute.values.contains(&local.minute)
            && self.hour.values.contains(&local.hour)
            && self.month.values.contains(&local.month)
    }
}

/// A random field. It is `*` except once in `restricted` cases, if `restricted` is above 4 (days
/// and months).
fn field(rng: &mut Rng, least: u8, most: u8, has_steps: bool, restricted: u8) -> Field {
    let all: Vec<u8> = (least..=if least == 1 && most == 28 { 31 } else { most }).collect();
    if rng.u8(..restricted.max(2)) != 0 && restricted > 4 || rng.u8(..4) == 0 {
        return Field {
            text: "*".to_owned(),
            values: all,
        };
    }
    match rng.u8(..4) {
        0 if has_steps => {
            let step = rng.u8(2..=(most / 2).max(2));
            let values = (least..=most).step_by(step.into()).collect();
            let text = format!("*/{step}");
            Field { text, values }
        }
        1 => {
            let from = rng.u8(least..most);
            let to = rng.u8(from + 1..=most);
            let values = (from..=to).collect();
            let text = format!("{from}-{to}");
            Field { text, values }
        }
        // Half of the hours are hours in which clocks change.
        kind => {
            let count = if kind == 2 { rng.usize(2..5) } else { 1 };
            let near = most == 23 && rng.bool();
            let values = (0..count).map(|_| rng.u8(least..=if near { 4 } else { most }));
            let mut values: Vec<u8> = values.collect();
            values.sort_unstable();
            values.dedup();
            let text: Vec<_> = values.iter().map(u8::to_string).collect();
            let text = text.join(",");
            Field { text, values }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(texts: [(&str, &[u8]); 5]) -> Pattern {
        let field = |(text, values): (&str, &[u8])| Field {
            text: text.to_owned(),
            values: values.to_vec(),
        };
        Pattern::of(texts.map(field), "UTC")
    }

    #[test]
    fn two_restricted_days_are_alternatives() {
        let all: Vec<u8> = (0..60).collect();
        let local = |day, weekday| Local {
            month: 1,
            day,
            weekday,
            hour: 2,
            minute: 0,
        };
        let both = of([
            ("0", &[0]),
            ("2", &[2]),
            ("7", &[7]),
            ("*", &all),
            ("1", &[1]),
        ]);
        assert_eq!(both.text, "0 2 7 * 1");
        assert!(both.matches(local(7, 3)) && both.matches(local(8, 1)));
        assert!(!both.matches(local(8, 2)) && both.is_fixed());
        let one = of([
            ("0", &[0]),
            ("*", &all),
            ("7", &[7]),
            ("*", &all),
            ("*", &all),
        ]);
        assert!(one.matches(local(7, 3)) && !one.matches(local(8, 1)) && !one.is_fixed());
    }

    #[test]
    fn random_patterns_have_fixed_and_other_times() {
        let mut rng = Rng::with_seed(1);
        let patterns: Vec<_> = (0..500).map(|_| Pattern::random(&mut rng)).collect();
        let fixed = patterns.iter().filter(|pattern| pattern.is_fixed()).count();
        assert!((100..400).contains(&fixed), "{fixed} fixed of 500");
    }
}
