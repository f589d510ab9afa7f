//! Child processes of a test: the test program again, with a role from its environment.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dueq::outcomes::SettleOutcome;
use dueq::{Client, Delivery};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::Barrier;

use super::{claim_one, within};

const PART: &str = "DUEQ_TEST_PART";
const URL: &str = "DUEQ_TEST_URL";
/// Prefix of the output of a role. The test harness writes other text on the same lines.
const MARK: &str = "@@ ";

/// The roles of a child process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Handle the messages of `orders` and print their ids.
    Handle,
    /// Claim up to 50 messages of `orders` under leases of 2 s, print their ids and never settle.
    Hold,
    /// Connect, push, claim and ack one message, and report it.
    Once,
    /// Handle 50 messages of `orders` at once under leases of 1 s, print their ids, and abort on the
    /// one called `poison`: at first when all 50 run, later at once.
    Poisoned,
}

const PARTS: [(&str, Role); 4] = [
    ("handle", Role::Handle),
    ("hold", Role::Hold),
    ("once", Role::Once),
    ("poisoned", Role::Poisoned),
];

pub(crate) struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    pub(crate) fn start(role: Role, url: &str, environment: &[(&str, &str)]) -> Result<Self> {
        let name = PARTS
            .iter()
            .find(|(_, known)| *known == role)
            .map_or("", |(name, _)| name);
        let mut child = this_program(name, url)?
            .envs(environment.iter().copied())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        Ok(Self { child, lines })
    }

    /// The next line of output.
    pub(crate) async fn says(&mut self) -> Result<String> {
        loop {
            let line = within("the next line of a process", self.lines.next_line()).await??;
            let line = line.context("the process has ended")?;
            if let Some((_, said)) = line.split_once(MARK) {
                return Ok(said.to_owned());
            }
        }
    }

    /// Kills the process with SIGKILL and waits for its end.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }
}

/// Starts the test program with this role.
fn this_program(role: &str, url: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args([
            "--exact",
            "support::child::unknown_role_of_a_child_process_is_an_error",
            "--nocapture",
        ])
        .env(PART, role)
        .env(URL, url)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    Ok(command)
}

fn say(what: impl std::fmt::Display) {
    println!("{MARK}{what}");
}

/// Entry point of child processes. As a test, it checks that an unknown role is an error.
#[tokio::test]
async fn unknown_role_of_a_child_process_is_an_error() -> Result<()> {
    let (Ok(name), Ok(url)) = (std::env::var(PART), std::env::var(URL)) else {
        let unknown = this_program("unknown", "redis://127.0.0.1:1/")?
            .stderr(Stdio::null())
            .output()
            .await?;
        assert!(!unknown.status.success(), "an unknown role must fail");
        return Ok(());
    };
    let Some((_, role)) = PARTS.iter().find(|(known, _)| *known == name) else {
        bail!("unknown role {name}")
    };
    let queue = Client::connect(&url).await?.queue("orders")?;
    match role {
        Role::Handle => {
            let handler = |delivery: Delivery| {
                say(delivery.id());
                async {}
            };
            queue
                .worker()
                .run(handler, std::future::pending::<()>())
                .await?;
        }
        Role::Hold => {
            let handler = |delivery: Delivery| {
                say(delivery.id());
                std::future::pending::<()>()
            };
            queue
                .worker()
                .concurrency(50)
                .lease(Duration::from_secs(2))
                .run(handler, std::future::pending::<()>())
                .await?;
        }
        Role::Once => {
            queue.push("once").await?;
            let delivery = claim_one(&queue).await?;
            assert_eq!(
                (delivery.payload(), delivery.ack().await?),
                (&b"once"[..], SettleOutcome::Done)
            );
            say("done");
        }
        Role::Poisoned => {
            // The first crash hits all 50 messages while their handlers run.
            let all_run = Arc::new(Barrier::new(50));
            let handler = move |delivery: Delivery| {
                let all_run = Arc::clone(&all_run);
                async move {
                    say(delivery.id());
                    if delivery.attempt() == 1 {
                        all_run.wait().await;
                    }
                    if delivery.id() == "poison" {
                        std::process::abort();
                    }
                    if delivery.attempt() == 1 {
                        std::future::pending::<()>().await;
                    }
                }
            };
            queue
                .worker()
                .concurrency(50)
                .lease(Duration::from_secs(1))
                .run(handler, std::future::pending::<()>())
                .await?;
        }
    }
    Ok(())
}
