//! Overload: storms, idle connections and large purges.

use std::io::ErrorKind::WouldBlock;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{Client, Message, MessageState};
use tokio::net::TcpStream;

use super::{LIMIT, Mark, NoTarget};
use crate::run::stage::{ASIDE, Stage};

const IDLE: u64 = 10_000;
/// The number of file descriptors that are kept free for other uses of this process.
const OTHER_FILES: u64 = 1_000;
const PURGED: usize = 2_000;

/// How long before its due time a storm is pushed, in ms.
pub(super) fn storm_lead_ms(size: u64) -> u64 {
    2_500 + size / 5
}

/// The most storms: if another fault makes pushes of a storm fail until its second is over, another
/// storm is pushed.
const STORMS: u32 = 4;

/// Pushes many messages that are due within one second.
pub(super) async fn storm(stage: &Arc<Stage>, mark: &Mark<'_>) -> Result<()> {
    let size = stage.storm_size();
    mark.begin(&format!("{size} messages"));
    let mut most = 0;
    for storm in 1..=STORMS {
        most = storm_once(stage, &format!("s{}-{storm}", mark.number), size).await?;
        if most > size / 2 {
            break;
        }
        stage.log.say(&format!(
            "{most} of {size} messages were waiting before their second; another storm follows"
        ));
    }
    mark.end("");
    if most <= size / 2 {
        return Err(NoTarget(format!(
            "{most} of {size} messages were waiting before that second: too few"
        ))
        .into());
    }
    mark.trace(&format!("{most} were waiting for that second"));
    Ok(())
}

/// Pushes one storm. Returns the most of its messages that were scheduled at once before their
/// second.
async fn storm_once(stage: &Arc<Stage>, name: &str, size: u64) -> Result<u64> {
    let time_ms = super::until("the server's time", async || {
        stage.store().time_ms().await.map(Some)
    })
    .await?;
    let due_ms = u64::try_from(time_ms)? + storm_lead_ms(size);
    let pushing = stage.start_storm(name, size, due_ms).await?;
    let key = format!("dueq:{{{}}}:scheduled", stage.queue());
    let mut most = 0;
    while u64::try_from(stage.store().time_ms().await.unwrap_or(0))? < due_ms {
        let last_ms = (due_ms + 999).to_string();
        // Ignore errors: the server may be unreachable for a while.
        if let Ok(count) = stage
            .store()
            .command::<u64>(&["ZCOUNT", &key, &due_ms.to_string(), &last_ms])
            .await
        {
            most = most.max(count);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    pushing
        .done(Duration::from_millis(storm_lead_ms(size)) + 3 * LIMIT)
        .await?;
    Ok(most)
}

/// Opens idle connections directly to the server, past the proxies.
pub(super) async fn idle_connections(stage: &Stage, mark: &Mark<'_>) -> Result<()> {
    let wanted = IDLE.min(stage.file_limit.saturating_sub(OTHER_FILES));
    mark.begin(&format!("{wanted} connections"));
    let (mut open, mut port, many) = (Vec::new(), 0, usize::try_from(wanted)?);
    // A busy server accepts slowly; a lost SYN is sent again after 1 s, and after 2 s more.
    let seen = super::until_within(3 * LIMIT, "so many clients", async || {
        // Replace connections that a restart has closed, or that lead to a replaced server. While
        // the server is unreachable, none can connect.
        if std::mem::replace(&mut port, stage.store().port) != port {
            open.clear();
        }
        open.retain(|stream: &TcpStream| matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == WouldBlock));
        while open.len() < many {
            let connecting = TcpStream::connect(("127.0.0.1", port));
            open.push(tokio::time::timeout(Duration::from_secs(5), connecting).await??);
        }
        let clients: u64 = stage
            .store()
            .info("clients", "connected_clients")
            .await?
            .parse()?;
        Ok((clients >= wanted).then_some(clients))
    });
    mark.trace(&format!("{} clients", seen.await?));
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(open);
    mark.end("");
    Ok(())
}

/// Fills and purges a queue beside the workload's, past the proxies.
pub(super) async fn purge_beside(stage: &Stage, mark: &Mark<'_>) -> Result<()> {
    mark.begin("");
    let purged = super::until("a purge", async || {
        let aside = Client::connect(stage.store().url()).await?.queue(ASIDE)?;
        let hour = Duration::from_secs(3_600);
        let messages =
            (0..PURGED).map(|number| Message::new("").id(format!("a-{number}")).due(hour));
        aside.push_many(messages).await;
        let purged = aside.purge(MessageState::Scheduled).await?;
        Ok((purged > 0).then_some(purged))
    });
    mark.trace(&format!(
        "{} messages",
        purged.await.context("of the queue beside")?
    ));
    mark.end("");
    Ok(())
}
