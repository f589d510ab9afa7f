//! Runs each producer of `examples/clients/` as a user would. The library must then claim exactly
//! the pushed bytes.
//!
//! The test skips a language without toolchain or client package and names it on stderr. It
//! installs packages once, into `target/clients/`.

mod install;
mod languages;
mod live_change;
mod partitions;
mod producer;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dueq::{Client, OnExpire, Queue};
use dueq_testkit::Server;

use languages::Language;
use producer::{Payload, Producer, Says};

const QUEUE: &str = "die größte, Nr. 1: \"orders\"";
const LIMIT: Duration = Duration::from_secs(60);

/// Starts a server with the functions.
async fn server() -> Result<(Server, Client)> {
    let server = Server::start(&[])?;
    let client = Client::connect(&server.url()).await?;
    client.load_functions().await?;
    Ok((server, client))
}

/// Checks everything that a producer must do, unless this language is skipped.
async fn check(language: &Language) -> Result<()> {
    let Some(programs) = language.programs()? else {
        return Ok(());
    };
    let began = Instant::now();
    let producer = |program, server: &Server| Producer {
        program,
        url: server.url(),
    };
    let empty = Server::start(&[])?;
    producer(&programs.today, &empty)
        .fails("early", "0", "Function not found")
        .await?;
    let ((server, client), (partitioned, _)) = (server().await?, server().await?);
    let queue = client.queue(QUEUE)?;
    tokio::try_join!(
        exact_bytes(producer(&programs.today, &server), &queue),
        partitions::check(producer(&programs.today, &partitioned)),
    )?;

    let frozen = producer(&programs.frozen, &server);
    let payload = Payload::Argument("{}");
    frozen.succeeds("from 0.1", payload, Says::Created).await?;
    frozen
        .succeeds("empty input", payload, Says::PushedBefore)
        .await?;
    let mut found = claim_all(&queue, 2).await?;
    found.sort();
    ensure!(
        found[1] == (b"from 0.1".to_vec(), b"{}".to_vec()),
        "{found:?}"
    );
    println!("{}: {:?}", language.name, began.elapsed());
    Ok(())
}

/// Pushes all kinds of ids and payloads, and claims the same.
async fn exact_bytes(producer: Producer<'_>, queue: &Queue) -> Result<()> {
    let mebibyte: Vec<u8> = (0..1_048_576_u32)
        .map(|place| (place * 7 + place / 256) as u8)
        .collect();
    let messages: [(&str, Payload<'_>); 7] = [
        ("order:42", Payload::Argument("{\"order\": \"42\"}")),
        ("a b  c", Payload::Argument("für 😀 $HOME `x` 'y'")),
        ("größe:😀", Payload::Input(b"\0NUL\0\r\n\0")),
        (" : ", Payload::Input(b"\xff\xfe\x80 no UTF-8 \xc3\n\n")),
        ("1 MiB", Payload::Input(&mebibyte)),
        ("empty", Payload::Argument("")),
        ("empty input", Payload::Input(b"")),
    ];
    for (id, payload) in messages {
        producer.succeeds(id, payload, Says::Created).await?;
    }
    producer
        .succeeds("empty", Payload::Argument("other"), Says::PushedBefore)
        .await?;
    producer.fails("negative", "-5", "INVALID due").await?;

    let mut found = claim_all(queue, messages.len()).await?;
    for (id, payload) in messages {
        let expected = match payload {
            Payload::Argument(text) => text.as_bytes(),
            Payload::Input(bytes) => bytes,
        };
        let place = found
            .iter()
            .position(|(found, _)| found == id.as_bytes())
            .with_context(|| id.to_owned())?;
        ensure!(
            found.swap_remove(place).1 == expected,
            "{id}: another payload"
        );
    }
    producer
        .succeeds("empty input", Payload::Argument("acked"), Says::Created)
        .await?;
    ensure!(queue.stats().await?.pushed == messages.len() as u64 + 1);

    let options = ["expires=+7200000", "on_expire=drop"];
    producer
        .succeeds_with("options", &options, Says::Created)
        .await?;
    let stored = queue.get("options").await?.context("the message")?;
    ensure!(
        stored.expires_after_ms == Some(7_200_000) && stored.on_expire == OnExpire::Drop,
        "{stored:?}"
    );
    Ok(())
}

/// Waits until `good` returns true.
async fn until(what: &str, mut good: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !good().await? {
        ensure!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Claims and acks this many messages and returns their ids and payloads.
async fn claim_all(queue: &Queue, count: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let (start, mut found) = (Instant::now(), Vec::new());
    while found.len() < count {
        ensure!(
            start.elapsed() < LIMIT,
            "{} of {count}: {:?}",
            found.len(),
            queue.stats().await
        );
        for delivery in queue.claim(count, LIMIT).await? {
            found.push((delivery.id_bytes().to_vec(), delivery.payload().to_vec()));
            assert_eq!(delivery.ack().await?, dueq::outcomes::SettleOutcome::Done);
        }
    }
    Ok(found)
}

// It takes 14 s, most of them idle, so its name lets the harness start it first.
#[tokio::test]
async fn all_producers_push_while_partitions_change() -> Result<()> {
    live_change::check().await
}

#[tokio::test]
async fn shell_producer_pushes_exact_bytes() -> Result<()> {
    check(&languages::SHELL).await
}

#[tokio::test]
async fn python_producer_pushes_exact_bytes() -> Result<()> {
    check(&languages::PYTHON).await
}

#[tokio::test]
async fn javascript_producer_pushes_exact_bytes() -> Result<()> {
    check(&languages::JAVASCRIPT).await
}

#[tokio::test]
async fn go_producer_pushes_exact_bytes() -> Result<()> {
    check(&languages::GO).await
}

#[tokio::test]
async fn java_producer_pushes_exact_bytes() -> Result<()> {
    check(&languages::JAVA).await
}
