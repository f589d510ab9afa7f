//! What the server can be asked to do to its clients, and to forget.

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
    // A worker blocks only while it is idle, and subscribes again after another fault.
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
            if !found.is_empty() && !std::mem::replace(&mut begun, true) {
                mark.begin("");
            }
            // In one round trip: one that is blocked may not be for long.
            let mut kills = redis::pipe();
            for line in found {
                kills
                    .cmd("CLIENT")
                    .arg(&["KILL", "ID", field(line, "id="), "SKIPME", "yes"]);
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

/// Whether a line of CLIENT LIST is about such a connection, and not about ours.
fn is_target(line: &str, whom: Whom) -> bool {
    let is_ours = field(line, "cmd=") == "client|list";
    !is_ours && (whom != Whom::Blocked || field(line, "flags=").contains('b'))
}

fn field<'a>(line: &'a str, name: &str) -> &'a str {
    line.split(' ')
        .find_map(|word| word.strip_prefix(name))
        .unwrap_or_default()
}

/// A notice that is as long as no notice is, to subscribers who may not leave 64 KiB unread.
pub(super) async fn slow_subscriber(stage: &Stage, mark: &Mark<'_>) -> Result<()> {
    let limit = async |words: &str| {
        stage
            .store()
            .command::<()>(&["CONFIG", "SET", "client-output-buffer-limit", words])
            .await
    };
    target("subscriber", async || {
        Ok((!subscribers(stage).await?.is_empty()).then_some(()))
    })
    .await?;
    mark.begin("");
    limit("pubsub 65536 0 0").await?;
    let (channel, long) = (
        format!("dueq:{{{}}}:notice", stage.queue()),
        "9".repeat(1 << 20),
    );
    let cut = until("a subscriber that is cut", async || {
        let before = subscribers(stage).await?;
        stage
            .store()
            .command::<u64>(&["SPUBLISH", &channel, &long])
            .await?;
        let after = subscribers(stage).await?;
        let cut = before.iter().filter(|id| !after.contains(id)).count();
        Ok((cut > 0).then_some(cut))
    });
    let cut = cut.await;
    limit("pubsub 33554432 8388608 60").await?;
    mark.trace(&format!("{} subscribers cut", cut?));
    mark.end("");
    Ok(())
}

/// The ids of their connections.
async fn subscribers(stage: &Stage) -> Result<Vec<String>> {
    let list: String = stage
        .store()
        .command(&["CLIENT", "LIST", "TYPE", "pubsub"])
        .await?;
    Ok(list
        .lines()
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect())
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

/// Processes of dueq call scripts; so a client by FCALL is the one that sees this, and the others must not.
pub(super) async fn function_flush(stage: &Stage, mark: &Mark<'_>) -> Result<()> {
    let version = async || {
        stage
            .store()
            .command::<u64>(&["FCALL", "dueq_version", "0"])
            .await
    };
    let code = dueq::functions_code();
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
