//! A Redis server with TLS that requires a client certificate.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use dueq_testkit::Server;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::{DUEQ, Said};

/// A server with its CA in `ca`, and a client certificate in `client` and `client.key`.
struct Secured {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    server: Server,
    url: String,
}

impl Drop for Secured {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.folder));
    }
}

impl Secured {
    /// None if the server program was built without TLS.
    fn start(name: &str) -> Result<Option<Self>> {
        let folder =
            std::env::temp_dir().join(format!("dueq-test-cli-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let mut ca = CertificateParams::new([])?;
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate()?;
        fs::write(folder.join("ca"), ca.self_signed(&ca_key)?.pem())?;
        let issuer = Issuer::new(ca, ca_key);
        for (name, of) in [("server", "localhost"), ("client", "worker")] {
            certify(&folder, &issuer, [name, of], Duration::from_secs(3_600))?;
        }
        let port = TcpListener::bind("127.0.0.1:0")?
            .local_addr()?
            .port()
            .to_string();
        let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
        let (ca, certificate, key) = (path("ca"), path("server"), path("server.key"));
        let files = [
            "--tls-cert-file",
            &certificate,
            "--tls-key-file",
            &key,
            "--tls-ca-cert-file",
            &ca,
        ];
        let listen = ["--tls-port", &port, "--tls-auth-clients", "yes"];
        match Server::start(&[&listen, &files[..]].concat()) {
            Ok(server) => Ok(Some(Self {
                url: format!("rediss://localhost:{port}/"),
                folder,
                issuer,
                server,
            })),
            Err(error)
                if error.to_string().contains("Bad directive")
                    || error.to_string().contains("tls-port")
                    || error.to_string().contains("TLS support") =>
            {
                let program = dueq_testkit::program()?;
                writeln!(
                    std::io::stderr(),
                    "SKIPPED: {} was built without TLS",
                    program.display()
                )?;
                Ok(None)
            }
            Err(error) => bail!(error),
        }
    }
}

/// Writes a certificate that is valid for `lasts`, and its key; replaces each file atomically.
fn certify(
    folder: &Path,
    issuer: &Issuer<'_, KeyPair>,
    [name, of]: [&str; 2],
    lasts: Duration,
) -> Result<()> {
    let key = KeyPair::generate()?;
    let mut certificate = CertificateParams::new([of.to_owned()])?;
    certificate.distinguished_name.push(DnType::CommonName, of); // or OpenSSL takes it for the issuer's own
    certificate.not_after = (SystemTime::now() + lasts).into();
    let pem = certificate.signed_by(&key, issuer)?.pem();
    for (file, text) in [
        (name.to_owned(), pem),
        (format!("{name}.key"), key.serialize_pem()),
    ] {
        let beside = folder.join(format!("{file}.new"));
        fs::write(&beside, text)?;
        fs::rename(beside, folder.join(file))?;
    }
    Ok(())
}

fn with(folder: &Path, url: &str, flags: &[(&str, &str)]) -> Result<Output> {
    let mut command = Command::new(DUEQ);
    command
        .args(["push", "q", "x", "--redis", url])
        .env("RUST_LOG", "error");
    for (flag, file) in flags {
        command.arg(flag).arg(folder.join(file));
    }
    Ok(command.output()?)
}

#[test]
fn certificates_come_from_options_or_environment() -> Result<()> {
    let Some(secured) = Secured::start("tls")? else {
        return Ok(());
    };
    let (folder, url) = (&secured.folder, &secured.url);
    let all = [
        ("--cacert", "ca"),
        ("--cert", "client"),
        ("--key", "client.key"),
    ];
    let output = with(folder, url, &all)?;
    assert_eq!(output.code(), Some(0), "{}", output.err());
    for (flags, code, why) in [
        (&all[..1], 1, "localhost"), // the server wants a certificate
        (&all[1..], 1, "--cacert"),  // this machine does not trust it
        (&all[..2], 2, "--cert needs --key"),
        (&[("--cacert", "absent")], 2, "cannot read"),
        (&[("--cacert", "client.key")], 2, "PEM"),
    ] {
        let output = with(folder, url, flags)?;
        let said = output.err();
        assert_eq!(output.code(), Some(code), "{flags:?}: {said}");
        assert!(said.contains(why), "{flags:?}: {said}");
    }
    let output = with(folder, &secured.server.url(), &all[..1])?;
    assert!(output.err().contains("not rediss://"), "{}", output.err());

    let mut command = Command::new(DUEQ);
    command.args(["push", "q", "x", "--redis", url]);
    let output = command
        .env("RUST_LOG", "error")
        .env("DUEQ_CACERT", folder.join("ca"))
        .env("DUEQ_CERT", folder.join("client"))
        .env("DUEQ_KEY", folder.join("client.key"))
        .output()?;
    assert_eq!(output.code(), Some(0), "{}", output.err());
    Ok(())
}

/// A program that is killed when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop((self.0.kill(), self.0.wait()));
    }
}

impl Running {
    /// `dueq` with these arguments, and with the client's certificate.
    fn start(secured: &Secured, args: &[&str]) -> Result<Self> {
        let child = Command::new(DUEQ)
            .args(args)
            .env("REDIS_URL", &secured.url)
            .env("DUEQ_CACERT", secured.folder.join("ca"))
            .env("DUEQ_CERT", secured.folder.join("client"))
            .env("DUEQ_KEY", secured.folder.join("client.key"))
            .stdout(Stdio::piped())
            .stderr(Stdio::from(fs::File::create(secured.folder.join(args[0]))?))
            .spawn()?;
        Ok(Self(child))
    }

