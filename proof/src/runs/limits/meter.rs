//! The calls of scripts by the server's own figures: their number, and the longest.

use anyhow::{Context, Result, bail};
use dueq_testkit::cluster;
use dueq_testkit::report::ms;
use redis::Value;
use redis::aio::MultiplexedConnection;

/// Longer calls of the server are measured, in microseconds.
const SLOW_US: u64 = 500;

/// The server's own figures of its calls.
pub(super) struct Meter {
    connection: MultiplexedConnection,
    calls: u64,
}

pub(super) struct Metered {
    pub(super) calls: u64,
    longest_us: u64,
}

impl Metered {
    pub(super) fn longest(&self) -> String {
        match self.longest_us {
            0 => format!("below {}", SLOW_US as f64 / 1_000.0),
            us => ms(us).to_string(),
        }
    }
}

impl Meter {
    pub(super) async fn start(port: u16) -> Result<Self> {
        let mut connection = cluster::connection(port).await?;
        for (name, value) in [
            ("slowlog-log-slower-than", SLOW_US),
            ("slowlog-max-len", 100_000),
        ] {
            redis::cmd("CONFIG")
                .arg(&["SET", name, &value.to_string()])
                .query_async::<()>(&mut connection)
                .await?;
        }
        let calls = 0;
        Ok(Self { connection, calls })
    }

    pub(super) async fn reset(&mut self) -> Result<()> {
        let mut slowlog = redis::cmd("SLOWLOG");
        slowlog.arg("RESET");
        slowlog.query_async::<()>(&mut self.connection).await?;
        self.calls = self.calls().await?;
        Ok(())
    }

    async fn calls(&mut self) -> Result<u64> {
        let mut info = redis::cmd("INFO");
        let stats: String = info
            .arg("commandstats")
            .query_async(&mut self.connection)
            .await?;
        script_calls(&stats)
    }

    pub(super) async fn read(&mut self) -> Result<Metered> {
        let mut slowlog = redis::cmd("SLOWLOG");
        slowlog.arg(&["GET", "-1"]);
        let entries: Vec<Value> = slowlog.query_async(&mut self.connection).await?;
        let mut longest_us = 0;
        for entry in &entries {
            longest_us = longest_us.max(script_time(entry)?);
        }
        Ok(Metered {
            calls: self.calls().await? - self.calls,
            longest_us,
        })
    }
}

/// The calls of scripts and functions in INFO commandstats.
fn script_calls(stats: &str) -> Result<u64> {
    let mut calls = 0;
    for line in stats.lines() {
        let of_script = ["evalsha", "eval", "fcall", "evalsha_ro", "fcall_ro"]
            .iter()
            .find_map(|name| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        if let Some((count, _)) = of_script.and_then(|rest| rest.split_once(',')) {
            calls += count.parse::<u64>().context("a number of calls")?;
        }
    }
    Ok(calls)
}

/// The microseconds of an entry of the slowlog; 0 if it is of no script.
fn script_time(entry: &Value) -> Result<u64> {
    let Value::Array(parts) = entry else {
        bail!("no entry of the slowlog: {entry:?}");
    };
    let (Some(Value::Int(us)), Some(Value::Array(words))) = (parts.get(2), parts.get(3)) else {
        bail!("no entry of the slowlog: {entry:?}");
    };
    let Some(Value::BulkString(name)) = words.first() else {
        bail!("no command in the slowlog: {entry:?}");
    };
    let is_script = name.eq_ignore_ascii_case(b"evalsha") || name.eq_ignore_ascii_case(b"fcall");
    let us = u64::try_from(*us).context("a time")?;
    Ok(if is_script { us } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_of_scripts_are_counted() {
        let stats = "# Commandstats\r\ncmdstat_evalsha:calls=7,usec=1\r\n\
            cmdstat_get:calls=9,usec=1\r\ncmdstat_fcall:calls=2,usec=1\r\n";
        assert_eq!(script_calls(stats).expect("numbers"), 9);
    }

    #[test]
    fn slowlog_entries_of_scripts_have_times() {
        let entry = |name: &str| {
            let words = Value::Array(vec![Value::BulkString(name.into())]);
            Value::Array(vec![Value::Int(1), Value::Int(2), Value::Int(900), words])
        };
        assert_eq!(script_time(&entry("EVALSHA")).expect("a time"), 900);
        assert_eq!(script_time(&entry("INFO")).expect("a time"), 0);
        assert!(script_time(&Value::Nil).is_err());
    }
}
