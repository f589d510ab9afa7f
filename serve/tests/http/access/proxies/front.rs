//! A proxy in front of a server, configured by the guide's example files; the client is curl.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use dueq_serve::Config;
use dueq_testkit::{Port, installed};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::instance::{Answer, Instance};

const GUIDE: &str = include_str!("../../../../../docs/guide/http/proxy.md");
/// The public host in the guide's examples.
const HOST: &str = "queues.example.com";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    Nginx,
    Caddy,
}

/// A running proxy process, which is stopped on drop.
pub(super) struct Front {
    _process: Child,
    port: Port,
    /// The path of the public URL.
    path: String,
}

impl Program {
    /// The path of the proxy's program; `None` if it is not installed.
    fn find(self) -> Option<PathBuf> {
        installed(match self {
            Self::Nginx => "nginx",
            Self::Caddy => "caddy",
        })
    }
}

/// The code blocks of the guide in this language.
fn of_guide(language: &str) -> Result<Vec<&'static str>> {
    let begin = format!("```{language}\n");
    let parts = GUIDE.split(&begin).skip(1);
    parts
        .map(|part| part.split("```").next().context("an end"))
        .collect()
}

/// The values that the test puts into the guide's example files.
struct Site {
    /// The address of `dueq serve`.
    server: String,
    /// The port of the proxy.
    port: u16,
    cert: PathBuf,
    key: PathBuf,
    folder: PathBuf,
}

