//! Faults of the server's client connections, scripts and functions.

use anyhow::{Context, Result};

use super::{Mark, target, until};
use crate::run::stage::Stage;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whom {
    Subscribers,
    Blocked,
    Everyone,
}

pub(super) async fn kill(stage: &Stage, mark: &Mark<'_>, whom: Whom) -> Result<()> {
    let mut begun = false;
    // A worker blocks only while idle, and subscribes again after another fault: so wait for a
    // connection.
    let killed = target("connection to kill", async || {
        let types: &[&str] = match whom {
            Whom::Subscribers => &["pubsub"],
            Whom::Blocked => &["normal"],
            Whom::Everyone => &["normal", "pubsub"],
        };
        let (mut killed, mut connection) = (0, stage.store().connection().await?);
        for kind in types {
            let list: String = redis::cmd("CLIENT")
                .arg(&["LIST", "TYPE", kind])
                .query_async(&mut connection)
                .await?;
            let found: Vec<_> = list.lines().filter(|line| is_target(line, whom)).collect();
            // An empty pipeline would be an error, which differs from finding no connection.
            if found.is_empty() {
                continue;
            }
            if !std::mem::replace(&mut begun, true) {
                mark.begin("");
            }
            let mut kills = redis::pipe();
            if whom == Whom::Blocked {
                // In one round trip, because a client is blocked only for a short time.
                for line in found {
                    let id = field(line, "id=");
                    kills.cmd("CLIENT").arg(&["KILL", "ID", id]);
                }
            } else {
                // One search for all of them: each search by ID goes through up to 10,000 idle
                // clients.
                let kill = ["KILL", "TYPE", kind, "SKIPME", "yes"];
                kills.cmd("CLIENT").arg(&kill);
            }
            killed += kills
                .query_async::<Vec<u64>>(&mut connection)
                .await?
                .into_iter()
                .sum::<u64>();
        }
        Ok((killed > 0).then_some(killed))
    });
    mark.trace(&format!("{} connections", killed.await?));
    mark.end("");
    Ok(())
}

/// Whether a line of CLIENT LIST is about a connection of this kind, and not about the harness's
/// own.
fn is_target(line: &str, whom: Whom) -> bool {
    let is_ours = field(line, "cmd=") == "client|list";
    !is_ours && (whom != Whom::Blocked || field(line, "flags=").contains('b'))
}

fn field<'a>(line: &'a str, name: &str) -> &'a str {
    line.split(' ')
        .find_map(|word| word.strip_prefix(name))
        .unwrap_or_default()
}

/// The size of a notice; 128 of them are sent in one transaction. Valkey 9 sends a string of 16 KiB
/// or more without a copy and does not count it as output, so one long notice would cut no
/// connection.
const NOTICE_BYTES: usize = 8 << 10;
const NOTICES: usize = 128;

/// Publishes 1 MiB of notices to subscribers whose output may not exceed 64 KiB: the server closes
/// their connections.
pub(super) async fn slow_subscriber(stage: &Stage, mark: &Mark<'_>) -> Result<()> {
    let limit = async |words: &str| {
        stage
            .store()
            .command::<()>(&["CONFIG", "SET", "client-output-buffer-limit", words])
            .await
    };
    let channel = format!("dueq:{{{}}}:notice", stage.queue());
    target("subscriber", async || {
        let (_, subscribers): (String, u64) = stage
            .store()
            .command(&["PUBSUB", "SHARDNUMSUB", &channel])
            .await?;
        Ok((subscribers > 0).then_some(()))
    })
    .await?;
    mark.begin("");
    limit("pubsub 65536 0 0").await?;
    let cut = until("a subscriber that is cut", async || {
        let cut = flood(stage, &channel).await?;
        Ok((cut > 0).then_some(cut))
    });
    let cut = cut.await;
    limit("pubsub 33554432 8388608 60").await?;
    mark.trace(&format!("{} subscribers cut", cut?));
    mark.end("");
    Ok(())
}

/// Publishes the notices. Returns how many subscribers the server closes because of them. Within a
/// transaction the server sends nothing, and CLIENT LIST in it marks the clients to be closed (flag
/// A): so a subscriber whose worker dies at that moment is not counted.
async fn flood(stage: &Stage, channel: &str) -> Result<usize> {
    let notice = "9".repeat(NOTICE_BYTES);
    let mut transaction = redis::pipe();
    transaction.atomic();
    for _ in 0..NOTICES {
        transaction
            .cmd("SPUBLISH")
            .arg(&[channel, &notice])
            .ignore();
    }
    transaction.cmd("CLIENT").arg(&["LIST", "TYPE", "pubsub"]);
    let mut connection = stage.store().connection().await?;
    let (list,): (String,) = transaction.query_async(&mut connection).await?;
    let is_cut = |line: &&str| field(line, "flags=").contains('A');
    Ok(list.lines().filter(is_cut).count())
}

pub(super) async fn script_flush(stage: &Stage, mark: &Mark<'_>) -> Result<()> {
    let unknown = stage.store().errors("NOSCRIPT").await?;
    mark.begin("");
    stage.store().command::<()>(&["SCRIPT", "FLUSH"]).await?;
    let seen = until("a call of a script that is unknown", async || {
        let now = stage.store().errors("NOSCRIPT").await?;
        Ok((now > unknown).then_some(now - unknown))
    });
    mark.trace(&format!("{} calls of unknown scripts so far", seen.await?));
    mark.end("");
    Ok(())
}

/// Deletes the Functions library. Processes call scripts, so only the harness's own FCALL fails;
/// the processes must not notice.
pub(super) async fn function_flush(stage: &Stage, mark: &Mark<'_>) -> Result<()> {
    let version = async || {
        stage
            .store()
            .command::<u64>(&["FCALL", "dueq_version", "0"])
            .await
    };
    let code = dueq::admin::functions_code();
    let load = async || {
        stage
            .store()
            .command::<String>(&["FUNCTION", "LOAD", "REPLACE", &code])
            .await
    };
    load().await?;
    let known = version().await?;
    mark.begin(&format!("version {known}"));
    stage.store().command::<()>(&["FUNCTION", "FLUSH"]).await?;
    let error = version()
        .await
        .err()
        .context("a function that was flushed was called")?;
    mark.trace(&format!("{:#}", error));
    load().await?;
    mark.end(&format!("version {}", version().await?));
    Ok(())
}
