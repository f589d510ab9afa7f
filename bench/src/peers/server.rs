//! The servers that the measured systems use.

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use redis::aio::MultiplexedConnection;

use super::systems::root;
use dueq_testkit::process::status_bytes;

pub(crate) enum Server {
    Redis {
        url: String,
        connection: MultiplexedConnection,
        /// Ends the server on drop; `None` for a server that the user runs.
        _private: Option<Box<dueq_testkit::Server>>,
    },
    Beanstalkd {
        address: String,
        child: Child,
    },
}

impl Server {
    /// Starts a Redis without persistence, otherwise with default settings.
    pub(crate) async fn private() -> Result<Self> {
        Self::private_with(&[]).await
    }

    pub(crate) async fn private_with(arguments: &[&str]) -> Result<Self> {
        let server = dueq_testkit::Server::start(arguments)?;
        let url = server.url();
        let connection = connect(&url).await?;
        Ok(Self::Redis {
            url,
            connection,
            _private: Some(Box::new(server)),
        })
    }

    /// Connects to a Redis that the user runs.
    pub(crate) async fn watched(url: &str) -> Result<Self> {
        Ok(Self::Redis {
            url: url.to_owned(),
            connection: connect(url).await?,
            _private: None,
        })
    }

    /// Refuses a server that contains data, because the measurements empty it repeatedly.
    pub(crate) async fn expect_empty(url: &str) -> Result<()> {
        let keys: u64 = redis::cmd("DBSIZE")
            .query_async(&mut connect(url).await?)
            .await?;
        if keys > 0 {
            bail!(
                "the server holds {keys} keys, and a benchmark empties it: name one that is empty"
            );
        }
        Ok(())
    }

