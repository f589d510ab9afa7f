//! The life of a message, as a queue keeps it if it is told to.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::inspect::EndKind;
use dueq::{Message, QueueLimits};

use crate::support::{HOUR, ids, push_and_claim, setup};

#[tokio::test]
async fn a_life_is_told_until_its_end_and_after_it() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    assert_eq!(queue.stats().await?.keep_life_ms, None, "off unless set");
    queue
        .configure(QueueLimits::new().keep_life_for(HOUR))
        .await?;
    assert_eq!(queue.stats().await?.keep_life_ms, Some(3_600_000));
    let delivery = push_and_claim(queue, Message::new("").id("a")).await?;
    let _ = delivery.retry(Duration::ZERO, "time\nout").await?;
    let stored = queue.get("a").await?.context("it waits")?;
    let [push, retry] = &stored.life[..] else {
        anyhow::bail!("{:?}", stored.life)
    };
    assert_eq!((push.what.as_str(), push.due_ms), ("push", retry.due_ms));
    assert_eq!(
        (retry.what.as_str(), retry.error.as_str()),
        ("retry", "time out")
    );
    assert!(retry.began_ms >= push.due_ms && retry.ran_ms().is_some());

    let delivery = queue.claim(1, HOUR).await?.pop().context("it is due")?;
    let _ = delivery.ack().await?;
    let life = queue.life_of("a").await?;
    let what: Vec<_> = life.iter().map(|event| event.what.as_str()).collect();
    assert_eq!(what, ["push", "retry", "ack"]);
    let end = queue.end_of("a").await?.context("its life tells it")?;
    assert_eq!(end.kind, EndKind::Finished);

    queue.configure(QueueLimits::new().keep_no_life()).await?;
    assert_eq!(queue.stats().await?.keep_life_ms, None);
    Ok(())
}

#[tokio::test]
async fn lives_go_with_their_messages_to_other_partitions() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue
        .configure(QueueLimits::new().keep_life_for(HOUR))
        .await?;
    let ids = ids(20);
    for id in &ids {
        queue.push("").id(id).delay(HOUR).await?;
        let _ = queue.reschedule(id, 2 * HOUR).await?;
    }
    let (ended, waiting) = ids.split_at(5);
    for id in ended {
        let _ = queue.cancel(id).await?;
    }
    // The lives of ended messages stay behind. The change does not wait for their end.
    queue.partition_into(3).await?;
    for id in waiting {
        let life = queue.life_of(id).await?;
        let what: Vec<_> = life.iter().map(|event| event.what.as_str()).collect();
        assert_eq!(what, ["push", "reschedule"], "{id}");
    }
    let queue_is = queue.stats().await?;
    assert_eq!(
        (queue_is.scheduled, queue_is.keep_life_ms),
        (15, Some(3_600_000))
    );
    Ok(())
}
