//! Finds the Redis calls of a request by MONITOR, and their cost by INFO commandstats.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dueq_testkit::cluster;
use redis::aio::MultiplexedConnection;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;

use crate::peers::systems::root;

/// Commands that open a connection or load a script: they are made once per process, not per
/// request.
const OF_CONNECTIONS: [&str; 6] = ["hello", "auth", "client", "select", "script", "echo"];
/// The verb by which the poller reads the counts of a queue.
const ASKED: &str = "stats";

/// A call, as MONITOR shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    /// The command, in lower case.
    command: String,
    /// The first argument: the SHA-1 of a script, or the name of a function.
    first: String,
}

/// Watches all calls of a server.
pub(super) struct Monitor {
    lines: Lines<BufReader<TcpStream>>,
    control: MultiplexedConnection,
    marks: u64,
    marked: Instant,
    /// The SHA-1 of the script that the poller calls.
    asked: String,
}

/// The number of calls of one request.
#[derive(Debug, Default, Clone)]
pub(super) struct Calls {
    /// The calls without those that the poller makes, too.
    pub(super) own: usize,
    /// All calls, including those.
    pub(super) all: usize,
    pub(super) time: Duration,
}

/// The most calls per second of the poller.
const POLLED_PER_S: f64 = 105.0;

impl Calls {
    /// The calls that remain after subtracting the most that the poller can have made.
    pub(super) fn unexplained(&self) -> usize {
        let polled = 1.0 + self.time.as_secs_f64() * POLLED_PER_S;
        self.all.saturating_sub(polled as usize)
    }
}

impl Monitor {
    pub(super) async fn start(port: u16) -> Result<Self> {
        let mut control = cluster::connection(port).await?;
        let file = root().join("lua/dist").join(ASKED).with_extension("lua");
        let script = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(script);
        let asked = load.query_async(&mut control).await?;
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"MONITOR\r\n").await?;
        let mut lines = BufReader::new(stream).lines();
        let reply = lines.next_line().await?;
        anyhow::ensure!(reply.as_deref() == Some("+OK"), "MONITOR: {reply:?}");
        Ok(Self {
            lines,
            control,
            marks: 0,
            marked: Instant::now(),
            asked,
        })
    }

    /// The calls of the server since the last mark.
    pub(super) async fn calls(&mut self) -> Result<Calls> {
        self.marks += 1;
        let mark = format!("mark {}", self.marks);
        let mut echo = redis::cmd("ECHO");
        let _: String = echo.arg(&mark).query_async(&mut self.control).await?;
        let mut calls = Calls::default();
        loop {
            let line = self.lines.next_line().await?;
            let line = line.context("the server ended MONITOR")?;
            let Some(call) = call(&line)? else {
                continue; // a script made the call
            };
            if call.command == "echo" && call.first == mark {
                let before = std::mem::replace(&mut self.marked, Instant::now());
                calls.time = before.elapsed();
                return Ok(calls);
            }
            if OF_CONNECTIONS.contains(&&*call.command) {
                continue;
            }
            calls.all += 1;
            calls.own += usize::from(!call.is_polling(&self.asked));
        }
    }
}

impl Call {
    fn is_polling(&self, asked: &str) -> bool {
        let name = format!("dueq_{ASKED}");
        self.command == "scan" || self.first == asked || self.first == name
    }
}

/// Parses a line of MONITOR: `+TIME [DATABASE ADDRESS] "NAME" "ARGUMENT" ...`. `None` if a script
/// made the call.
fn call(line: &str) -> Result<Option<Call>> {
    let Some((head, rest)) = line.split_once("] ") else {
        bail!("no line of MONITOR: {line}");
    };
    if head.ends_with(" lua") {
        return Ok(None);
    }
    let mut words = rest.split('"').skip(1).step_by(2);
    let command = words.next().context("no command")?.to_ascii_lowercase();
    let first = words.next().unwrap_or_default().to_owned();
    Ok(Some(Call { command, first }))
}

