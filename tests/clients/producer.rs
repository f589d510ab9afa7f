//! A producer of `examples/clients/`, as its program.

use std::process::{Output, Stdio};

use anyhow::{Context, Result, ensure};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::QUEUE;

/// A producer that pushes to a server.
pub(crate) struct Producer<'a> {
    pub(crate) program: &'a [String],
    pub(crate) url: String,
}

impl Producer<'_> {
    /// Pushes a message with this payload, given as an argument or on standard input.
    async fn push(
        &self,
        id: &str,
        delay_ms: &str,
        payload: Payload<'_>,
        options: &[&str],
    ) -> Result<Output> {
        let (argument, input) = match payload {
            Payload::Argument(text) => (text, &b""[..]),
            Payload::Input(bytes) => ("-", bytes),
        };
        let mut child = Command::new(&self.program[0])
            .args(&self.program[1..])
            .args([QUEUE, id, delay_ms, argument])
            .args(options)
            .env("REDIS_URL", &self.url)
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut stdin = child.stdin.take().context("its input")?;
        // A producer that exits before reading all input reports its own error.
        let _ = stdin.write_all(input).await;
        drop(stdin);
        Ok(child.wait_with_output().await?)
    }

    /// Pushes a message that is due at once.
    pub(crate) async fn succeeds(&self, id: &str, payload: Payload<'_>, says: Says) -> Result<()> {
        says.check(id, &self.push(id, "0", payload, &[]).await?)
    }

    /// Pushes a message that is due in an hour.
    pub(crate) async fn succeeds_with(&self, id: &str, options: &[&str], says: Says) -> Result<()> {
        let payload = Payload::Argument("content");
        says.check(id, &self.push(id, "3600000", payload, options).await?)
    }

    pub(crate) async fn fails(&self, id: &str, delay_ms: &str, why: &str) -> Result<()> {
        let payload = Payload::Argument("x");
        let output = self.push(id, delay_ms, payload, &[]).await?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.code() == Some(1) && said.contains(why),
            "{why}: {output:?}"
        );
        Ok(())
    }
}

/// What a producer prints of a push that did not fail.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Says {
    Created,
    PushedBefore,
}

impl Says {
    fn check(self, id: &str, output: &Output) -> Result<()> {
        let line = match self {
            Says::Created => format!("created {id}\n"),
            Says::PushedBefore => format!("{id} was pushed before\n"),
        };
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success() && said == line,
            "{id}: {self:?}: {output:?}"
        );
        Ok(())
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Payload<'a> {
    Argument(&'a str),
    Input(&'a [u8]),
}
