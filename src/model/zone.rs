//! Time zones by the rules that are compiled in. The rules of a machine may be missing or old, and
//! may differ from those of other machines.

use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::error::Error;

/// Finds a time zone by an IANA name of a place, or `UTC`. Refuses abbreviations such as `CET`.
/// `what` says in errors what needs the zone, such as `a cron`.
pub(crate) fn zone(name: &str, what: &str) -> Result<TimeZone, Error> {
    // `TimeZone::get` is not used: in a program with more features of jiff it would read the
    // machine's rules.
    let zone = TimeZoneDatabase::bundled().get(name).ok();
    let zone = zone.filter(|zone| zone.iana_name().is_some_and(is_place));
    zone.ok_or_else(|| {
        Error::invalid(format!(
            "{name:?} is no time zone of {what}: write an IANA name of a place, such as Europe/Paris, or UTC; \
             abbreviations and offsets do not say when clocks change"
        ))
    })
}

/// Whether an IANA name stands for a place or for UTC. IANA also has names such as `EST`, `GMT+0`
/// and `Etc/GMT-5`, which do not.
fn is_place(name: &str) -> bool {
    match name.split_once('/') {
        Some((area, rest)) => area != "Etc" || rest == "UTC",
        None => name == "UTC",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_utc_are_zones_and_offsets_are_not() {
        for name in [
            "Europe/Paris",
            "UTC",
            "Etc/UTC",
            "America/Argentina/Ushuaia",
        ] {
            assert!(zone(name, "a cron").is_ok(), "{name}");
        }
        for name in [
            "CET",
            "EST5EDT",
            "UTC+2",
            "+02:00",
            "Etc/GMT-5",
            "GMT",
            "Europe/Bonn",
            "",
        ] {
            assert!(zone(name, "a cron").is_err(), "{name}");
        }
    }
}
