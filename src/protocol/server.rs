//! Asking a server about itself.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use redis::Value;

use crate::error::{Applied, Error, ErrorKind};
use crate::protocol::failure;
use crate::protocol::lane::Lane;
use crate::protocol::scripts::Verb;

/// What INFO said.
pub(crate) struct Info(pub(crate) String);

impl Info {
    /// The value of this name, if it has one.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }

    /// The same as a number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }
}

impl Lane {
    /// These sections of INFO; all that it says by itself if none is named.
    pub(crate) async fn info(&self, sections: &[&str]) -> Result<Info, Error> {
        match self.command(redis::cmd("INFO").arg(sections)).await? {
            Value::BulkString(info) => Ok(Info(String::from_utf8_lossy(&info).into_owned())),
            Value::VerbatimString { text, .. } => Ok(Info(text)),
            other => Err(unexpected("INFO", &other)),
        }
    }

    /// A setting of the server; nothing if it has none of this name.
    pub(crate) async fn setting(&self, name: &str) -> Result<Option<String>, Error> {
        let answer = self.command(redis::cmd("CONFIG").arg("GET").arg(name)).await?;
        let pairs: Vec<(String, String)> =
            redis::from_redis_value(answer).map_err(|error| unexpected("CONFIG GET", &error))?;
        Ok(pairs.into_iter().next().map(|(_, value)| value))
    }

    /// How many of our scripts the server knows.
    pub(crate) async fn known_scripts(&self) -> Result<usize, Error> {
        let mut exists = redis::cmd("SCRIPT");
        exists.arg("EXISTS");
        for verb in Verb::ALL {
            exists.arg(verb.sha());
        }
        match self.command(&exists).await? {
            Value::Array(known) => Ok(known.iter().filter(|one| **one == Value::Int(1)).count()),
            other => Err(unexpected("SCRIPT EXISTS", &other)),
        }
    }

    /// The type of a key, `none` if there is no such key.
    pub(crate) async fn type_of(&self, key: &str) -> Result<String, Error> {
        match self.command(redis::cmd("TYPE").arg(key)).await? {
            Value::SimpleString(kind) => Ok(kind),
            other => Err(unexpected("TYPE", &other)),
        }
    }

    /// The server's clock in Unix microseconds, when it was asked, and how long the answer took.
    pub(crate) async fn time(&self) -> Result<(i64, Instant, Duration), Error> {
        let sent = Instant::now();
        let answer = self.command(&redis::cmd("TIME")).await?;
        let received = Instant::now();
        let (seconds, micros): (i64, i64) =
            redis::from_redis_value(answer).map_err(|error| unexpected("TIME", &error))?;
        let now_us = seconds.saturating_mul(1_000_000).saturating_add(micros);
        self.clock().observe(sent, received, now_us);
        Ok((now_us, sent, received - sent))
    }
}

fn unexpected(command: &str, answer: &dyn Debug) -> Error {
    let answer = failure::shown(&format!("{answer:?}"));
    Error::new(ErrorKind::Server, Applied::No, format!("{command} answered something unexpected: {answer}"))
}
