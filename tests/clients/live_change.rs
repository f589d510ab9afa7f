//! All producers beside a change of the number of partitions.

use std::time::Duration;

use anyhow::{Result, ensure};
use dueq::Message;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::producer::{Producer, Says};
use crate::{QUEUE, languages, server};

/// The messages before the change. They move in several batches.
const STOCK: usize = 3_000;
/// The least time between two pushes of a producer, as five languages push on one machine.
const EVERY: Duration = Duration::from_millis(700);

/// Pushes new ids and ids of the stock until it is stopped. Returns how many were new.
async fn push(producer: Producer<'_>, name: &str, stop: CancellationToken) -> Result<usize> {
    let mut created = 0;
    let mut tick = tokio::time::interval(EVERY);
    while !stop.is_cancelled() {
        tick.tick().await;
        let new = format!("{name} {created}");
        producer.succeeds_with(&new, &[], Says::Created).await?;
        tick.tick().await;
        let known = format!("stock {}", created * 97 % STOCK);
        producer
            .succeeds_with(&known, &[], Says::PushedBefore)
            .await?;
        created += 1;
    }
    Ok(created)
}

pub(crate) async fn check() -> Result<()> {
    let (server, client) = server().await?;
    let queue = client.queue(QUEUE)?;
    let hour = Duration::from_secs(3600);
    let message = |n| Message::new("").id(format!("stock {n}")).delay(hour);
    for receipt in queue.push_many((0..STOCK).map(message)).await {
        ensure!(receipt?.is_created());
    }
    let mut producers = Vec::new();
    for language in languages::ALL {
        if let Some(programs) = language.programs()? {
            let (program, url) = (&programs.today, server.url());
            producers.push((language.name, Producer { program, url }));
        }
    }
    let (stop, mut pushes) = (CancellationToken::new(), JoinSet::new());
    for (name, producer) in producers {
        pushes.spawn(push(producer, name, stop.clone()));
    }
    queue.partition_into(3).await?;
    stop.cancel();
    let mut created = 0;
    while let Some(pushed) = pushes.join_next().await {
        created += pushed??;
    }
    ensure!(queue.partitions().await?.len() == 3);
    // Nothing is lost, and nothing is stored twice.
    let stored = queue.stats().await?.scheduled;
    ensure!(
        stored == (STOCK + created) as u64,
        "{stored} are stored, {created} of them are new"
    );
    Ok(())
}
