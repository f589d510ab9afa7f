//! The rights of the processes' user, which an operator takes away for a while.

use anyhow::Result;
use dueq_testkit::cluster::{command, connection};
use fastrand::Rng;

use super::{Mark, last, until};

/// The arguments of a server that create the user of all processes of the workload. The harness and
/// the servers among themselves are the default user.
pub(crate) const ARGUMENTS: [&str; 7] = [
    "--user",
    "app",
    "on",
    ">right-password",
    "~*",
    "&*",
    "+@all",
];
/// The same user in a URL.
pub(crate) const IN_URL: &str = "app:right-password@";
/// How long the user is without rights, in ms: the worker's lease may end meanwhile, or not.
const GONE_MS: std::ops::Range<u64> = 1_000..5_000;

/// The user may call nothing, or its password is another one and its connections are closed. `port`
/// is that of a server.
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

/// What the user was refused.
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

/// How many errors of this code the server has returned since its start.
async fn errors(port: u16, code: &str) -> Result<u64> {
    let info: String = redis::cmd("INFO")
        .arg("errorstats")
        .query_async(&mut connection(port).await?)
        .await?;
    let prefix = format!("errorstat_{code}:count=");
    let count = info.lines().find_map(|line| line.strip_prefix(&*prefix));
    Ok(count.map_or(Ok(0), |count| count.trim().parse())?)
}