impl Site {
    /// Writes the guide's configuration of nginx, with or without passwords.
    fn nginx(&self, has_users: bool) -> Result<PathBuf> {
        let parts = of_guide("nginx")?;
        let [site, users] = parts[..] else {
            anyhow::bail!("the guide has {} parts for nginx", parts.len());
        };
        let listen = format!("listen 127.0.0.1:{} ", self.port);
        let mut site = site.to_owned();
        for (old, new) in [
            ("127.0.0.1:8377", &*self.server),
            ("listen 443 ", &*listen),
            ("/etc/ssl/queues.crt", &*shown(&self.cert)),
            ("/etc/ssl/queues.key", &*shown(&self.key)),
        ] {
            site = replaced(&site, old, new)?;
        }
        if has_users {
            let file = self.folder.join("users");
            std::fs::write(&file, "ann:{PLAIN}secret\n")?;
            let users = replaced(users, "/etc/nginx/dueq.users", &shown(&file))?;
            let location = "    location / {\n";
            site = replaced(&site, location, &format!("{location}{users}"))?;
        }
        let folder = shown(&self.folder);
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|of| format!("{of}_temp_path {folder}/{of};\n"))
            .concat();
        let all = format!(
            "user root; pid {folder}/pid; error_log {folder}/error.log; daemon off;\nevents {{}}\n\
             http {{\naccess_log off;\n{temporary}{site}\n}}\n"
        );
        self.write("nginx.conf", &all)
    }

    /// Writes the guide's configuration of Caddy.
    fn caddy(&self) -> Result<PathBuf> {
        let parts = of_guide("caddyfile")?;
        let [site] = parts[..] else {
            anyhow::bail!("the guide has {} parts for Caddy", parts.len());
        };
        let site = replaced(site, "127.0.0.1:8377", &self.server)?;
        let (cert, key) = (shown(&self.cert), shown(&self.key));
        let port = self.port;
        let head = format!("https://{HOST}:{port} {{\nbind 127.0.0.1\ntls {cert} {key}\n");
        let site = replaced(&site, &format!("{HOST} {{\n"), &head)?;
        // Without HTTP/3: the testkit has bound the UDP port, to reserve the number.
        let options = "admin off\nauto_https disable_redirects\nservers {\nprotocols h1 h2\n}";
        self.write("Caddyfile", &format!("{{\n{options}\n}}\n{site}"))
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let file = self.folder.join(name);
        std::fs::write(&file, text)?;
        Ok(file)
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Replaces a text; fails if it does not occur.
fn replaced(text: &str, old: &str, new: &str) -> Result<String> {
    anyhow::ensure!(text.contains(old), "the guide has no {old:?}: {text}");
    Ok(text.replace(old, new))
}

impl Front {
    /// A proxy in front of a server with tokens; `None` if its program is not installed.
    pub(super) async fn of_tokens(
        program: Program,
        path: &str,
    ) -> Result<Option<(Instance, Self)>> {
        let Some(found) = program.find() else {
            return Ok(None);
        };
        let port = Port::reserve()?;
        let url = format!("https://{HOST}:{}{path}", port.number());
        let url = url.parse().map_err(anyhow::Error::msg)?;
        let instance = Instance::with_tokens_and(|config| config.public_url = Some(url)).await?;
        instance.queue("orders").await?;
        let front = Self::start_before(&instance, program, found, port, path, false).await?;
        Ok(Some((instance, front)))
    }

    /// nginx in front of a server that trusts it: nginx asks for passwords.
    pub(super) async fn of_users(
        change: impl FnOnce(&mut Config),
    ) -> Result<Option<(Instance, Self)>> {
        let Some(found) = Program::Nginx.find() else {
            return Ok(None);
        };
        let port = Port::reserve()?;
        let url = format!("https://{HOST}:{}", port.number());
        let url = url.parse().map_err(anyhow::Error::msg)?;
        let instance = Instance::start(|config, _| {
            config.public_url = Some(url);
            change(config);
            Ok(Vec::new())
        });
        let instance = instance.await?;
        let front = Self::start_before(&instance, Program::Nginx, found, port, "", true).await?;
        Ok(Some((instance, front)))
    }

    async fn start_before(
        instance: &Instance,
        program: Program,
        found: PathBuf,
        port: Port,
        path: &str,
        has_users: bool,
    ) -> Result<Self> {
        let folder = instance.folder.join("proxy");
        std::fs::create_dir_all(&folder)?;
        let made = rcgen::generate_simple_self_signed([HOST.to_owned()])?;
        let site = Site {
            server: instance.address.to_string(),
            port: port.number(),
            cert: folder.join("queues.crt"),
            key: folder.join("queues.key"),
            folder,
        };
        std::fs::write(&site.cert, made.cert.pem())?;
        std::fs::write(&site.key, made.signing_key.serialize_pem())?;
        let mut command = Command::new(&found);
        match program {
            Program::Nginx => command.arg("-c").arg(site.nginx(has_users)?),
            Program::Caddy => {
                for name in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
                    command.env(name, &site.folder);
                }
                let run = ["run", "--adapter", "caddyfile", "--config"];
                command.args(run).arg(site.caddy()?)
            }
        };
        let (folder, listen) = (site.folder, ("127.0.0.1", site.port));
        let log = std::fs::File::create(folder.join("log"))?;
        let process = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        let mut front = Self {
            _process: process,
            port,
            path: path.to_owned(),
        };
        while TcpStream::connect(listen).await.is_err() {
            if let Some(status) = front._process.try_wait()? {
                let log = std::fs::read_to_string(folder.join("log"))?;
                anyhow::bail!("{} ended with {status}: {log}", found.display());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(front)
    }

    /// Starts curl with this path. curl prints the head and the body of the last response.
    pub(super) fn start(&self, path: &str, arguments: &[&str]) -> Result<Child> {
        let port = self.port.number();
        let curl = Command::new("curl")
            .args([
                "-sS",
                "-i",
                "-k",
                "--http2",
                "--path-as-is",
                "--max-time",
                "120",
            ])
            .args(["--resolve", &format!("{HOST}:{port}:127.0.0.1")])
            // Without this header curl waits one second for the server to ask for the body.
            .args(["-H", "Expect:"])
            .args(arguments)
            .arg(format!("https://{HOST}:{port}{}{path}", self.path))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        curl.context("curl is not installed")
    }

    pub(super) async fn curl(&self, path: &str, arguments: &[&str]) -> Result<Answer> {
        let mut curl = self.start(path, arguments)?;
        drop(curl.stdin.take());
        answer(&curl.wait_with_output().await?)
    }
}

/// Parses the response that curl printed; it must have come over HTTP/2.
pub(super) fn answer(output: &Output) -> Result<Answer> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    anyhow::ensure!(
        text.starts_with("HTTP/2 "),
        "no response over HTTP/2: {output:?}"
    );
    Answer::parse(&text)
}
