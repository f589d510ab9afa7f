//! A fault that takes rights away from the processes' user for a while, as an operator could.

use anyhow::Result;
use dueq_testkit::cluster::{command, connection};
use fastrand::Rng;

use super::{Mark, last, until};

/// Server arguments that create the user of all processes. The harness and the servers use the
/// default user.
pub(crate) const ARGUMENTS: [&str; 7] = [
    "--user",
    "app",
    "on",
    ">right-password",
    "~*",
    "&*",
    "+@all",
];
/// The user and password in a URL.
pub(crate) const IN_URL: &str = "app:right-password@";
/// How long the user is without rights, in ms. A worker's lease may expire in that time, or not.
const GONE_MS: std::ops::Range<u64> = 1_000..5_000;

/// Takes the user's right to all commands, or changes its password and closes its connections.
/// `port` is that of the server.
pub(crate) async fn take(port: u16, rng: &mut Rng) -> Result<Taken> {
    let is_password = rng.bool();
    let (code, taken, back): (_, &[&str], &[&str]) = match is_password {
        true => (
            "WRONGPASS",
            &["resetpass", ">other-password"],
            &["resetpass", ">right-password"],
        ),
        false => ("NOPERM", &["-@all"], &["+@all"]),
    };
    let before = errors(port, code).await?;
    set(port, taken).await?;
    if is_password {
        command::<u64>(port, &["CLIENT", "KILL", "USER", "app"]).await?;
    }
    let seen = async {
        until("a call that is refused for want of rights", async || {
            Ok((errors(port, code).await? > before).then_some(()))
        })
        .await?;
        last(rng, GONE_MS).await;
        anyhow::Ok(errors(port, code).await? - before)
    };
    let seen = seen.await;
    set(port, back).await?;
    Ok(Taken {
        code,
        refused: seen?,
    })
}

/// The error code with which the user's calls are refused.
pub(crate) struct Taken {
    code: &'static str,
    refused: u64,
}

impl Taken {
    pub(crate) fn trace(&self, mark: &Mark<'_>) {
        mark.trace(&format!(
            "{} calls refused with {}",
            self.refused, self.code
        ));
    }
}

async fn set(port: u16, words: &[&str]) -> Result<()> {
    command(port, &[&["ACL", "SETUSER", "app"], words].concat()).await
}

/// The number of errors with this code that the server has returned since its start.
async fn errors(port: u16, code: &str) -> Result<u64> {
    let info: String = redis::cmd("INFO")
        .arg("errorstats")
        .query_async(&mut connection(port).await?)
        .await?;
    let prefix = format!("errorstat_{code}:count=");
    let count = info.lines().find_map(|line| line.strip_prefix(&*prefix));
    Ok(count.map_or(Ok(0), |count| count.trim().parse())?)
}