    fn lines(&mut self) -> Result<impl Iterator<Item = std::io::Result<String>> + use<>> {
        let out = self.0.stdout.take().context("no output")?;
        Ok(BufReader::new(out).lines())
    }
}

/// The earliest end of a certificate of this length that is made now: it ends at a full second.
fn end_after(lasts: Duration) -> SystemTime {
    SystemTime::now() + lasts - Duration::from_secs(1)
}

/// A producer, which pushes through `dueq serve`, and a worker. Their client certificate is
/// renewed.
struct Renewed<'a> {
    secured: &'a Secured,
    url: String,
    handled: Receiver<String>,
    /// The end of the newest certificate.
    until: SystemTime,
    pushed: u32,
}

impl Renewed<'_> {
    fn renew(&mut self, lasts: Duration) -> Result<()> {
        self.until = end_after(lasts);
        let (folder, issuer) = (&self.secured.folder, &self.secured.issuer);
        certify(folder, issuer, ["client", "worker"], lasts)
    }

    /// Cuts all connections, then pushes a message and waits for its delivery. On a slow machine
    /// the certificate may expire meanwhile: then renews it and tries once more.
    fn hand_over(&mut self, lasts: Duration) -> Result<()> {
        let server = &self.secured.server;
        server.command(&["CLIENT", "KILL", "TYPE", "normal"])?;
        self.pushed += 1;
        let message = format!("message {}", self.pushed);
        if let Err(error) = self.push(&message) {
            ensure!(SystemTime::now() >= self.until, "{error}");
            self.renew(lasts)?;
            self.push(&message)?;
        }
        // The cut may lose the reply of a claim: then the message is delivered after its lease.
        for _ in 0..60 {
            match self.handled.recv_timeout(Duration::from_secs(1)) {
                Ok(line) if line.contains(&message) => return Ok(()),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) if SystemTime::now() < self.until => {}
                Err(RecvTimeoutError::Timeout) => self.renew(lasts)?,
                Err(RecvTimeoutError::Disconnected) => bail!("the worker ended"),
            }
        }
        bail!("{message} was not handled")
    }

    fn push(&self, message: &str) -> Result<()> {
        let pushing = Command::new("curl")
            .args(["-sS", "-m", "30", "-w", "\n%{http_code}"])
            .args(["-X", "PUT", "-H", "Content-Type: application/json", "-d"])
            .arg(format!(r#"{{"payload":"{message}"}}"#))
            .arg(format!("{}/v1/queues/q/messages/{}", self.url, self.pushed))
            .output()?;
        let answer = pushing.out();
        let status = answer.lines().next_back();
        ensure!(matches!(status, Some("200" | "201")), "{pushing:?}");
        Ok(())
    }
}

/// `DUEQ_TEST_RENEWALS` and `DUEQ_TEST_LASTS` make the test longer.
#[test]
fn renewed_client_certificates_need_no_restart() -> Result<()> {
    let number =
        |name, default| std::env::var(name).map_or(Ok(default), |text: String| text.parse::<u64>());
    let renewals = number("DUEQ_TEST_RENEWALS", 4)?;
    let lasts = Duration::from_secs(number("DUEQ_TEST_LASTS", 3)?);
    let Some(secured) = Secured::start("renewals")? else {
        return Ok(());
    };
    certify(
        &secured.folder,
        &secured.issuer,
        ["client", "worker"],
        lasts,
    )?;
    let until = end_after(lasts);
    let mut serve = Running::start(&secured, &["serve", "--listen", "127.0.0.1:0"])?;
    let listening = serve.lines()?.next().context("serve ended")??;
    let url = listening
        .split([' ', ';'])
        .find(|word| word.starts_with("http"));
    let work = [
        "work",
        "q",
        "--print",
        "--lease",
        "1s",
        "--log-level",
        "error",
    ];
    let mut work = Running::start(&secured, &work)?;
    let (sender, handled) = mpsc::channel();
    let lines = work.lines()?;
    std::thread::spawn(move || lines.flatten().try_for_each(|line| sender.send(line)));
    let mut renewed = Renewed {
        secured: &secured,
        url: url.context("no address")?.to_owned(),
        handled,
        until,
        pushed: 0,
    };
    renewed.hand_over(lasts)?; // both have connected
    for _ in 0..renewals {
        renewed.renew(lasts)?;
        renewed.hand_over(lasts)?;
        while SystemTime::now() + lasts / 3 < renewed.until {
            renewed.hand_over(lasts)?;
        }
    }
    // A half-written key is not used.
    renewed.renew(Duration::from_secs(3_600))?;
    renewed.hand_over(lasts)?;
    fs::write(secured.folder.join("client.key"), "half")?;
    renewed.hand_over(lasts)?;
    writeln!(
        std::io::stderr(),
        "{renewals} certificates of {lasts:?}, {} messages pushed and handled",
        renewed.pushed
    )?;
    let reports = fs::read_to_string(secured.folder.join("serve"))?;
    ensure!(reports.contains("client.key is no key in PEM"), "{reports}");
    Ok(())
}
