//! Formats times, relative and absolute, with their time zone.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::dashboard::show::{Markup, duration};
use crate::edge::problem::{Code, Problem};
use crate::edge::shown::quoted;

/// The zone in which times are shown.
#[derive(Debug, Clone)]
pub(in crate::dashboard) struct Zone {
    name: String,
    zone: TimeZone,
}

impl Default for Zone {
    fn default() -> Self {
        Self {
            name: "UTC".to_owned(),
            zone: TimeZone::UTC,
        }
    }
}

impl Zone {
    /// A zone by its IANA name.
    pub(in crate::dashboard) fn named(name: &str) -> Result<Self, Problem> {
        if name == "UTC" {
            return Ok(Self::default());
        }
        let zone = dueq_input::zone(name).map_err(|_| {
            let detail = format!(
                "time zone {}: write a name such as Europe/Paris",
                quoted(name)
            );
            Problem::new(Code::InvalidInput, detail)
        })?;
        let name = zone.iana_name().unwrap_or("UTC").to_owned();
        Ok(Self { name, zone })
    }

    pub(in crate::dashboard) fn name(&self) -> &str {
        &self.name
    }

    /// The zone's offsets and clock changes.
    pub(in crate::dashboard) fn rules(&self) -> &TimeZone {
        &self.zone
    }
}

/// The current time, and the zone of the page.
#[derive(Debug, Clone)]
pub(in crate::dashboard) struct Clock {
    now_ms: u64,
    zone: Zone,
}

impl Clock {
    pub(in crate::dashboard) fn now(zone: Zone) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ms = u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX);
        Self { now_ms, zone }
    }

    /// This clock with another current time: that of Redis, if a call returned it.
    pub(in crate::dashboard) fn at(mut self, now_ms: u64) -> Self {
        self.now_ms = now_ms;
        self
    }

    pub(in crate::dashboard) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    pub(in crate::dashboard) fn zone(&self) -> &Zone {
        &self.zone
    }

    /// Formats an absolute time: 2026-12-01 20:00:00 CET.
    pub(in crate::dashboard) fn absolute(&self, ms: u64) -> String {
        match self.zoned(ms) {
            Some(time) => time.strftime("%Y-%m-%d %H:%M:%S %Z").to_string(),
            None => format!("{ms} ms after 1970"),
        }
    }

    /// Like [`Clock::absolute`], with another pattern, such as `%H:%M`.
    pub(in crate::dashboard) fn format(&self, ms: u64, pattern: &str) -> String {
        let zoned = self.zoned(ms);
        zoned.map_or_else(String::new, |time| time.strftime(pattern).to_string())
    }

    /// Formats the distance from now: in 3 h 20 min; 5 s ago.
    pub(in crate::dashboard) fn relative(&self, ms: u64) -> String {
        match ms.checked_sub(self.now_ms) {
            Some(0) => "now".to_owned(),
            Some(ahead) => format!("in {}", duration(ahead)),
            None => format!("{} ago", duration(self.now_ms - ms)),
        }
    }

    /// The relative and the absolute time. The page's script keeps the relative one current.
    pub(in crate::dashboard) fn time(&self, ms: u64) -> Markup {
        let iso = i64::try_from(ms)
            .ok()
            .and_then(|ms| Timestamp::from_millisecond(ms).ok())
            .map_or_else(String::new, |time| time.to_string());
        Markup::of(format!(
            "<time datetime=\"{iso}\" data-ms=\"{ms}\"><span class=\"relative\">{}</span> \
             <span class=\"absolute\">{}</span></time>",
            self.relative(ms),
            Markup::escaped(&self.absolute(ms)),
        ))
    }

    fn zoned(&self, ms: u64) -> Option<jiff::Zoned> {
        let time = Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()?;
        Some(time.to_zoned(self.zone.zone.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_times_name_their_zone() {
        let zone = Zone::named("Europe/Paris").expect("a zone");
        let clock = Clock::now(zone).at(1_796_299_200_000);
        assert_eq!(clock.absolute(1_796_299_200_000), "2026-12-03 13:00:00 CET");
        assert_eq!(clock.relative(1_796_299_200_000 + 200_000), "in 3 min 20 s");
        assert_eq!(clock.relative(1_796_299_200_000 - 5_000), "5 s ago");
        assert_eq!(clock.relative(1_796_299_200_000), "now");
        assert!(Zone::named("Mars/Base").is_err());
        let shown = clock.time(u64::MAX).to_string();
        assert!(shown.contains("18446744073709551615"), "{shown}");
    }
}
