//! A server whose memory is full, or that would evict keys.

use anyhow::Result;
use dueq::{Applied, Client, ErrorKind, Message, Pushed};
use dueq_testkit::Server;

use crate::support::{HOUR, acking, setup, stats_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_server_rejects_pushes_until_it_is_drained() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    for number in 0..40 {
        queue
            .push(vec![b'x'; 50_000])
            .id(format!("{number}"))
            .await?;
    }
    let mut redis = setup.redis().await?;
    crate::support::command::<()>(&mut redis, &["CONFIG", "SET", "maxmemory", "1mb"]).await?;

    let refusals = queue
        .push_many((0..10).map(|n| Message::new("").id(format!("refused {n}")).due(HOUR)))
        .await;
    for refused in refusals {
        let error = refused.expect_err("full");
        assert_eq!(
            (error.kind(), error.was_applied()),
            (ErrorKind::Full, Applied::No),
            "{error}"
        );
        assert!(
            error.is_retryable() && error.to_string().contains("maxmemory"),
            "{error}"
        );
    }
    let error = queue.reschedule("1", HOUR).await.expect_err("full");
    assert_eq!(
        (error.kind(), error.was_applied()),
        (ErrorKind::Full, Applied::No),
        "{error}"
    );
    assert_eq!(queue.get("refused 0").await?, None);

    let (worker, mut seen) = acking(queue.worker());
    seen.take(40).await?;
    stats_until(queue, "all acked", |stats| stats.acked == 40).await?;
    worker.stop().await?;
    let stats = queue.stats().await?;
    assert_eq!((stats.pushed, stats.scheduled, stats.leased), (40, 0, 0));

    // The base memory of a server leaves no room within 1 MB.
    crate::support::command::<()>(&mut redis, &["CONFIG", "SET", "maxmemory", "20mb"]).await?;
    assert_eq!(queue.push("").id("refused 0").await?, Pushed::Created);
    Ok(())
}

#[tokio::test]
async fn a_server_that_evicts_is_refused_with_the_setting_to_change() -> Result<()> {
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random"] {
        let server = Server::start(&["--maxmemory-policy", policy])?;
        let error = Client::connect(&server.url()).await.expect_err("it evicts");
        assert_eq!(
            (error.kind(), error.was_applied()),
            (ErrorKind::Unsupported, Applied::No)
        );
        let text = error.to_string();
        assert!(
            text.contains(policy) && text.contains("CONFIG SET maxmemory-policy noeviction"),
            "{text}"
        );
    }
    // These policies evict only keys with a time to live.
    for policy in ["noeviction", "volatile-lru", "volatile-ttl"] {
        let server = Server::start(&["--maxmemory-policy", policy])?;
        Client::connect(&server.url()).await?;
    }
    Ok(())
}
