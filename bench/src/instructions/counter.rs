//! A private server that runs under callgrind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dueq_testkit::Server;

/// Options that keep the server's own work small: one background task each second, no other thread.
const QUIET: [&str; 12] = [
    "--hz",
    "1",
    "--dynamic-hz",
    "no",
    "--io-threads",
    "1",
    "--activerehashing",
    "no",
    "--jemalloc-bg-thread",
    "no",
    "--maxmemory-policy",
    "noeviction",
];
const CLUSTER: [&str; 2] = ["--cluster-enabled", "yes"];
/// How long the server idles while the instructions of its own work are counted.
const IDLE: Duration = Duration::from_secs(8);
const LIMIT: Duration = Duration::from_secs(120);

pub(crate) struct Counter {
    server: Server,
    /// The script that starts the server under callgrind.
    wrapper: PathBuf,
    dumps: usize,
    since: Instant,
    /// The instructions per second of the idle server.
    idle: f64,
}

/// The version of valgrind.
pub(crate) fn version() -> Result<String> {
    let found = Command::new("valgrind").arg("--version").output();
    let text = found
        .context("valgrind is needed (apt-get install valgrind)")?
        .stdout;
    Ok(String::from_utf8_lossy(&text)
        .trim()
        .trim_start_matches("valgrind-")
        .to_owned())
}

impl Counter {
    /// With `is_cluster`, the server is the only master of a cluster.
    pub(crate) fn start(is_cluster: bool) -> Result<Self> {
        version()?;
        let program = dueq_testkit::program()?;
        let wrapper = std::env::temp_dir().join(format!(
            "dueq-callgrind-{}-{:?}",
            std::process::id(),
            Instant::now()
        ));
        // With `exec` the wrapper's process becomes the server, and writes its dumps to the
        // server's folder.
        let quoted = program.display().to_string().replace('\'', r"'\''");
        let line = format!(
            "#!/bin/sh\nexec valgrind --tool=callgrind --trace-children=yes --callgrind-out-file=count '{quoted}' \"$@\"\n"
        );
        fs::write(&wrapper, line)?;
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o700))?;
        let cluster: &[&str] = if is_cluster { &CLUSTER } else { &[] };
        let started = Server::start_on(&wrapper, &[&QUIET, cluster].concat(), &[]);
        let server = started.inspect_err(|_| drop(fs::remove_file(&wrapper)))?;
        if is_cluster {
            serve_all_slots(&server)?;
        }
        Ok(Self {
            server,
            wrapper,
            dumps: 0,
            since: Instant::now(),
            idle: 0.0,
        })
    }

    /// Counts the server's own work with its present data. From now on `count` subtracts that.
    pub(crate) fn idle(&mut self) -> Result<()> {
        self.take()?;
        std::thread::sleep(IDLE);
        let (instructions, time) = self.take()?;
        self.idle = instructions as f64 / time.as_secs_f64();
        Ok(())
    }

    pub(crate) fn connection(&self) -> Result<redis::Connection> {
        let connection = redis::Client::open(self.server.url())?.get_connection()?;
        connection.set_read_timeout(Some(LIMIT))?;
        Ok(connection)
    }

    /// The instructions since the last count, without those that the idle server executes in that
    /// time.
    pub(crate) fn count(&mut self) -> Result<u64> {
        let (instructions, time) = self.take()?;
        Ok(instructions.saturating_sub((self.idle * time.as_secs_f64()) as u64))
    }

    fn take(&mut self) -> Result<(u64, Duration)> {
        let pid = self.server.pid().to_string();
        let dumped = Command::new("vgdb")
            .args([&format!("--pid={pid}"), "--wait=10", "dump"])
            .output();
        let dumped = dumped.context("vgdb, a part of valgrind, cannot be run")?;
        ensure!(
            dumped.status.success(),
            "vgdb: {}",
            String::from_utf8_lossy(&dumped.stderr)
        );
        let time = self.since.elapsed();
        self.since = Instant::now();
        self.dumps += 1;
        let file = self.server.folder().join(format!("count.{}", self.dumps));
        let text = fs::read_to_string(&file)
            .with_context(|| format!("callgrind wrote no {}", file.display()))?;
        fs::remove_file(file)?;
        Ok((total(&text).context("callgrind wrote no total")?, time))
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.wrapper);
    }
}

fn serve_all_slots(server: &Server) -> Result<()> {
    server.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"])?;
    let begun = Instant::now();
    while !server
        .command(&["CLUSTER", "INFO"])?
        .contains("cluster_state:ok")
    {
        ensure!(begun.elapsed() < LIMIT, "the server serves no slots");
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn total(dump: &str) -> Option<u64> {
    dump.lines()
        .rev()
        .find_map(|line| line.strip_prefix("totals: "))?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn total_is_read_from_a_callgrind_dump() {
        assert_eq!(
            super::total("events: Ir\n\nfn=(1)\n0 12\n\ntotals: 742854\n"),
            Some(742_854)
        );
        assert_eq!(super::total("events: Ir\n"), None);
    }
}
