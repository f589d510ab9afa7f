//! The flags of a message: its due time, expiry, durability and uniqueness.

use std::time::{Duration, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use dueq::admin::BulkSteps;
use dueq::{Client, Due, Durability, OnExpire};
use dueq_input::{Expiry, Timing, Unique, When, Wording};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::output::Usage;
use crate::time;

#[derive(Args)]
pub(crate) struct WhenFlags {
    /// Due this long from now: 48h, 1500ms, '1h 30m'
    #[arg(long, value_name = "TIME", value_parser = time::delay, allow_hyphen_values = true)]
    delay: Option<Duration>,
    /// Due at this moment: now, 'in 10m', 2026-12-01T20:00:00+08:00, Unix milliseconds; or with --tz
    /// '2026-12-01 20:00', 'today 20:00', 'tomorrow 9:00'
    #[arg(long, value_name = "MOMENT", conflicts_with = "delay")]
    at: Option<String>,
    /// Due at the next opening of these hours in --tz, if the due time is outside them: 'Mon-Fri
    /// 09:00-18:00'
    #[arg(long, value_name = "HOURS")]
    within: Option<String>,
    /// The time zone of --within, and of a time without one: Asia/Shanghai
    #[arg(long, value_name = "ZONE", value_parser = time::zone)]
    tz: Option<TimeZone>,
}

impl WhenFlags {
    /// Reads the flags.
    pub(crate) fn read(self) -> When {
        When {
            delay: self.delay,
            at: self.at,
            within: self.within,
            tz: self.tz,
        }
    }
}

/// The timing of a single message. Refuses --tz if nothing uses it; `expires_at` is a second time
/// that may use it.
pub(crate) fn timing(when: &When, expires_at: Option<&str>) -> Result<Timing, Usage> {
    Ok(when.timing(expires_at, Timestamp::now(), Wording::Flags)?)
}

/// The default timing for lines of a file that have none. Lines may use --tz too.
pub(crate) fn default_timing(when: &When) -> Result<Timing, Usage> {
    Ok(when.default_timing(Timestamp::now(), Wording::Flags)?)
}

/// The due time. If business hours may move it, asks for the server's clock; otherwise makes no
/// call.
pub(crate) async fn resolve(timing: Timing, client: &Client) -> anyhow::Result<Option<Due>> {
    if timing.hours.is_none() {
        return Ok(timing.due);
    }
    let now_ms = client.server_time().await?.now_ms();
    Ok(timing.resolve_at(now_ms).map_err(Usage::from)?)
}

#[derive(Args)]
pub(crate) struct ExpiryFlags {
    /// Start no attempt later than this after the due time: 2h
    #[arg(long, value_name = "TIME", value_parser = time::period, allow_hyphen_values = true)]
    expires: Option<Duration>,
    /// Start no attempt after this moment, written as for --at
    #[arg(long, value_name = "MOMENT", conflicts_with = "expires")]
    expires_at: Option<String>,
    /// What becomes of the message when it expires [default: dead]
    #[arg(long, value_enum)]
    on_expire: Option<Fate>,
}

/// What becomes of a message that expires.
#[derive(Clone, Copy, ValueEnum)]
enum Fate {
    /// Remove it; only the count expired of `dueq stats` shows it
    Drop,
    /// Keep it as a dead letter, which can be listed and requeued
    Dead,
}

impl ExpiryFlags {
    /// Reads the flags.
    pub(crate) fn read(self) -> Expiry {
        Expiry {
            expires: self.expires,
            expires_at: self.expires_at,
            on_expire: self.on_expire.map(|fate| match fate {
                Fate::Drop => OnExpire::Drop,
                Fate::Dead => OnExpire::Dead,
            }),
        }
    }
}

#[derive(Args)]
pub(crate) struct Durable {
    /// Succeed only when N replicas have the change too; the change stays even if this fails
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    replicas: Option<u32>,
    /// Succeed only when the change is on the server's disk, and with --replicas on the disks of N
    /// replicas (Redis 7.2 or newer, or Valkey)
    #[arg(long)]
    fsync: bool,
    /// How long to wait for replicas and disks; 1m at most
    #[arg(long, value_name = "TIME", value_parser = time::delay, default_value = "1s")]
    durability_timeout: Duration,
}

impl Durable {
    pub(crate) fn durability(&self) -> Durability {
        let timeout = self.durability_timeout;
        match (self.fsync, self.replicas) {
            (false, None) => Durability::Memory,
            (false, Some(replicas)) => Durability::Replicated { replicas, timeout },
            (true, replicas) => Durability::Fsynced {
                local: true,
                replicas: replicas.unwrap_or(0),
                timeout,
            },
        }
    }
}

#[derive(Args)]
pub(crate) struct UniqueFlags {
    /// Remember the id for this long, 1ms to 30d, whatever becomes of the message: until then
    /// another push of the id stores nothing
    #[arg(long, value_name = "TIME", value_parser = time::delay)]
    window: Option<Duration>,
    /// Store the message although an earlier --window remembers its id
    #[arg(long)]
    reuse: bool,
    /// Pushes that move the message postpone it no further than this after the first one; needs
    /// --on-conflict
    #[arg(long, value_name = "TIME", value_parser = time::delay)]
    max_wait: Option<Duration>,
    /// Replace a dead message too; needs --on-conflict replace or next
    #[arg(long)]
    revive: bool,
}

impl UniqueFlags {
    /// Reads the flags.
    pub(crate) fn read(self) -> Unique {
        Unique {
            window: self.window,
            reuse: self.reuse,
            max_wait: self.max_wait,
            revive: self.revive,
            undo_ms: None,
        }
    }
}

/// The most messages of one step.
const STEP: usize = 200;

/// Runs all steps for messages that died at or after this time. Returns the number of processed
/// messages.
pub(crate) async fn since(steps: BulkSteps, from_ms: u64) -> Result<u64, dueq::Error> {
    let mut steps = steps.since(from_ms)?;
    while steps.step(STEP).await?.end.is_none() {}
    Ok(steps.done())
}

/// Parses a time, and returns Unix milliseconds. `zone` is that of --tz.
pub(crate) fn moment_ms(text: &str, zone: Option<&TimeZone>) -> Result<u64, Usage> {
    let moment = time::moment(text, zone, Timestamp::now(), Wording::Flags).map_err(Usage::from)?;
    let since_epoch = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}

/// The first moment that `--after` or `--since` selects, in Unix milliseconds.
pub(crate) fn first_ms(
    after: Option<&str>,
    since: Option<Duration>,
    zone: Option<&TimeZone>,
) -> Result<Option<u64>, Usage> {
    match (after, since) {
        (Some(after), _) => moment_ms(after, zone).map(Some),
        (None, Some(since)) => moment_ms(&format!("{}ms ago", since.as_millis()), None).map(Some),
        (None, None) => Ok(None),
    }
}
