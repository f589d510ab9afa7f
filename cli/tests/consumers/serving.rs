//! Redis, two instances of `dueq serve`, and nginx in front of them.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use dueq_testkit::{Port, Server, installed};

const DUEQ: &str = env!("CARGO_BIN_EXE_dueq");
const LIMIT: Duration = Duration::from_secs(600);

/// A pseudorandom generator (xorshift): a seed repeats its numbers.
pub(crate) struct Random {
    seed: u64,
    state: u64,
}

impl Random {
    /// Seeded by `DUEQ_CONSUMERS_SEED`, or else by the time.
    pub(crate) fn new() -> Self {
        let given = std::env::var("DUEQ_CONSUMERS_SEED").ok();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(1, |since| u64::from(since.subsec_nanos()));
        let seed = given
            .and_then(|text| text.parse().ok())
            .unwrap_or(now)
            .max(1);
        Self { seed, state: seed }
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        for shift in [13, -7, 17] {
            self.state ^= match shift {
                1.. => self.state << shift,
                _ => self.state >> -shift,
            };
        }
        self.state % end
    }
}

/// All servers of the test, killed on drop.
pub(crate) struct Serving {
    instances: Vec<(Child, Command)>,
    nginx: Option<Child>,
    /// The number of killed instances.
    pub(crate) kills: u64,
    redis: Server,
    folder: PathBuf,
    url: String,
    token: String,
    _ports: Vec<Port>,
}

impl Serving {
    pub(crate) fn start() -> Result<Self> {
        let redis = Server::start(&[])?;
        let name = format!("dueq-test-consumers-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder)?;
        let ports: Vec<_> = (0..3).map(|_| Port::reserve()).collect::<Result<_>>()?;
        let ports_of = |number: usize| ports[number].number();
        let nginx = installed("nginx");
        // Without nginx the scripts use one instance directly.
        let front = ports_of(usize::from(nginx.is_none()));
        let url = format!("http://127.0.0.1:{front}");
        let token = token(&folder)?;
        let mut instances = Vec::new();
        for number in 1..=2 {
            let mut command = Command::new(DUEQ);
            command
                .args([
                    "serve",
                    "--listen",
                    &format!("127.0.0.1:{}", ports_of(number)),
                ])
                .args(["--public-url", &url])
                .arg("--tokens")
                .arg(folder.join("tokens.toml"))
                .arg("--audit-log")
                .arg(folder.join(format!("audit-{number}.ndjson")))
                .env("REDIS_URL", redis.url())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log(&folder, &format!("serve-{number}.err"))?);
            instances.push((command.spawn()?, command));
        }
        let mut serving = Self {
            instances,
            nginx: None,
            kills: 0,
            redis,
            folder,
            url,
            token,
            _ports: Vec::new(),
        };
        for number in 1..=2 {
            reached(ports_of(number), &mut serving.instances[number - 1].0)?;
        }
        if let Some(program) = nginx {
            let mut config =
                include_str!("nginx.conf").replace("FOLDER", &serving.folder.to_string_lossy());
            for number in 0..3 {
                config = config.replace(&format!("PORT_{number}"), &ports_of(number).to_string());
            }
            let path = serving.folder.join("nginx.conf");
            fs::write(&path, config)?;
            let mut child = Command::new(program)
                .arg("-c")
                .arg(path)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log(&serving.folder, "nginx.err")?)
                .spawn()?;
            let result = reached(ports_of(0), &mut child);
            serving.nginx = Some(child);
            result.with_context(|| format!("nginx: see {}", serving.folder.display()))?;
        }
        serving._ports = ports;
        Ok(serving)
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn kill_one(&mut self, random: &mut Random) -> Result<()> {
        let (child, _) = &mut self.instances[random.below(2) as usize];
        if child.try_wait()?.is_none() {
            child.kill()?;
            child.wait()?;
            self.kills += 1;
        }
        Ok(())
    }

    pub(crate) fn restart_ended(&mut self) -> Result<()> {
        for (child, command) in &mut self.instances {
            if child.try_wait()?.is_some() {
                *child = command.spawn()?;
            }
        }
        Ok(())
    }

    /// Whether the queue holds no message.
    pub(crate) fn holds_nothing(&self) -> Result<bool> {
        // The hash of payloads always has a placeholder.
        let held = self.redis.command(&["HLEN", "dueq:{jobs}:messages"])?;
        Ok(held == ":1\r\n")
    }

    /// Removes the logs, after the test has passed.
    pub(crate) fn remove(self) {
        let folder = self.folder.clone();
        drop(self);
        let _ = fs::remove_dir_all(folder);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let instances = self.instances.iter_mut().map(|(child, _)| child);
        for child in instances.chain(&mut self.nginx) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Creates a token with the roles producer and consumer.
fn token(folder: &Path) -> Result<String> {
    let output = Command::new(DUEQ)
        .args([
            "serve", "token", "jobs", "--role", "producer", "--role", "consumer",
        ])
        .arg("--tokens")
        .arg(folder.join("tokens.toml"))
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn log(folder: &Path, name: &str) -> Result<fs::File> {
    let options = fs::OpenOptions::new().create(true).append(true).to_owned();
    Ok(options.open(folder.join(name))?)
}

/// Waits until the server listens on this port.
fn reached(port: u16, child: &mut Child) -> Result<()> {
    let end = Instant::now() + LIMIT;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if let Some(status) = child.try_wait()? {
            bail!("the server on port {port} has ended: {status}");
        }
        ensure!(Instant::now() < end, "nobody listens on port {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
