//! A worker under systemd: what it tells systemd, and which files it reads again.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{Client, Message};
use dueq_testkit::Server;

use crate::work::http::Receiver;
use crate::work::support::{Dueq, Folder, LIMIT, command, queue, until};

/// The socket on which systemd hears a program.
pub(crate) struct Systemd {
    folder: Folder,
    socket: UnixDatagram,
}

impl Systemd {
    pub(crate) fn listen(name: &str) -> Result<Self> {
        let folder = Folder::new(name)?;
        let socket = UnixDatagram::bind(folder.path().join("notify"))?;
        socket.set_read_timeout(Some(LIMIT))?;
        Ok(Self { folder, socket })
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// Starts the program with its standard error in the file `log`.
    fn start(&self, command: &mut Command) -> Result<Dueq> {
        let log = fs::File::create(self.path("log"))?;
        Dueq::run(
            command
                .env("NOTIFY_SOCKET", self.path("notify"))
                .stderr(log),
        )
    }

    /// The next notification.
    pub(crate) fn heard(&self) -> Result<String> {
        let mut bytes = [0; 1_024];
        let length = self.socket.recv(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes[..length]).trim().to_owned())
    }

    /// Waits for the end of a reload.
    pub(crate) fn hears_reload(&self) -> Result<()> {
        let reloading = self.heard()?;
        assert!(
            reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="),
            "{reloading}"
        );
        assert_eq!(self.heard()?, "READY=1");
        Ok(())
    }

    pub(crate) fn write(&self, file: &str, text: &str) -> Result<String> {
        let path = self.path(file);
        fs::write(&path, text)?;
        Ok(path.to_string_lossy().into_owned())
    }

    fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.path("log"))?)
    }
}

#[tokio::test]
async fn systemd_hears_that_a_worker_is_ready_alive_and_stopping() -> Result<()> {
    let server = Server::start(&[])?;
    let systemd = Systemd::listen("notify")?;
    let args = ["work", "orders", "--print"];
    let mut worker = systemd.start(command(&server.url(), &args).env("WATCHDOG_USEC", "300000"))?;
    assert_eq!(systemd.heard()?, "READY=1");
    for _ in 0..3 {
        assert_eq!(systemd.heard()?, "WATCHDOG=1");
    }
    worker.signal("TERM")?;
    while systemd.heard()? != "STOPPING=1" {}
    assert!(worker.wait()?.success());
    Ok(())
}

#[tokio::test]
async fn unreachable_server_delays_ready_and_not_the_stop() -> Result<()> {
    let systemd = Systemd::listen("notify-away")?;
    let args = ["work", "orders", "--print"];
    let mut worker = systemd.start(&mut command("redis://127.0.0.1:1/", &args))?;
    systemd
        .socket
        .set_read_timeout(Some(Duration::from_millis(500)))?;
    assert!(systemd.heard().is_err());
    worker.signal("HUP")?;
    worker.signal("TERM")?;
    assert!(worker.wait()?.success());
    Ok(())
}

#[tokio::test]
async fn hang_up_before_the_start_reads_the_webhook_secret() -> Result<()> {
    let systemd = Systemd::listen("secret-away")?;
    let file = systemd.write("secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
    let args = [
        "work",
        "orders",
        "--http",
        "http://127.0.0.1:1/",
        "--allow-private",
    ];
    let args = [&args[..], &["--secret-file", &file]].concat();
    let mut worker =
        systemd.start(command("redis://127.0.0.1:1/", &args).env("RUST_LOG", "warn"))?;
    let says = async |text: &'static str| {
        until(text, async || {
            Ok(systemd.log()?.contains(text).then_some(()))
        })
        .await
    };
    says("not started yet").await?;
    systemd.write("secret", "wrong")?;
    worker.signal("HUP")?;
    says("the old file stays in use").await?;
    worker.signal("TERM")?;
    assert!(worker.wait()?.success());
    Ok(())
}

#[tokio::test]
async fn hang_up_reads_the_webhook_secret_and_keeps_the_old_if_wrong() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let systemd = Systemd::listen("secret")?;
    let mut receiver = Receiver::start(&["204 No Content"; 8]).await?;
    let secrets = [
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_dGhpcnR5LXR3byBieXRlcyB0aGF0IGFyZSBzZWNyZXQ=",
    ];
    let file = systemd.write("secret", secrets[0])?;
    let args = [
        "work",
        "orders",
        "--http",
        &receiver.url,
        "--allow-private",
        "--secret-file",
        &file,
    ];
    let mut worker = systemd.start(&mut command(&server.url(), &args))?;
    assert_eq!(systemd.heard()?, "READY=1");
    let mut signatures = Vec::new();
    for (id, text) in [
        ("first", secrets[0]),
        ("second", &secrets.join("\n")),
        ("third", "whsec_!"),
    ] {
        systemd.write("secret", text)?;
        worker.signal("HUP")?;
        systemd.hears_reload()?;
        orders.push_message(Message::new("x").id(id)).await?;
        let signature = receiver.request().await?.headers["webhook-signature"].clone();
        signatures.push(signature.split(' ').count());
    }
    assert_eq!(signatures, [1, 2, 2], "how many secrets sign");
    let log = systemd.log()?;
    assert_eq!(log.matches("ERROR").count(), 1, "{log}");
    assert!(log.contains("the old file stays in use"), "{log}");
    worker.signal("TERM")?;
    assert!(worker.wait()?.success());
    Ok(())
}

#[tokio::test]
async fn hang_up_reports_an_empty_password_and_keeps_the_old_one() -> Result<()> {
    let server = Server::start(&["--requirepass", "right"])?;
    let url = format!("redis://:right@127.0.0.1:{}/", server.port());
    let orders = Client::connect(&url).await?.queue("orders")?;
    let systemd = Systemd::listen("password")?;
    // The credential that a unit of systemd gets replaces --redis-password-file.
    systemd.write("dueq.redis-password", "right\n")?;
    let args = ["work", "orders", "--print"];
    let mut command = command(&server.url(), &args);
    command.env("CREDENTIALS_DIRECTORY", systemd.folder.path());
    let mut worker = systemd.start(&mut command)?;
    assert_eq!(systemd.heard()?, "READY=1");
    worker.signal("HUP")?;
    systemd.hears_reload()?;
    assert_eq!(systemd.log()?.matches("ERROR").count(), 0);
    systemd.write("dueq.redis-password", "\n")?;
    worker.signal("HUP")?;
    systemd.hears_reload()?;
    let log = systemd.log()?;
    let line = log.lines().find(|line| line.contains("ERROR"));
    let line = line.with_context(|| format!("no error: {log}"))?;
    assert!(line.contains("no password for redis"), "{line}");
    orders.push_message(Message::new("two").id("two")).await?;
    assert!(worker.says()?.contains("two"));
    worker.signal("TERM")?;
    assert!(worker.wait()?.success());
    Ok(())
}
