//! `dueq serve` from a shell.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use dueq_testkit::Server;

use crate::work::service::Systemd;
use crate::{DUEQ, Said, command, dueq, words};

/// A running `dueq serve`, killed on drop.
pub(crate) struct Serve {
    child: Child,
    address: String,
}

impl Serve {
    pub(crate) fn start(server: &Server, args: &[&str]) -> Result<Self> {
        let mut command = command(server);
        command
            .args(["serve", "--json"])
            .env("DUEQ_SERVE_LISTEN", "127.0.0.1:0");
        Self::start_by(command.args(args))
    }

    /// Starts this command, which prints the server's address as JSON.
    pub(crate) fn start_by(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("its output")?).read_line(&mut line)?;
        let object: serde_json::Value = serde_json::from_str(&line).context(line)?;
        let url = object["listening"].as_str().context("a URL")?;
        let address = url.trim_start_matches("http://").to_owned();
        Ok(Self { child, address })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn signal(&self, signal: &str) -> Result<()> {
        let pid = self.child.id().to_string();
        Command::new("kill").args([signal, &pid]).status()?;
        Ok(())
    }

    /// The response to a request.
    pub(crate) fn ask(&self, line: &str, header: &str) -> Result<String> {
        self.ask_with(line, header, "")
    }

    /// The response to a request with this body.
    pub(crate) fn ask_with(&self, line: &str, header: &str, body: &str) -> Result<String> {
        let mut stream = TcpStream::connect(&self.address)?;
        let host = &self.address;
        let request =
            format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{header}\r\n{body}");
        stream.write_all(request.as_bytes())?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    }

