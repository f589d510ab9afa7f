//! Inspection: one message, pages of messages, counts.

use anyhow::Result;
use dueq::{State, Stats};

use crate::support::{HOUR, LONG, setup};

#[tokio::test]
async fn queue_exists_from_its_first_push_to_its_deletion() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    assert!(!queue.exists().await?);
    assert_eq!(
        queue.stats().await?,
        Stats::default(),
        "reading creates no queue"
    );
    assert!(!queue.exists().await?);
    queue.push("").due(HOUR).await?;
    assert!(queue.exists().await?);
    assert!(queue.delete().await?);
    assert!(!queue.exists().await?);
    Ok(())
}

#[tokio::test]
async fn reading_an_absent_queue_finds_it_empty_and_creates_nothing() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    assert_eq!(queue.stats().await?, Stats::default());
    for state in [State::Scheduled, State::Ready, State::Leased, State::Dead] {
        let page = queue.list(state, None, 10).await?;
        assert!(page.messages.is_empty() && page.next.is_none(), "{state}");
    }
    assert_eq!(queue.claim(10, LONG).await?.len(), 0);
    assert_eq!(queue.purge(State::Scheduled).await?, 0);
    queue.resume().await?;
    assert_eq!(
        setup.command::<Vec<String>>(&["KEYS", "*"]).await?,
        Vec::<String>::new()
    );
    Ok(())
}

#[tokio::test]
async fn queues_of_one_server_know_nothing_of_each_other() -> Result<()> {
    let setup = setup().await?;
    let names = ["a", "a:b", "größe", "a b", "A", "1"];
    for name in names {
        setup
            .client
            .queue(name)?
            .push(name)
            .id("the same")
            .due(HOUR)
            .await?;
    }
    for name in names {
        let queue = setup.client.queue(name)?;
        assert_eq!(queue.name(), name);
        assert_eq!(queue.stats().await?.scheduled, 1, "{name}");
        assert_eq!(
            queue.get("the same").await?.expect("stored").payload,
            name.as_bytes()
        );
        assert_eq!(queue.purge(State::Scheduled).await?, 1);
    }
    Ok(())
}
