//! A server of a run, which the harness reads past the proxies.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, ensure};
use dueq_testkit::{Server, cluster};
use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use rustix::process::{Pid, Signal};

use super::process;

pub struct Live {
    /// The name of the server's log file.
    pub name: String,
    pub port: u16,
    server: Arc<Mutex<Server>>,
}

impl Live {
    pub fn new(name: String, server: Server) -> Self {
        let port = server.port();
        let server = Arc::new(Mutex::new(server));
        Self { name, port, server }
    }

    pub(crate) fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn pid(&self) -> Result<Pid> {
        let pid = i32::try_from(self.server().pid())?;
        Pid::from_raw(pid).context("no process")
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        process::signal(self.pid()?, signal)
    }

    /// How the server ended, if the harness did not end it.
    pub fn ended(&self) -> Result<Option<String>> {
        Ok(self.server().ended()?.map(|status| status.to_string()))
    }

    /// Kills the server by SIGKILL.
    pub fn kill(&self) -> Result<()> {
        self.server().kill()
    }

    /// Starts the server again; returns once it has loaded its file and answers.
    pub async fn restart(&self) -> Result<()> {
        let server = Arc::clone(&self.server);
        let restart = move || {
            let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
            server.restart()
        };
        tokio::task::spawn_blocking(restart).await?
    }

    pub async fn connection(&self) -> Result<MultiplexedConnection> {
        cluster::connection(self.port).await
    }

    /// Sends one command on a new connection.
    pub async fn command<T: FromRedisValue>(&self, words: &[&str]) -> Result<T> {
        cluster::command(self.port, words).await
    }

    /// A field of INFO; 0 if it is absent.
    pub async fn info(&self, section: &str, field: &str) -> Result<String> {
        let info: String = self.command(&["INFO", section]).await?;
        let value = info
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        Ok(value.unwrap_or("0").trim().to_owned())
    }

    /// The number of errors with this code that the server has returned since its start.
    pub async fn errors(&self, code: &str) -> Result<u64> {
        let value = self
            .info("errorstats", &format!("errorstat_{code}"))
            .await?;
        Ok(value.trim_start_matches("count=").parse()?)
    }

    /// Copies the server's log, because its folder will be removed.
    pub fn keep_log(&self, folder: &Path) -> Result<()> {
        let log = self.server().folder().join("log");
        let kept = folder.join(&self.name).with_extension("log");
        ensure!(std::fs::copy(log, kept)? > 0, "the server wrote no log");
        Ok(())
    }
}
