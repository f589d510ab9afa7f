//! A master, its replicas, and their Sentinels.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::{Port, Server, answers, command, folder, program};

/// The name of the Sentinel service.
pub const SERVICE: &str = "orders";
/// The silence of a server after which the Sentinels replace it, in ms.
const DOWN_AFTER_MS: u32 = 500;
const SENTINELS: usize = 3;
/// The time limit of any wait. It is long: a Sentinel that was not scheduled for two seconds does
/// nothing for thirty (TILT), and a failed failover delays the next one.
const LIMIT: Duration = Duration::from_secs(300);

/// A master and its replicas, which three Sentinels watch.
#[derive(Debug)]
pub struct Failover {
    sentinels: Vec<Sentinel>,
    /// The servers, in no particular order: any of them may be the master.
    pub servers: Vec<Server>,
}

#[derive(Debug)]
struct Sentinel {
    port: Port,
    folder: PathBuf,
    child: Child,
}

impl Failover {
    /// Starts a master with this many replicas, each with further arguments. Returns when the
    /// Sentinels know all of them.
    pub fn start(replicas: usize, arguments: &[&str]) -> Result<Self> {
        // A replica that joins need not wait for other replicas.
        let common = [&["--repl-diskless-sync-delay", "0"], arguments].concat();
        let mut servers = vec![Server::start(&common)?];
        let master = servers[0].port();
        for _ in 0..replicas {
            let port = master.to_string();
            servers.push(Server::start(
                &[&common[..], &["--replicaof", "127.0.0.1", &port]].concat(),
            )?);
        }
        let sentinels = (0..SENTINELS)
            .map(|_| Sentinel::start(master))
            .collect::<Result<_>>()?;
        let this = Self { sentinels, servers };
        this.wait("the Sentinels to know all", || this.knows_all())?;
        Ok(this)
    }

    /// The URL `redis+sentinel://...`.
    pub fn url(&self) -> String {
        let addresses: Vec<_> = self
            .sentinels
            .iter()
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port.number()))
            .collect();
        format!("redis+sentinel://{}/{SERVICE}", addresses.join(","))
    }

    /// The index in `servers` of the master that all Sentinels name; `None` while they disagree.
    pub fn master(&self) -> Result<Option<usize>> {
        let mut ports = Vec::new();
        for sentinel in &self.sentinels {
            ports.push(sentinel.about("master", "port")?.parse::<u16>()?);
        }
        ports.dedup();
        Ok(self
            .servers
            .iter()
            .position(|server| ports == [server.port()]))
    }

    /// Replaces a master that is alive, as an operator can.
    pub fn change_master(&self) -> Result<()> {
        let reply = self.sentinels[0].say(&["SENTINEL", "FAILOVER", SERVICE])?;
        ensure!(reply.starts_with("+OK"), "{reply}");
        Ok(())
    }

    /// Sets the silence in milliseconds after which the Sentinels replace a master; 500 by default.
    pub fn act_after(&self, silence_ms: u32) -> Result<()> {
        let silence_ms = silence_ms.to_string();
        for sentinel in &self.sentinels {
            sentinel.say(&[
                "SENTINEL",
                "SET",
                SERVICE,
                "down-after-milliseconds",
                &silence_ms,
            ])?;
        }
        Ok(())
    }

    /// How often a Sentinel has entered TILT because the machine was busy.
    pub fn tilts(&self) -> Result<usize> {
        let mut count = 0;
        for sentinel in &self.sentinels {
            count += fs::read_to_string(sentinel.folder.join("log"))?
                .matches("+tilt")
                .count();
        }
        Ok(count)
    }

    /// Whether each replica is in step with the master, and each Sentinel sees the others and all
    /// replicas.
    pub fn knows_all(&self) -> Result<bool> {
        let Some(master) = self.master()? else {
            return Ok(false);
        };
        let replicas = self.servers.len() - 1;
        let info = self.servers[master].command(&["INFO", "replication"])?;
        if info.matches("state=online").count() != replicas {
            return Ok(false);
        }
        for sentinel in &self.sentinels {
            let knows = [
                ("num-slaves", replicas),
                ("num-other-sentinels", SENTINELS - 1),
            ];
            for (field, count) in knows {
                if sentinel.about("master", field)?.parse::<usize>()? != count {
                    return Ok(false);
                }
            }
            let all = sentinel.say(&["SENTINEL", "REPLICAS", SERVICE])?;
            let count = |state| all.matches(state).count();
            let good = count("flags\r\n$5\r\nslave\r") == replicas
                && count("master-link-status\r\n$2\r\nok\r") == replicas;
            if !good || sentinel.about("master", "flags")? != "master" {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Polls until `look` returns true.
    pub fn wait(&self, what: &str, look: impl Fn() -> Result<bool>) -> Result<()> {
        let (start, tilts, mut lenient) = (Instant::now(), self.tilts()?, false);
        while !look()? {
            if !lenient && (self.tilts()? > tilts || start.elapsed() > LIMIT / 6) {
                // A Sentinel does not promote a replica that lost its master more than ten times
                // this interval ago; a TILT or a busy machine could take longer.
                self.act_after(5_000)?;
                lenient = true;
            }
            ensure!(start.elapsed() < LIMIT, "waited in vain for {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Sentinel {
    fn start(master: u16) -> Result<Self> {
        let program = program()?;
        for _ in 0..20 {
            let port = Port::reserve()?;
            let folder = folder(port.number())?;
            let settings = format!(
                "port {}\nbind 127.0.0.1\ndir {}\nlogfile log\nsentinel monitor {SERVICE} 127.0.0.1 {master} 2\n\
                 sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}\nsentinel failover-timeout {SERVICE} 5000\n\
                 sentinel parallel-syncs {SERVICE} 8\n",
                port.number(),
                folder.display()
            );
            fs::write(folder.join("sentinel.conf"), settings)?;
            let mut child = Command::new(&program)
                .args(["sentinel.conf", "--sentinel"])
                .current_dir(&folder)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .with_context(|| format!("cannot run {}", program.display()))?;
            if answers(port.number(), &mut child)? {
                return Ok(Self {
                    port,
                    folder,
                    child,
                });
            }
            let _ = child.wait();
            let _ = fs::remove_dir_all(&folder);
        }
        bail!("no free port for a Sentinel")
    }

    /// The value of one field in a Sentinel's record.
    fn about(&self, what: &str, field: &str) -> Result<String> {
        let all = self.say(&["SENTINEL", what, SERVICE])?;
        let mut lines = all.lines();
        lines
            .find(|line| *line == field)
            .with_context(|| format!("no {field} in {all}"))?;
        Ok(lines
            .nth(1)
            .with_context(|| format!("no value of {field}"))?
            .to_owned())
    }

    fn say(&self, words: &[&str]) -> Result<String> {
        crate::whole(self.port.number(), words)
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Whether a server on this machine reports the role master.
pub fn is_master(port: u16) -> Result<bool> {
    Ok(command(port, &["INFO", "replication"])?.contains("role:master"))
}