/// For each command: the number of calls that the server has executed, and their microseconds.
#[derive(Debug, Default, Clone)]
pub(super) struct Usage(BTreeMap<String, (u64, u64)>);

impl Usage {
    pub(super) async fn read(connection: &mut MultiplexedConnection) -> Result<Self> {
        let mut info = redis::cmd("INFO");
        let stats: String = info.arg("commandstats").query_async(connection).await?;
        Self::parse(&stats)
    }

    fn parse(stats: &str) -> Result<Self> {
        let mut all = BTreeMap::new();
        for line in stats.lines() {
            let Some(rest) = line.strip_prefix("cmdstat_") else {
                continue;
            };
            let (name, figures) = rest.split_once(':').context("no figures")?;
            let figure = |wanted: &str| {
                let figure = figures
                    .split(',')
                    .find_map(|figure| figure.strip_prefix(wanted));
                figure
                    .with_context(|| line.to_owned())?
                    .parse::<u64>()
                    .context("a number")
            };
            all.insert(name.to_owned(), (figure("calls=")?, figure("usec=")?));
        }
        Ok(Self(all))
    }

    /// The microseconds of scripts and functions since `before`, and their number. The time of a
    /// script includes the commands that it calls.
    pub(super) fn of_scripts_since(&self, before: &Self) -> (u64, u64) {
        let names = ["evalsha", "evalsha_ro", "eval", "fcall", "fcall_ro"];
        let figures = |usage: &Self, name| usage.0.get(name).copied().unwrap_or_default();
        names.iter().fold((0, 0), |(calls, us), name| {
            let (now, then) = (figures(self, *name), figures(before, *name));
            (calls + now.0 - then.0, us + now.1 - then.1)
        })
    }
}

/// The longest call since the last reset, in microseconds, by the slowlog, whose threshold must be
/// 0.
pub(super) async fn longest_us(connection: &mut MultiplexedConnection) -> Result<u64> {
    let mut slowlog = redis::cmd("SLOWLOG");
    let entries: Vec<redis::Value> = slowlog.arg("GET").arg(-1).query_async(connection).await?;
    let mut longest = 0;
    for entry in entries {
        let redis::Value::Array(parts) = entry else {
            bail!("no entry of the slowlog: {entry:?}");
        };
        let Some(redis::Value::Int(us)) = parts.get(2) else {
            bail!("no time in the slowlog: {parts:?}");
        };
        longest = longest.max(u64::try_from(*us)?);
    }
    redis::cmd("SLOWLOG")
        .arg("RESET")
        .exec_async(connection)
        .await?;
    Ok(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_scripts_and_of_the_poller_are_told_apart() {
        let line = |text: &str| call(text).expect("a line");
        let evalsha =
            line(r#"+1.5 [0 127.0.0.1:6] "EVALSHA" "ab12" "10" "a \"b\"""#).expect("a call");
        assert_eq!((&*evalsha.command, &*evalsha.first), ("evalsha", "ab12"));
        assert!(evalsha.is_polling("ab12") && !evalsha.is_polling("cd"));
        assert_eq!(line(r#"+1.5 [0 lua] "hget" "x""#), None);
        let scan = line(r#"+1.5 [0 [::1]:6] "scan" "0""#).expect("a call");
        assert!(scan.is_polling("cd"));
        assert!(call("+OK").is_err());
    }

    #[test]
    fn time_of_scripts_is_their_difference() {
        let parse = |text: &str| Usage::parse(text).expect("figures");
        let before =
            parse("# Commandstats\r\ncmdstat_evalsha:calls=1,usec=10,usec_per_call=10\r\n");
        let after = parse(
            "cmdstat_evalsha:calls=3,usec=40,x=1\r\ncmdstat_fcall:calls=1,usec=5\r\ncmdstat_hget:calls=9,usec=9\r\n",
        );
        assert_eq!(after.of_scripts_since(&before), (3, 35));
        assert!(Usage::parse("cmdstat_get:calls=1").is_err());
    }
}
