//! What a server reports about itself, and whether it is fit for queues.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use redis::Value;

use crate::error::{Applied, Error, ErrorKind, printable};
use crate::protocol::keys::Keys;
use crate::protocol::verbs::Verb;
use crate::server::lane::Lane;
use crate::telemetry::events;

/// The sections of INFO that [`Info::check`] looks at.
pub(crate) const FITNESS: [&str; 3] = ["server", "memory", "persistence"];

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
        if self.field("aof_enabled") == Some("0") {
            events::server_not_persistent(address);
        }
        Ok(())
    }

    /// The value of this name, if it has one.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.0
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
    }

    /// The same as a number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }
}

impl Lane {
    /// These sections of INFO; the default ones if none is named.
    pub(crate) async fn info(&self, sections: &[&str]) -> Result<Info, Error> {
        Info::read(self.query(redis::cmd("INFO").arg(sections)).await?)
    }

    /// A setting of the server; `None` if the server has none of this name.
    pub(crate) async fn setting(&self, name: &str) -> Result<Option<String>, Error> {
        let answer = self
            .query(redis::cmd("CONFIG").arg("GET").arg(name))
            .await?;
        let pairs: Vec<(String, String)> =
            redis::from_redis_value(answer).map_err(|error| unexpected("CONFIG GET", &error))?;
        Ok(pairs.into_iter().next().map(|(_, value)| value))
    }

    /// How many of this crate's scripts the server knows.
    pub(crate) async fn known_scripts(&self) -> Result<usize, Error> {
        let mut exists = redis::cmd("SCRIPT");
        exists.arg("EXISTS");
        for verb in Verb::ALL {
            exists.arg(verb.sha());
        }
        match self.query(&exists).await? {
            Value::Array(known) => Ok(known.iter().filter(|one| **one == Value::Int(1)).count()),
            other => Err(unexpected("SCRIPT EXISTS", &other)),
        }
    }

    /// The type of a key, `none` if there is no such key.
    pub(crate) async fn type_of(&self, key: &str) -> Result<String, Error> {
        match self.query(redis::cmd("TYPE").arg(key)).await? {
            Value::SimpleString(kind) => Ok(kind),
            other => Err(unexpected("TYPE", &other)),
        }
    }

    /// Whether there is such a key.
    pub(crate) async fn has(&self, key: &str) -> Result<bool, Error> {
        match self.query(redis::cmd("EXISTS").arg(key)).await? {
            Value::Int(count) => Ok(count > 0),
            other => Err(unexpected("EXISTS", &other)),
        }
    }

    /// Removes all keys of a queue in one command, provided that each is absent or has the type of
    /// a queue's key.
    pub(crate) async fn delete_keys(&self, keys: &Keys) -> Result<bool, Error> {
        for (key, due) in keys.typed() {
            let kind = self.type_of(key).await?;
            if kind != due && kind != "none" {
                let message = format!(
                    "nothing deleted: {key} is a {kind}, not a {due}, so another program wrote it: rename that key first"
                );
                return Err(Error::new(ErrorKind::Server, Applied::No, message));
            }
        }
        let mut unlink = redis::cmd("UNLINK");
        unlink.arg(&keys.vector[..]).arg(&keys.wake);
        match self.command(&unlink).await? {
            Value::Int(removed) => Ok(removed > 0),
            other => Err(Error::new(
                ErrorKind::Server,
                Applied::Unknown,
                format!("UNLINK answered {other:?}"),
            )),
        }
    }

    /// The server's clock in Unix microseconds, when it was asked, and how long the reply took.
    pub(crate) async fn time(&self) -> Result<(i64, Instant, Duration), Error> {
        let sent = Instant::now();
        let answer = self.query(&redis::cmd("TIME")).await?;
        let received = Instant::now();
        let (seconds, micros): (i64, i64) =
            redis::from_redis_value(answer).map_err(|error| unexpected("TIME", &error))?;
        let now_us = seconds.saturating_mul(1_000_000).saturating_add(micros);
        self.clock().observe(sent, received, now_us);
        Ok((now_us, sent, received - sent))
    }
}

fn unexpected(command: &str, answer: &dyn Debug) -> Error {
    let answer = printable(&format!("{answer:?}"));
    Error::new(
        ErrorKind::Server,
        Applied::No,
        format!("{command} answered something unexpected: {answer}"),
    )
}

/// Why this server is not fit for queues, and what to change.
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

/// Which version is needed, if this one is too old.
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
}
