//! What a server reports about itself, and whether it is fit for queues.

use std::fmt::Debug;

use redis::Value;

use crate::error::{Applied, Error, ErrorKind, printable};
use crate::telemetry::events;

/// The sections of INFO that [`Info::check`] and [`Info::is_clustered`] need.
pub(crate) const FITNESS: [&str; 4] = ["server", "memory", "persistence", "cluster"];

/// The reply to INFO.
pub(crate) struct Info(pub(crate) String);

impl Info {
    pub(crate) fn read(answer: Value) -> Result<Self, Error> {
        match answer {
            Value::BulkString(info) => Ok(Self(String::from_utf8_lossy(&info).into_owned())),
            Value::VerbatimString { text, .. } => Ok(Self(text)),
            other => Err(unexpected("INFO", &other)),
        }
    }

    /// Checks that this server is fit for queues. Warns if it has no append-only file.
    pub(crate) fn check(&self, address: &str) -> Result<(), Error> {
        if let Some(reason) = unfit(self) {
            let message = format!("redis at {address} is not fit: {reason}");
            return Err(Error::new(ErrorKind::Unsupported, Applied::No, message));
        }
        if self.lacks_append_only_file() {
            events::server_not_persistent(address);
        }
        Ok(())
    }

    /// While a server loads its append-only file, it reports it as disabled.
    fn lacks_append_only_file(&self) -> bool {
        self.field("aof_enabled") == Some("0") && self.field("loading") != Some("1")
    }

    /// Whether the server belongs to a Redis Cluster.
    pub(crate) fn is_clustered(&self) -> bool {
        self.field("cluster_enabled") == Some("1")
    }

    /// The value of this field, if INFO has it.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.0
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
    }

    /// How many replicas follow this master.
    pub(crate) fn online_replicas(&self) -> u32 {
        let is_online = |line: &&str| line.starts_with("slave") && line.contains("state=online");
        u32::try_from(self.0.lines().filter(is_online).count()).unwrap_or(u32::MAX)
    }

    /// The value of this field as a number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    /// The processor time of the thread that runs scripts; of the whole server if the server does
    /// not report that.
    pub(crate) fn main_thread_cpu_us(&self) -> Option<u64> {
        let seconds = |user, system| {
            let number = |name| self.field(name)?.parse::<f64>().ok();
            Some(number(user)? + number(system)?)
        };
        let seconds = seconds("used_cpu_user_main_thread", "used_cpu_sys_main_thread")
            .or_else(|| seconds("used_cpu_user", "used_cpu_sys"))?;
        Some((seconds * 1e6).round() as u64)
    }
}

pub(crate) fn unexpected(command: &str, answer: &dyn Debug) -> Error {
    let answer = printable(&format!("{answer:?}"));
    Error::new(
        ErrorKind::Server,
        Applied::No,
        format!("{command} answered something unexpected: {answer}"),
    )
}

/// The reason why this server is not fit for queues, and what to change; `None` if it is fit.
fn unfit(info: &Info) -> Option<String> {
    if let Some(reason) = too_old(info) {
        return Some(reason);
    }
    match info.field("maxmemory_policy") {
        Some(policy) if policy.starts_with("allkeys-") => Some(format!(
            "its maxmemory-policy {policy} drops messages silently; set it: CONFIG SET maxmemory-policy noeviction"
        )),
        _ => None,
    }
}

/// The version that is needed, if this server's version is too old.
pub(crate) fn too_old(info: &Info) -> Option<String> {
    let (product, version, least) = match info.field("valkey_version") {
        Some(version) => ("Valkey", version, (7, 2)),
        None => (
            "Redis",
            info.field("redis_version").unwrap_or("0.0"),
            (7, 0),
        ),
    };
    let mut numbers = version
        .split('.')
        .map(|number| number.parse::<u32>().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (found < least).then(|| {
        format!(
            "it is {product} {version}; {product} {}.{} or newer is needed",
            least.0, least.1
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unfit(info: &str) -> Option<String> {
        super::unfit(&Info(info.to_owned()))
    }

    #[test]
    fn a_loading_server_does_not_lack_its_file() {
        let lacks = |info: &str| Info(info.to_owned()).lacks_append_only_file();
        assert!(lacks("loading:0\r\naof_enabled:0\r\n"));
        assert!(!lacks("loading:1\r\naof_enabled:0\r\n"));
        assert!(!lacks("loading:0\r\naof_enabled:1\r\n"));
    }

    #[test]
    fn servers_that_are_too_old_or_evict_are_unfit() {
        assert_eq!(
            unfit("redis_version:7.0.15\r\nmaxmemory_policy:noeviction\r\n"),
            None
        );
        assert_eq!(
            unfit("redis_version:7.2.4\r\nvalkey_version:7.2.5\r\n"),
            None
        );
        assert_eq!(
            unfit("redis_version:8.0.0\r\nmaxmemory_policy:volatile-lru\r\n"),
            None
        );
        assert!(unfit("redis_version:6.2.6\r\n").is_some_and(|reason| reason.contains("7.0")));
        assert!(unfit("").is_some());
        let reason = unfit("redis_version:7.0.0\r\nmaxmemory_policy:allkeys-lru\r\n");
        assert!(
            reason.is_some_and(|reason| reason.contains("CONFIG SET maxmemory-policy noeviction"))
        );
    }

    #[test]
    fn cpu_time_is_taken_from_the_thread_that_runs_scripts() {
        let whole = "used_cpu_sys:1.5\r\nused_cpu_user:2.25\r\n";
        let thread = "used_cpu_sys_main_thread:0.5\r\nused_cpu_user_main_thread:0.000001\r\n";
        let us = |text: &str| Info(text.to_owned()).main_thread_cpu_us();
        assert_eq!(us(&format!("{whole}{thread}")), Some(500_001));
        assert_eq!(us(whole), Some(3_750_000));
        assert_eq!(us("used_cpu_sys:1.5\r\n"), None);
    }
}
