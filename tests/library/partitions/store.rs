//! Moves of a queue to another store, while it is in use.

use anyhow::Result;
use dueq::Client;

use super::live::has_all;
use super::traffic::{due, group};
use crate::support::{HOUR, push_all, setup};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_moves_to_another_server() -> Result<()> {
    let (here, there) = (setup().await?, setup().await?);
    let ids = group("far", 3_000);
    push_all(&here.queue, due(&ids, |_| HOUR)).await?;
    here.queue
        .move_to(&there.server.url(), Some(3))
        .without_rests()
        .await?;
    has_all(&there.queue, &ids, 3).await?;
    has_all(&here.queue, &ids, 3).await?;
    let fresh = Client::connect(&here.server.url()).await?.queue("orders")?;
    has_all(&fresh, &ids, 3).await
}
