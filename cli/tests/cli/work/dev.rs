//! `dueq dev`: a private server that keeps its data and leaves no process.

use anyhow::{Context, Result};
use dueq::{Client, Message};
use dueq_testkit::program;

use crate::work::support::{Dueq, Folder, command, group_lives, until};

/// A PATH with only the tests' server program and sh, which is all that `dueq dev` needs.
fn path() -> Result<std::ffi::OsString> {
    let program = program()?;
    let folder = program.parent().context("a folder")?.to_owned();
    Ok(std::env::join_paths([
        folder,
        "/usr/bin".into(),
        "/bin".into(),
    ])?)
}

fn dev(folder: &Folder) -> Result<(Dueq, String)> {
    let dir = folder.path().join("a folder").display().to_string();
    let mut command = command(
        "redis://127.0.0.1/",
        &["dev", "--port", "0", "--json", "--dir", &dir],
    );
    let mut dev = Dueq::run(command.env("PATH", path()?))?;
    let said: serde_json::Value = serde_json::from_str(&dev.says()?)?;
    Ok((dev, said["url"].as_str().context("a URL")?.to_owned()))
}

/// The process groups of the servers with this working directory.
fn servers(folder: &Folder) -> Result<Vec<String>> {
    let output = std::process::Command::new("ps")
        .args(["-e", "-o", "pid="])
        .output()?;
    let pids = String::from_utf8_lossy(&output.stdout).into_owned();
    let inside = |pid: &str| {
        std::fs::read_link(format!("/proc/{pid}/cwd"))
            .is_ok_and(|place| place.starts_with(folder.path()))
    };
    Ok(pids
        .split_whitespace()
        .filter(|pid| inside(pid))
        .map(str::to_owned)
        .collect())
}

#[tokio::test]
async fn dev_keeps_messages_and_leaves_no_process() -> Result<()> {
    let folder = Folder::new("dev")?;
    let (mut first, url) = dev(&folder)?;
    let running = servers(&folder)?;
    Client::connect(&url)
        .await?
        .queue("orders")?
        .push_message(Message::new("kept").id("order:1"))
        .await?;

    let dir = folder.path().join("a folder").display().to_string();
    let second = command("redis://127.0.0.1/", &["dev", "--port", "0", "--dir", &dir])
        .env("PATH", path()?)
        .output()?;
    assert_eq!(second.status.code(), Some(1), "one folder, one server");
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("another `dueq dev`"), "{said}");

    first.signal("INT")?;
    assert!(first.wait()?.success());
    for group in &running {
        assert!(!group_lives(group)?, "{group}");
    }
    let (mut again, url) = dev(&folder)?;
    let stored = Client::connect(&url)
        .await?
        .queue("orders")?
        .get("order:1")
        .await?;
    assert_eq!(stored.context("still there")?.payload, b"kept");

    // SIGKILL: `dueq dev` gets no chance to end its server.
    let running = servers(&folder)?;
    again.signal("KILL")?;
    again.wait()?;
    for group in running {
        until("the end of the server", async || {
            Ok((!group_lives(&group)?).then_some(()))
        })
        .await?;
    }
    Ok(())
}

#[test]
fn dev_without_a_server_or_a_free_port_gives_advice() -> Result<()> {
    let folder = Folder::new("dev-none")?;
    let dir = folder.path().display().to_string();
    let output = command("redis://127.0.0.1/", &["dev", "--dir", &dir])
        .env("PATH", &dir)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("apt install") && said.contains("brew install"),
        "{said}"
    );

    let taken = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    let port = taken.local_addr()?.port().to_string();
    let output = command(
        "redis://127.0.0.1/",
        &["dev", "--port", &port, "--dir", &dir],
    )
    .env("PATH", path()?)
    .output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("another --port"), "{said}");
    Ok(())
}
