//! The processes of a soak, which this program starts. They read requests as JSON lines, and answer
//! each with one line.

mod node;
mod producer;

use std::io::Write;

use anyhow::Result;
use clap::ValueEnum;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::spread::Pairs;

/// Runs one of the processes of `soak`.
#[derive(clap::Args)]
pub struct Arguments {
    role: Name,
    /// The URL of the server.
    server: String,
    queue: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Name {
    Node,
    Producer,
}

/// One request to a process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(super) enum Request {
    Begin(Begin),
    /// Report what happened since the last report.
    Sample,
    /// Stop, finish the work in flight, and report what happened since the last report.
    End,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Begin {
    /// The number of pushes per second, independent of the queue. Absent: push as fast as the queue
    /// takes messages; a node then handles its deliveries.
    pub(super) rate: Option<u64>,
}

/// One reply of a process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer<T> {
    Report(T),
    Error(String),
}

/// The report of a node.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Handled {
    /// Times from the due time to the start of the handler, for messages with a delay.
    pub(super) late: Pairs,
    /// Times from the intended push to the start of the handler, for messages that were due at
    /// once.
    pub(super) immediate: Pairs,
    /// The number of deliveries before the due time.
    pub(super) early: u64,
    /// The number of deliveries of messages that should have been cancelled before.
    pub(super) unwanted: u64,
}

/// The report of a producer.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Pushed {
    /// The number of calls with an unexpected outcome; below, the last of them.
    pub(super) failed: u64,
    pub(super) failure: Option<String>,
    /// The number of cancels and reschedules that came too late.
    pub(super) too_late: u64,
    /// How long after its intended time each message was stored.
    pub(super) behind: Pairs,
}

/// One of the processes, from inside.
trait Role: Sized {
    type Report: Serialize + DeserializeOwned;

    async fn connect(server: &str, queue: &str) -> Result<Self>;
    async fn begin(&mut self, begin: Begin) -> Result<()>;
    /// The report since the last report. Fails if a task has ended that should run.
    async fn sample(&mut self) -> Result<Self::Report>;
    async fn end(&mut self) -> Result<Self::Report>;
}

pub async fn run(arguments: &Arguments) -> Result<()> {
    match arguments.role {
        Name::Node => serve::<node::Node>(arguments).await,
        Name::Producer => serve::<producer::Producer>(arguments).await,
    }
}

/// Answers requests until the end of the input.
async fn serve<R: Role>(arguments: &Arguments) -> Result<()> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut role = R::connect(&arguments.server, &arguments.queue).await?;
    while let Some(line) = lines.next_line().await? {
        let answer = match answer(&mut role, &line).await {
            Ok(report) => Answer::Report(report),
            Err(error) => Answer::Error(format!("{error:#}")),
        };
        let mut text = serde_json::to_string(&answer)?;
        text.push('\n');
        std::io::stdout().write_all(text.as_bytes())?;
        std::io::stdout().flush()?;
    }
    Ok(())
}

async fn answer<R: Role>(role: &mut R, line: &str) -> Result<Option<R::Report>> {
    Ok(match serde_json::from_str(line)? {
        Request::Begin(begin) => {
            role.begin(begin).await?;
            None
        }
        Request::Sample => Some(role.sample().await?),
        Request::End => Some(role.end().await?),
    })
}
