//! `dueq dev`: a private server for experiments.

use std::fs::{self, File, TryLockError};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use dueq::{Client, ErrorKind};
use rustix::process::Pid;
use tokio::process::{Child, Command};

use crate::group::{self, Guard};
use crate::signals::EndSignals;
use crate::{Common, output};

const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];
/// How long the server may take to write its data at the end.
const SHUTDOWN: Duration = Duration::from_secs(30);
const INSTALL: &str = "\
no redis-server or valkey-server on PATH. Install one (Redis 7.0, Valkey 7.2 or newer):
  Debian, Ubuntu   sudo apt install redis-server      (or valkey-server)
  Fedora           sudo dnf install valkey
  macOS            brew install redis                 (or valkey)
or run one in a container, which needs no `dueq dev`:
  docker run --rm -p 127.0.0.1:6379:6379 valkey/valkey:8 --appendonly yes";

#[derive(Args)]
#[command(after_help = "\
Runs the redis-server or valkey-server of this machine, for experiments. The server listens on
127.0.0.1 only, has no password and never evicts a key. It writes each change to an append-only
file, which reaches the disk once a second; the next `dueq dev` continues with this data.

Examples:
  dueq dev
  dueq dev --port 7000 --dir /tmp/orders    then: export REDIS_URL=redis://127.0.0.1:7000/")]
pub(crate) struct Dev {
    /// The port on 127.0.0.1; 0 chooses a free one
    #[arg(long, default_value_t = 6379)]
    port: u16,
    /// The folder of the data [default: $XDG_DATA_HOME/dueq, else ~/.local/share/dueq]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

impl Dev {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<()> {
        let program = on_path().ok_or(output::Advice(INSTALL))?;
        let dir = match self.dir {
            Some(dir) => dir,
            None => data_folder()
                .context("neither XDG_DATA_HOME nor HOME is set: name a folder by --dir")?,
        };
        // Only this user may read the data.
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir);
        made.map_err(|error| anyhow!("cannot make {}: {error}", dir.display()))?;
        let dir = dir.canonicalize()?;
        // Two servers would damage the append-only file. The server process holds the lock too,
        // because it may outlive this process.
        let lock = lock(&dir)?;
        let port = free(self.port)?;
        let url = if port == 6379 {
            "redis://127.0.0.1/".to_owned()
        } else {
            format!("redis://127.0.0.1:{port}/")
        };

        let mut signals = EndSignals::listen()?;
        let guard = Guard::start()?;
        let mut child = spawn(&program, port, &dir, lock.try_clone()?)?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(group) = group {
            guard.add(group);
        }
        let serve = async {
            tokio::select! {
                status = child.wait() => return Err(ended(&dir, &status?.to_string())),
                ready = ready(&url) => ready?,
            }
            welcome(common, &url, &dir)?;
            Err(ended(&dir, &child.wait().await?.to_string()))
        };
        let outcome = tokio::select! {
            outcome = serve => outcome,
            () = signals.recv() => Ok(()),
        };
        if let Some(group) = group {
            let _ = tokio::join!(child.wait(), group::end(group, SHUTDOWN));
            guard.remove(group);
        }
        outcome
    }
}

fn on_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let candidates =
        |name| std::env::split_paths(&path).map(move |folder: PathBuf| folder.join(name));
    PROGRAMS
        .iter()
        .flat_map(candidates)
        .find(|program| program.is_file())
}

fn data_folder() -> Option<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    set("XDG_DATA_HOME")
        .or_else(|| Some(set("HOME")?.join(".local/share")))
        .map(|folder| folder.join("dueq"))
}

fn lock(dir: &Path) -> anyhow::Result<File> {
    let lock = File::create(dir.join("lock"))
        .map_err(|error| anyhow!("cannot write in {}: {error}", dir.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            bail!(
                "another `dueq dev` uses {}: use that server, or name another folder by --dir",
                dir.display()
            )
        }
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Returns the port if it is free. If it is in use, another program's server might answer there.
fn free(port: u16) -> anyhow::Result<u16> {
    match TcpListener::bind(("127.0.0.1", port)) {
        Ok(listener) => Ok(listener.local_addr()?.port()),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => bail!(
            "another program listens on 127.0.0.1:{port}: if it is a Redis, use it by --redis redis://127.0.0.1:{port}/; else choose another --port"
        ),
        Err(error) => bail!("cannot listen on 127.0.0.1:{port}: {error}"),
    }
}

fn spawn(program: &Path, port: u16, dir: &Path, lock: File) -> anyhow::Result<Child> {
    let log = File::create(dir.join("log"))?;
    Command::new(program)
        .args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--daemonize",
            "no",
        ])
        .args([
            "--appendonly",
            "yes",
            "--appendfsync",
            "everysec",
            "--save",
            "",
            "--maxmemory-policy",
            "noeviction",
        ])
        // The server writes its data into its working directory.
        .current_dir(dir)
        .stdin(lock)
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .spawn()
        .map_err(|error| anyhow!("cannot run {}: {error}", program.display()))
}

/// Waits until the server answers. Loading a large append-only file takes long.
async fn ready(url: &str) -> anyhow::Result<()> {
    loop {
        match Client::connect(url).await {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn ended(dir: &Path, status: &str) -> anyhow::Error {
    let log = fs::read(dir.join("log")).unwrap_or_default();
    let log = String::from_utf8_lossy(&log).into_owned();
    let last = log
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or("(empty)");
    let last = output::visible(last.as_bytes());
    anyhow!(
        "the server ended ({status}); the last line of {} is: {last}",
        dir.join("log").display()
    )
}

fn welcome(common: &Common, url: &str, dir: &Path) -> io::Result<()> {
    if common.json {
        return output::json_line(&serde_json::json!({ "url": url, "dir": dir }));
    }
    let export = if common.url() == url {
        String::new()
    } else {
        format!("  export REDIS_URL={url}    # in both\n")
    };
    output::line(&format!(
        "A server is at {url}, its data in {}\n\n\
         Try, each in a terminal of its own:\n{export}  \
         dueq work orders --print\n  \
         dueq push orders 'rate order 42' --delay 3s\n\n\
         Ctrl-C stops it; the messages stay for the next time.",
        output::visible(dir.as_os_str().as_encoded_bytes())
    ))
}
