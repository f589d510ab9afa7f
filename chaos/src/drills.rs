//! Runs the drill of maps: one process on one server, with the shipped scripts or with broken ones.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use dueq_testkit::Server;
use redis::aio::MultiplexedConnection;

use crate::check::{self, Verdict};
use crate::history::{Event, Role, State, Writer};
use crate::leftovers;
use crate::roles::drill::QUEUE;
use crate::run::emptied;

/// Runs the drill; its histories are in this folder.
pub async fn run(
    server: Option<PathBuf>,
    scripts: Option<&Path>,
    folder: &Path,
) -> Result<Verdict> {
    let folder = emptied(folder)?;
    let program = match server {
        Some(program) => program,
        None => dueq_testkit::program()?,
    };
    let server =
        tokio::task::spawn_blocking(move || Server::start_on(&program, &[], &[])).await??;
    let mut process = tokio::process::Command::new(std::env::current_exe()?);
    process.args([
        "role",
        "drill",
        "--name",
        "d1",
        "--seed",
        "1",
        "--url",
        &server.url(),
    ]);
    process.arg("--history").arg(folder.join("d1.jsonl"));
    if let Some(scripts) = scripts {
        process.arg("--scripts").arg(scripts);
    }
    let log = std::fs::File::create(folder.join("d1.log"))?;
    let ended = process
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .status()
        .await?;
    // A drill of broken scripts may fail. The checker then judges the calls before the failure.
    ensure!(
        ended.success() || scripts.is_some(),
        "the drill failed: see {}",
        folder.display()
    );
    let client = redis::Client::open(server.url())?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    left(&mut connection, &folder).await?;
    tokio::task::spawn_blocking(move || check::check(&folder)).await?
}

/// Writes down what is left of every partition, and of those that were removed.
async fn left(connection: &mut MultiplexedConnection, folder: &Path) -> Result<()> {
    let writer = Writer::create(&folder.join("harness.jsonl"))?;
    let (role, process) = (Role::Harness, "harness".to_owned());
    writer.write(&Event::Begin {
        role,
        process,
        pid: std::process::id(),
    })?;
    let mut partitions = std::collections::BTreeSet::new();
    for line in crate::history::read(&folder.join("d1.jsonl"))? {
        if let (_, Event::Invoke { queue, .. }) = line? {
            partitions.insert(queue);
        }
    }
    ensure!(
        partitions.iter().any(|name| name == QUEUE),
        "the drill called nothing"
    );
    for queue in partitions {
        let (state, items) = (State::Scheduled, Vec::new());
        writer.write(&Event::Left {
            queue: queue.clone(),
            state,
            items,
        })?;
        let mut written = Ok(());
        let tell = &mut |event| {
            if let Err(error) = writer.write(&event) {
                written = Err(error);
            }
        };
        leftovers::scan(connection, &queue, tell)
            .await
            .with_context(|| queue.clone())?;
        written?;
    }
    Ok(())
}
