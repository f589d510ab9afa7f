//! The Functions library on the server: clients load it, and never replace a newer one. The Rust
//! library works without it.

use anyhow::{Context, Result};
use dueq::Client;
use dueq::admin::FunctionsStatus;
use dueq::outcomes::PushOutcome;
use dueq_testkit::cluster::Cluster;

use super::support::*;

/// The source of a Functions library with this version, as another release would have it.
fn of_version(version: u64) -> String {
    let (ours, theirs) = (
        format!("return {}\n", dueq::admin::functions_version()),
        format!("return {version}\n"),
    );
    let code = dueq::admin::functions_code();
    assert_eq!(code.matches(&ours).count(), 1);
    code.replace(&ours, &theirs)
}

/// Pushes by FCALL and returns the reply.
async fn push(setup: &Setup, id: &str) -> Result<String> {
    let mut words = vec!["FCALL".to_owned(), "dueq_push".to_owned(), "10".to_owned()];
    let suffixes = [
        "scheduled",
        "ready",
        "leases",
        "claims",
        "messages",
        "attrs",
        "dead",
        "recent",
        "nodes",
        "meta",
    ];
    words.extend(suffixes.map(|suffix| format!("dueq:{{orders}}:{suffix}")));
    words.extend(["", "", id, "+0", "payload", ""].map(str::to_owned));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (_, mut items): (redis::Value, Vec<String>) = setup.command(&words).await?;
    items.pop().context("no result")
}

#[tokio::test]
async fn functions_library_survives_a_restart() -> Result<()> {
    let mut setup = setup_with(&["--appendonly", "yes", "--appendfsync", "always"]).await?;
    assert_eq!(setup.client.functions().await?, FunctionsStatus::Absent);
    assert_eq!(
        setup.client.load_functions().await?,
        FunctionsStatus::Absent
    );
    assert_eq!(push(&setup, "before").await?, "CREATED");

    setup.server.restart()?;
    assert_eq!(setup.client.functions().await?, FunctionsStatus::Current);
    assert_eq!(push(&setup, "before").await?, "EXISTS scheduled");
    assert_eq!(push(&setup, "after").await?, "CREATED");
    let mut claimed: Vec<_> = claim(&setup.queue, 2)
        .await?
        .iter()
        .map(|one| one.id().into_owned())
        .collect();
    claimed.sort();
    assert_eq!(claimed, ["after", "before"]);
    Ok(())
}

#[tokio::test]
async fn only_an_older_functions_library_is_replaced() -> Result<()> {
    let setup = setup().await?;
    let current = dueq::admin::functions_version();
    for (version, found, then) in [
        (
            current - 1,
            FunctionsStatus::Older(current - 1),
            FunctionsStatus::Current,
        ),
        (current, FunctionsStatus::Current, FunctionsStatus::Current),
        (
            current + 1,
            FunctionsStatus::Newer(current + 1),
            FunctionsStatus::Newer(current + 1),
        ),
    ] {
        let _: String = setup
            .command(&["FUNCTION", "LOAD", "REPLACE", &of_version(version)])
            .await?;
        assert_eq!(setup.client.functions().await?, found);
        assert_eq!(setup.client.load_functions().await?, found);
        assert_eq!(setup.client.functions().await?, then);
    }
    Ok(())
}

#[tokio::test]
async fn the_client_works_without_the_functions_library() -> Result<()> {
    let setup = setup().await?;
    setup.client.load_functions().await?;
    assert_eq!(setup.queue.push("1").id("one").await?, PushOutcome::Created);

    let _: String = setup.command(&["FUNCTION", "FLUSH", "SYNC"]).await?;
    assert!(
        push(&setup, "two")
            .await
            .is_err_and(|error| format!("{error:#}").contains("Function not found"))
    );
    assert_eq!(setup.queue.push("2").id("two").await?, PushOutcome::Created);
    assert_eq!(setup.client.functions().await?, FunctionsStatus::Absent);
    assert_eq!(claim(&setup.queue, 2).await?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_promoted_replica_has_the_functions_library() -> Result<()> {
    let setup = setup().await?;
    setup.client.load_functions().await?;
    assert_eq!(push(&setup, "before").await?, "CREATED");
    let replica = dueq_testkit::Server::start(&[
        "--replicaof",
        "127.0.0.1",
        &setup.server.port().to_string(),
    ])?;
    let mut redis = connection(&replica.url()).await?;
    let read = async || {
        Ok(command(&mut redis, &["FCALL_RO", "dueq_version", "0"])
            .await
            .unwrap_or(0))
    };
    until("the replica's library", read, |version: &u64| {
        *version == dueq::admin::functions_version()
    })
    .await?;

    let _: String = command(&mut redis, &["REPLICAOF", "NO", "ONE"]).await?;
    let client = dueq::Client::connect(&replica.url()).await?;
    let taken_over = Setup {
        queue: client.queue("orders")?,
        client,
        server: replica,
    };
    assert_eq!(push(&taken_over, "before").await?, "EXISTS scheduled");
    assert_eq!(push(&taken_over, "after").await?, "CREATED");
    Ok(())
}

#[tokio::test]
async fn every_master_of_a_cluster_gets_the_functions_library() -> Result<()> {
    let cluster = Cluster::start(2).await?;
    let client = Client::connect(&cluster.url()).await?;
    assert_eq!(client.load_functions().await?, FunctionsStatus::Absent);
    for master in [0, 1] {
        let call = ["FCALL", "dueq_version", "0"];
        let version: u64 = cluster.command(master, &call).await?;
        assert_eq!(version, dueq::admin::functions_version());
    }
    let flush = ["FUNCTION", "FLUSH", "SYNC"];
    cluster.command::<()>(1, &flush).await?;
    assert_eq!(
        client.functions().await?,
        FunctionsStatus::Absent,
        "one of the primaries has none"
    );
    Ok(())
}