    /// Sends a signal, and returns the exit code and the standard error.
    pub(crate) fn end(mut self, signal: &str) -> Result<(Option<i32>, String)> {
        self.signal(signal)?;
        let mut said = String::new();
        let stderr = self.child.stderr.as_mut().context("its errors")?;
        stderr.read_to_string(&mut said)?;
        Ok((self.child.wait()?.code(), said))
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn serve_refuses_half_of_a_certificate_and_its_key() -> Result<()> {
    let server = Server::start(&[])?;
    let systemd = Systemd::listen("half-tls")?;
    for (file, missing) in [
        ("tls-cert", "--tls-key FILE"),
        ("tls-key", "--tls-cert FILE"),
    ] {
        let credentials = systemd.path(file);
        fs::create_dir(&credentials)?;
        fs::write(credentials.join(format!("dueq.{file}")), "")?;
        // Without the refusal, this address is refused for another reason.
        let output = command(&server)
            .args(["serve", "--listen", "0.0.0.0:0"])
            .env("CREDENTIALS_DIRECTORY", &credentials)
            .output()?;
        let said = output.err();
        assert_eq!(output.code(), Some(2), "{file}: {said}");
        assert!(said.contains(missing), "{file}: {said}");
    }
    Ok(())
}

#[test]
fn serve_without_tokens_listens_on_loopback_only() -> Result<()> {
    let server = Server::start(&[])?;
    for args in [
        &["serve", "--listen", "0.0.0.0:0"][..],
        &["serve", "--listen", "[::]:0"],
        &words("serve --listen 0.0.0.0:0 --public-url https://q.example.com"),
    ] {
        let output = dueq(&server, args)?;
        let said = output.err();
        assert_eq!(output.code(), Some(2), "{args:?}: {said}");
        assert!(
            said.contains("--tokens FILE") && said.contains("--trust-proxy"),
            "{said}"
        );
    }
    for args in [
        &["--trust-proxy", "10.0.0.1"][..],
        &["--trust-proxy", "x", "--user-header", "x-user"],
        &words("--group-role sre=root --groups-header g --user-header u --trust-proxy ::1"),
        &["--tokens", "/absent/tokens.toml"],
        &["--public-url", "q.example.com"],
        &["--rate-limit", "0"],
        &["--queues", "a/b"],
    ] {
        let output = dueq(&server, &[&["serve"], args].concat())?;
        assert_eq!(output.code(), Some(2), "{args:?}: {}", output.err());
    }
    Ok(())
}

#[test]
fn serve_stops_on_sigterm_and_audits_to_standard_error() -> Result<()> {
    let server = Server::start(&[])?;
    dueq(&server, &["push", "orders", "x"])?;
    let serve = Serve::start(&server, &[])?;
    let listed = serve.ask("GET /v1/queues", "")?;
    assert!(
        listed.starts_with("HTTP/1.1 200") && listed.contains("orders"),
        "{listed}"
    );
    let paused = serve.ask("PUT /v1/queues/orders/pause", "")?;
    assert!(paused.starts_with("HTTP/1.1 200"), "{paused}");
    let (code, said) = serve.end("-TERM")?;
    assert_eq!(code, Some(0), "{said}");
    let events: Vec<serde_json::Value> = said
        .lines()
        .map(|line| Ok(serde_json::from_str(line)?))
        .collect::<Result<_>>()?;
    assert_eq!(
        (&events[0]["event"], &events[1]["event"]),
        (&"start".into(), &"end".into())
    );
    Ok(())
}

#[test]
fn serve_warns_at_start_of_open_access() -> Result<()> {
    let server = Server::start(&[])?;
    let file = server.folder().join("tokens.toml");
    let tokens = file.to_string_lossy().into_owned();
    dueq(
        &server,
        &[
            "serve", "token", "a", "--role", "viewer", "--tokens", &tokens,
        ],
    )?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
    for (args, expected) in [
        (&[][..], "do not put a proxy in front"),
        (&["--tokens", &tokens], "chmod 600"),
        (
            &["--tokens", &tokens, "--listen", "0.0.0.0:0"],
            "no TLS: others can read the tokens",
        ),
    ] {
        let args = [args, &["--log-level", "warn"]].concat();
        let (_, said) = Serve::start(&server, &args)?.end("-TERM")?;
        let lines = said.lines().filter(|line| line.contains(expected));
        assert_eq!(lines.count(), 1, "{args:?}: {said}");
    }
    Ok(())
}

#[test]
fn running_server_accepts_a_newly_printed_token() -> Result<()> {
    let server = Server::start(&[])?;
    let file = server.folder().join("tokens.toml");
    let path = file.to_str().context("a path")?;
    let add = |name: &str| -> Result<String> {
        let args = ["serve", "token", name, "--role", "viewer", "--tokens", path];
        let output = Command::new(DUEQ).args(args).output()?;
        assert!(output.status.success(), "{}", output.err());
        Ok(output.out().trim().to_owned())
    };
    let first = add("first")?;
    assert_eq!(fs::metadata(&file)?.permissions().mode() & 0o777, 0o600);
    let serve = Serve::start(&server, &["--tokens", path])?;
    let status = |token: &str| -> Result<String> {
        let header = format!("Authorization: Bearer {token}\r\n");
        let response = serve.ask("GET /v1/queues", &header)?;
        Ok(response.lines().next().unwrap_or_default().to_owned())
    };
    assert_eq!(status(&first)?, "HTTP/1.1 200 OK");
    assert_eq!(status("dueq_x")?, "HTTP/1.1 401 Unauthorized");
    let second = add("second")?;
    let again = Command::new(DUEQ)
        .args([
            "serve", "token", "second", "--role", "viewer", "--tokens", path,
        ])
        .output()?;
    assert_eq!(again.code(), Some(2), "{}", again.err());
    // The server notices a changed file within a second.
    while status(&second)? != "HTTP/1.1 200 OK" {
        std::thread::yield_now();
    }
    let kept = fs::read_to_string(&file)?;
    assert!(!kept.contains(&first) && !kept.contains(&second), "{kept}");
    let (code, said) = serve.end("-INT")?;
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains(&first), "the log has the token: {said}");
    Ok(())
}

#[test]
fn options_of_serve_come_from_the_environment() -> Result<()> {
    let server = Server::start(&[])?;
    let output = command(&server)
        .arg("serve")
        .env("DUEQ_SERVE_LISTEN", "0.0.0.0:0")
        .env("DUEQ_SERVE_QUEUES", "orders,mail-*")
        .env("DUEQ_SERVE_READ_ONLY", "true")
        .output()?;
    let said = output.err();
    assert!(
        output.code() == Some(2) && said.contains("0.0.0.0:0"),
        "{said}"
    );
    Ok(())
}
