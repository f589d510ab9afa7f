//! Runs the drill of partition maps: one process on one server, with shipped or with broken
//! scripts.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use dueq_testkit::Server;
use redis::aio::MultiplexedConnection;

use crate::check::{self, Verdict};
use crate::history::{Event, Role, State, Writer};
use crate::kit::process::Start;
use crate::leftovers;
use crate::roles::drill::QUEUE;
use crate::run::emptied;

/// Runs the drill, and writes its histories into this folder.
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
    let mut start = Start::role("role")?
        .args(["drill", "--name", "d1", "--seed", "1"])
        .args(["--url", &server.url(), "--history"])
        .args([folder.join("d1.jsonl")])
        .log(&folder.join("d1.log"))?;
    if let Some(scripts) = scripts {
        start = start.args([Path::new("--scripts"), scripts]);
    }
    let ended = start.start()?.end().await?;
    // With broken scripts the drill itself may fail. The checker then judges the calls before that.
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

/// Records the messages that remain in every partition, including removed ones.
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
