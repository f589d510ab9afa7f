//! Private Redis-compatible servers for tests. Each has a free port and its own folder, and is
//! killed on drop.
//!
//! `DUEQ_TEST_SERVERS` names the server program. By default the testkit uses the one on `PATH`, or
//! the one that `scripts/server` installed into `target/server`. A test runs on one server; `make
//! test` and `make proof NAME=matrix` repeat the tests on several.
//!
//! The testkit also builds examples for tests ([`example`]), fuzzes a check with a corpus
//! ([`fuzz`]), and loses replies in a proxy ([`Proxy`]).

pub mod cluster;
mod examples;
mod fuzz;
mod loading;
mod port;
pub mod process;
mod proxy;
pub mod report;
pub mod scripts;
mod sentinel;
mod stopwatch;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

pub use examples::{example, installed};
pub use fuzz::{corpus, fuzz};
pub use port::Port;
pub use proxy::Proxy;
pub use sentinel::{Failover, SERVICE, is_master};
pub use stopwatch::Stopwatch;

/// The time limit of a server's reply, far longer than a working server needs.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A running server. Drop kills it and removes its folder.
#[derive(Debug)]
pub struct Server {
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    port: Port,
    folder: PathBuf,
    child: Child,
}

impl Server {
    /// Starts a server without persistence and with further arguments, such as `["--maxmemory",
    /// "10mb"]`.
    pub fn start(arguments: &[&str]) -> Result<Self> {
        Self::start_on(&program()?, arguments, &[])
    }

    /// Starts this server program, with further variables in its environment.
    pub fn start_on(
        program: &Path,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let program = program.to_owned();
        let arguments: Vec<String> = arguments
            .iter()
            .map(|argument| (*argument).to_owned())
            .collect();
        let environment: Vec<_> = environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        // Another program can take the port between our check and the server's bind: then try the
        // next port.
        let mut last = String::new();
        for _ in 0..20 {
            let port = Port::reserve()?;
            let folder = folder(port.number())?;
            let mut child = spawn(&program, port.number(), &folder, &arguments, &environment)?;
            if answers(port.number(), &mut child)? {
                return Ok(Self {
                    program,
                    arguments,
                    environment,
                    port,
                    folder,
                    child,
                });
            }
            let _ = child.wait();
            let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
            let _ = fs::remove_dir_all(&folder);
            if !log.contains("Address already in use") && !log.contains("bind") {
                bail!("{} did not start: {log}", program.display());
            }
            last = log;
        }
        bail!(
            "{} found 20 ports in use, the last time: {last}",
            program.display()
        )
    }

    /// The server's port at 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The URL `redis://127.0.0.1:PORT/`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port())
    }

    /// The process id of the server, for signals.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The server's folder, with its log and append-only file.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The exit status of the server, if it has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Kills the server at once, like `kill -9`.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Restarts the server on the same port and folder with further arguments, which override
    /// earlier ones.
    pub fn restart_with(&mut self, arguments: &[&str]) -> Result<()> {
        self.arguments
            .extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self.restart()
    }

    /// Restarts the server on the same port with the same arguments and folder.
    pub fn restart(&mut self) -> Result<()> {
        let _ = self.kill();
        self.child = spawn(
            &self.program,
            self.port(),
            &self.folder,
            &self.arguments,
            &self.environment,
        )?;
        if !answers(self.port.number(), &mut self.child)? {
            bail!("{} did not start again", self.program.display());
        }
        Ok(())
    }

    /// Sends one command on a new connection and returns the reply as raw protocol text.
    pub fn command(&self, words: &[&str]) -> Result<String> {
        command(self.port(), words)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The server program under test: `DUEQ_TEST_SERVERS`, otherwise the first one found.
pub fn program() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("DUEQ_TEST_SERVERS").filter(|named| !named.is_empty()) {
        return only(&named);
    }
    let on_path = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    let fetched = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/server/bin")];
    let mut places = Vec::new();
    for folders in [on_path, fetched] {
        for name in ["redis-server", "valkey-server"] {
            places.extend(folders.iter().map(|folder: &PathBuf| folder.join(name)));
        }
    }
    let found = places.into_iter().find(|program| program.is_file());
    found.ok_or_else(|| {
        anyhow!("no redis-server or valkey-server on PATH: `make test` finds or fetches one")
    })
}