    pub(crate) fn beanstalkd() -> Result<Self> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        Ok(Self::Beanstalkd {
            address: format!("127.0.0.1:{port}"),
            child: start_beanstalkd(port)?,
        })
    }

    /// The address of the server, in the form that a driver accepts.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Redis { url, .. } => url.clone(),
            Self::Beanstalkd { address, .. } => address.clone(),
        }
    }

    /// The name of the server, Redis or Valkey, and its version.
    pub(crate) async fn version(&mut self) -> Result<Option<String>> {
        let Some(info) = self.info("server").await? else {
            return Ok(None);
        };
        let versions = ["valkey", "redis"].map(|name| (name, format!("{name}_version:")));
        let found = |(name, field): &(_, String)| {
            let version = info
                .lines()
                .find_map(|line| line.strip_prefix(field.as_str()))?;
            Some(format!("{name} {}", version.trim_end()))
        };
        Ok(versions.iter().find_map(found))
    }

    /// Whether Redis is moving the table of a sorted set or hash to a larger one. Needs
    /// `enable-debug-command`.
    pub(crate) async fn is_rehashing(&mut self, key: &str) -> Result<bool> {
        let Self::Redis { connection, .. } = self else {
            return Ok(false);
        };
        let told: redis::RedisResult<String> = redis::cmd("DEBUG")
            .arg("HTSTATS-KEY")
            .arg(key)
            .query_async(connection)
            .await;
        match told {
            Ok(told) => Ok(told.contains("rehashing target")),
            // A small key has no table.
            Err(error)
                if error
                    .detail()
                    .is_some_and(|detail| detail.contains("not represented")) =>
            {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reads by this command until Redis has moved the table: each access moves a part of it. The
    /// reads are of absent members.
    pub(crate) async fn end_rehashing(&mut self, read: &str, key: &str) -> Result<()> {
        let absent: Vec<_> = (0..1_000)
            .map(|number| format!("absent {number}"))
            .collect();
        while self.is_rehashing(key).await? {
            let Self::Redis { connection, .. } = self else {
                return Ok(());
            };
            for _ in 0..100 {
                let _: redis::Value = redis::cmd(read)
                    .arg(key)
                    .arg(&absent)
                    .query_async(connection)
                    .await?;
            }
        }
        Ok(())
    }

    /// The server's CPU time so far, in microseconds; `None` if it is not a Redis.
    pub(crate) async fn cpu_us(&mut self) -> Result<Option<f64>> {
        let Some(info) = self.info("cpu").await? else {
            return Ok(None);
        };
        Ok(Some(
            (number(&info, "used_cpu_user")? + number(&info, "used_cpu_sys")?) * 1e6,
        ))
    }

    /// How many requests the server has read; `None` if it is not a Redis. A pipeline is one. The
    /// number of commands would include those of scripts.
    pub(crate) async fn requests(&mut self) -> Result<Option<f64>> {
        let info = self.info("stats").await?;
        info.map(|info| number(&info, "total_reads_processed"))
            .transpose()
    }

    /// The memory of the server's data. For Redis without the buffers of clients, which vary.
    pub(crate) async fn data_bytes(&mut self) -> Result<f64> {
        match self.info("memory").await? {
            Some(info) => Ok(number(&info, "used_memory")? - number(&info, "mem_clients_normal")?),
            None => match self {
                Self::Beanstalkd { child, .. } => Ok(status_bytes(child.id(), "VmRSS")? as f64),
                Self::Redis { .. } => bail!("INFO has no section memory"),
            },
        }
    }

    /// Removes all data, and keeps loaded scripts.
    pub(crate) async fn clear(&mut self) -> Result<()> {
        match self {
            Self::Redis { connection, .. } => {
                let () = redis::cmd("FLUSHDB").query_async(connection).await?;
            }
            Self::Beanstalkd { address, child } => {
                // Start a new process, so that it does not reuse memory of the old one.
                let port = address.rsplit_once(':').context("a port")?.1.parse()?;
                child.kill()?;
                child.wait()?;
                *child = start_beanstalkd(port)?;
            }
        }
        Ok(())
    }

    /// The slowest commands since the start: for each its time in microseconds, and its beginning.
    pub(crate) async fn slowest(&mut self, count: usize) -> Result<Vec<(u64, Vec<String>)>> {
        let Self::Redis { connection, .. } = self else {
            return Ok(Vec::new());
        };
        let mut get = redis::cmd("SLOWLOG");
        type Entry = (u64, u64, u64, Vec<Vec<u8>>, String, String);
        let entries: Vec<Entry> = get.arg("GET").arg(10_000).query_async(connection).await?;
        let shown = |words: Vec<Vec<u8>>| {
            words
                .iter()
                .take(2)
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect()
        };
        let mut slowest: Vec<_> = entries
            .into_iter()
            .map(|entry| (entry.2, shown(entry.3)))
            .collect();
        slowest.sort_by_key(|(us, _)| std::cmp::Reverse(*us));
        slowest.truncate(count);
        Ok(slowest)
    }

    /// Makes the server record the running times of scripts.
    pub(crate) async fn track_script_times(&mut self) -> Result<()> {
        if let Self::Redis { connection, .. } = self {
            let mut set = redis::cmd("CONFIG");
            set.arg("SET")
                .arg("latency-tracking-info-percentiles")
                .arg("50 99 99.9 99.99 100");
            set.arg("slowlog-log-slower-than")
                .arg(1_000)
                .arg("slowlog-max-len")
                .arg(10_000);
            let () = set.query_async(connection).await?;
        }
        Ok(())
    }

    /// Percentiles of the running times of scripts, in microseconds.
    pub(crate) async fn script_times(&mut self) -> Result<BTreeMap<String, f64>> {
        let info = self.info("latencystats").await?.unwrap_or_default();
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix("latency_percentiles_usec_evalsha:"));
        Ok(line.map(percentiles).unwrap_or_default())
    }

    pub(crate) async fn info(&mut self, section: &str) -> Result<Option<String>> {
        match self {
            Self::Redis { connection, .. } => Ok(Some(
                redis::cmd("INFO")
                    .arg(section)
                    .query_async(connection)
                    .await?,
            )),
            Self::Beanstalkd { .. } => Ok(None),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Self::Beanstalkd { child, .. } = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts beanstalkd, and waits until it answers.
fn start_beanstalkd(port: u16) -> Result<Child> {
    let fetched = root().join("target/peers/beanstalkd/usr/bin/beanstalkd");
    let program = if fetched.is_file() {
        fetched
    } else {
        PathBuf::from("beanstalkd")
    };
    let mut child = Command::new(&program)
        .args(["-l", "127.0.0.1", "-p", &port.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("{} cannot be started", program.display()))?;
    let start = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if start.elapsed() > Duration::from_secs(10) || child.try_wait()?.is_some() {
            let _ = child.kill();
            let _ = child.wait();
            bail!("{} does not answer", program.display());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(child)
}

async fn connect(url: &str) -> Result<MultiplexedConnection> {
    // Without a time limit, because slow commands come first: a busy server answers INFO late.
    let config =
        redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(120)));
    Ok(redis::Client::open(url)?
        .get_multiplexed_async_connection_with_config(&config)
        .await?)
}

/// Parses `p50=1.5,p99=3` into numbers by name.
fn percentiles(line: &str) -> BTreeMap<String, f64> {
    let pairs = line
        .trim()
        .split(',')
        .filter_map(|pair| pair.split_once('='));
    pairs
        .filter_map(|(name, us)| Some((name.to_owned(), us.parse().ok()?)))
        .collect()
}

/// Parses a numeric field of INFO.
pub(crate) fn number(info: &str, field: &str) -> Result<f64> {
    info.lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
        .and_then(|value| value.trim().parse().ok())
        .with_context(|| format!("INFO has no number {field}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_info() {
        let info =
            "# CPU\r\nused_cpu_sys:0.25\r\nused_cpu_user:1.5\r\nused_cpu_user_children:9\r\n";
        assert_eq!(number(info, "used_cpu_user").expect("a number"), 1.5);
        assert!(number(info, "used_cpu").is_err());
    }

    #[test]
    fn percentiles_are_read_from_info() {
        let found = percentiles("p50=12.5,p99.99=4000.000\r");
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            [("p50".to_owned(), 12.5), ("p99.99".to_owned(), 4_000.0)]
        );
    }
}