/// Parses a value of `DUEQ_TEST_SERVERS`, which must name one server. A list is an error, because
/// the test would silently skip the others.
fn only(named: &OsStr) -> Result<PathBuf> {
    let mut servers = std::env::split_paths(named);
    match (servers.next(), servers.count()) {
        (Some(server), 0) => Ok(server),
        (_, more) => bail!(
            "DUEQ_TEST_SERVERS names {} servers, and a test runs on one: name one, or use `make test` or `make proof NAME=matrix`, \
             which run the tests on one after the other",
            more + 1
        ),
    }
}

/// Sends one command to a server on this machine and returns the reply as raw protocol text (its
/// first read).
pub fn command(port: u16, words: &[&str]) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(request.as_bytes())?;
    let mut reader = BufReader::new(stream);
    let mut reply = String::new();
    reader.read_line(&mut reply)?;
    if let Some(length) = reply
        .strip_prefix('$')
        .and_then(|length| length.trim().parse::<usize>().ok())
    {
        let mut bytes = vec![0; length];
        reader.read_exact(&mut bytes)?;
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    Ok(reply)
}

/// The complete reply to one command.
fn whole(port: u16, words: &[&str]) -> Result<String> {
    const END: &str = "+PONG\r\n";
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(format!("{}\r\nPING\r\n", words.join(" ")).as_bytes())?;
    let (mut reply, mut part) = (Vec::new(), [0; 4_096]);
    while !reply.ends_with(END.as_bytes()) {
        match stream.read(&mut part)? {
            0 => bail!("the server on port {port} closed the connection"),
            length => reply.extend_from_slice(&part[..length]),
        }
    }
    Ok(String::from_utf8_lossy(&reply)
        .trim_end_matches(END)
        .to_owned())
}

fn folder(port: u16) -> Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder =
        std::env::temp_dir().join(format!("dueq-test-{}-{port}-{count}", std::process::id()));
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

fn spawn(
    program: &Path,
    port: u16,
    folder: &Path,
    arguments: &[String],
    environment: &[(String, String)],
) -> Result<Child> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.join("log"))?;
    Command::new(program)
        .args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ])
        .args(arguments)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot run {}", program.display()))
}

/// Waits until this server answers; `false` if it has ended. If another process took the port
/// first, the answer would be that of its server, so the process is checked. A server with a
/// password cannot be asked.
fn answers(port: u16, child: &mut Child) -> Result<bool> {
    let (start, itself) = (Instant::now(), format!("process_id:{}\r\n", child.id()));
    let is_up = || match command(port, &["PING"])? {
        reply if reply.starts_with("+PONG") => {
            Ok(command(port, &["INFO", "server"])?.contains(&itself))
        }
        reply => Ok::<_, anyhow::Error>(reply.starts_with("-NOAUTH")),
    };
    while start.elapsed() < START_LIMIT {
        if child.try_wait()?.is_some() {
            return Ok(false);
        }
        if is_up().unwrap_or(false) {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    bail!("the server on port {port} does not answer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_test_servers_is_refused() {
        assert_eq!(
            only(OsStr::new("/usr/bin/redis-server")).expect("one"),
            Path::new("/usr/bin/redis-server")
        );
        let refused = only(OsStr::new("/a:/b:/c")).expect_err("three");
        assert!(
            refused
                .to_string()
                .starts_with("DUEQ_TEST_SERVERS names 3 servers"),
            "{refused}"
        );
    }

    #[test]
    fn server_whose_port_was_taken_is_not_taken_for_another() -> Result<()> {
        let first = Server::start(&[])?;
        let folder = folder(first.port())?;
        let mut second = spawn(&first.program, first.port(), &folder, &[], &[])?;
        assert!(!answers(first.port(), &mut second)?);
        Ok(fs::remove_dir_all(&folder)?)
    }
}
