//! Due times, workers, errors, backlogs, searches, examinations and events.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::Delivery;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::instance::{Instance, LATER};
use crate::{assert_has, assert_refused};

/// Reads from a stream until this text has arrived.
async fn read_until(stream: &mut tokio::net::TcpStream, text: &str) -> Result<String> {
    let mut read = String::new();
    let mut part = vec![0; 4_096];
    while !read.contains(text) {
        let next = tokio::time::timeout(Duration::from_secs(60), stream.read(&mut part));
        let length = next.await.context("nothing comes")??;
        anyhow::ensure!(length > 0, "the stream ended: {read}");
        read.push_str(&String::from_utf8_lossy(&part[..length]));
    }
    Ok(read)
}

#[tokio::test(flavor = "multi_thread")]
async fn dues_count_messages_between_the_given_times() -> Result<()> {
    let instance = Instance::open().await?;
    instance.queue("orders").await?;
    let base = "GET /v1/queues/orders/dues";
    let steps = instance
        .read(&format!("{base}?step_ms=2400000&count=2"))
        .await?;
    let counts = |dues: &serde_json::Value| -> Vec<u64> {
        let slots = dues["slots"].as_array().into_iter().flatten();
        slots.filter_map(|slot| slot["count"].as_u64()).collect()
    };
    assert_eq!(counts(&steps), [0, 0, 1], "{steps}");
    let last = steps["last_ms"].as_u64().context("a time")?;
    let times = format!("{base}?times={last},{}", last + 1);
    assert_eq!(counts(&instance.read(&times).await?), [0, 1, 0]);
    let hour = instance.read(base).await?;
    assert_eq!(counts(&hour).len(), 61, "{hour}");
    for query in [
        "?times=",
        "?times=2,1",
        "?times=1,1",
        "?times=-1",
        "?times=1e3",
        "?times=1&count=2",
        "?step_ms=0&count=1",
        "?step_ms=1&count=61",
        "?times=9999999999999999",
    ] {
        let answer = instance.call(&format!("{base}{query}")).await?;
        assert_refused!(&answer, 400, "invalid_input", "{query}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn backlog_and_errors_count_one_queue() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let soon = Duration::from_secs(250);
    queue.push("x").id("1").delay(soon).await?;
    let worker = queue.worker().spawn(|delivery: Delivery| async move {
        drop(delivery.bury("the bank is closed\nline 2").await)
    })?;
    for id in ["a", "b", "c", "d"] {
        queue.push("x").id(id).await?;
    }
    let end = std::time::Instant::now() + Duration::from_secs(60);
    let errors = loop {
        let errors = instance.read("GET /v1/queues/orders/errors").await?;
        if errors["read"] == 4 {
            break errors;
        }
        anyhow::ensure!(std::time::Instant::now() < end, "{errors}");
    };
    let group = &errors["groups"][0];
    assert_has!(group, { "error": "the bank is closed", "count": 4 });
    assert_eq!(
        group["examples"].as_array().map(Vec::len),
        Some(3),
        "{errors}"
    );
    let nodes = instance.read("GET /v1/queues/orders/nodes").await?;
    assert_eq!(nodes["nodes"].as_array().map(Vec::len), Some(1), "{nodes}");
    let backlog = instance.read("GET /v1/queues/orders/backlog").await?;
    assert_eq!(
        (
            &backlog["due_now"],
            &backlog["due_in_300_s"],
            &backlog["dead"],
            &backlog["scheduled"]
        ),
        (&json!(0), &json!(1), &json!(4), &json!(1)),
        "{backlog}"
    );
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn search_covers_only_queues_of_the_caller() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    for name in ["orders", "other-1", "other-2"] {
        instance.queue(name).await?;
    }
    let queues = async |who: &str, id: &str| -> Result<Vec<String>> {
        let line = format!("GET /v1/search?id={id}");
        let found = instance.read_as(who, &line).await?;
        let found = found["found"].as_array().context("a list")?.clone();
        Ok(found
            .iter()
            .filter_map(|hit| Some(hit["queue"].as_str()?.to_owned()))
            .collect())
    };
    assert_eq!(
        queues("viewer", "1").await?,
        ["orders", "other-1", "other-2"]
    );
    assert_eq!(
        queues("viewer", "~MQ").await?,
        ["orders", "other-1", "other-2"]
    );
    assert_eq!(queues("foreigner", "1").await?, ["other-1", "other-2"]);
    assert!(queues("viewer", "2").await?.is_empty());
    for id in ["", "~!", "%00", &"x".repeat(201)] {
        let answer = instance
            .ask_as("viewer", &format!("GET /v1/search?id={id}"), "")
            .await?;
        assert_refused!(&answer, 400, "invalid_input", "{id}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn search_calls_scripts_only_where_an_id_may_be() -> Result<()> {
    let instance = Instance::open().await?;
    for number in 0..20 {
        instance.queue(&format!("q-{number}")).await?;
    }
    instance
        .client
        .queue("q-7")?
        .push("x")
        .id("2")
        .delay(LATER)
        .await?;
    // Of the scripts that run here only `get` has ZMSCORE: for an id that is not in its queue.
    let calls = || -> Result<u64> {
        let info = instance.redis.command(&["INFO", "commandstats"])?;
        let line = info
            .lines()
            .find(|line| line.starts_with("cmdstat_zmscore"));
        let calls = line.and_then(|line| line.split(['=', ',']).nth(1));
        Ok(calls.unwrap_or("0").parse()?)
    };
    crate::queues::lists::list_until(&instance, |list| list["complete"] == true).await?;
    let before = calls()?;
    let found = instance.read("GET /v1/search?id=2").await?;
    let hit = (&found["asked"], &found["found"][0]["queue"]);
    assert_eq!(hit, (&20.into(), &"q-7".into()), "{found}");
    assert_eq!(found["found"].as_array().map(Vec::len), Some(1), "{found}");
    assert_eq!(calls()? - before, 0, "calls of `get` in vain");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn examinations_have_findings_with_remedies() -> Result<()> {
    let instance = Instance::open().await?;
    instance.queue("orders").await?;
    instance
        .redis
        .command(&["HSET", "dueq:{orders}:meta", "test", "1"])?;
    let queue = instance.read("GET /v1/queues/orders/doctor").await?;
    let finding = &queue["findings"][0];
    assert_eq!(finding["code"], "meta", "{queue}");
    assert!(
        finding["remedy"]
            .as_str()
            .is_some_and(|text| text.contains("dueq")),
        "{queue}"
    );
    let server = instance.read("GET /v1/doctor").await?;
    assert!(
        server["findings"].is_array() && server["age_ms"].is_u64(),
        "{server}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_sends_each_change_and_ends_at_the_stop() -> Result<()> {
    let mut instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    let mut stream = instance.connect().await?;
    let head = format!(
        "GET /v1/events?queues=orders,absent HTTP/1.1\r\nHost: {}\r\n\r\n",
        instance.address
    );
    stream.write_all(head.as_bytes()).await?;
    let first = read_until(&mut stream, "\"scheduled\":1").await?;
    for part in [
        "200 OK",
        "text/event-stream",
        "x-accel-buffering: no",
        "event: queues\ndata: {",
    ] {
        assert!(first.contains(part), "{first}");
    }
    queue
        .push("x")
        .id("2")
        .delay(Duration::from_secs(60))
        .await?;
    read_until(&mut stream, "\"scheduled\":2").await?;
    instance.stop.cancel();
    read_until(&mut stream, "retry: 2000").await?;
    instance.stopped().await
}

#[tokio::test(flavor = "multi_thread")]
async fn event_stream_refuses_invalid_and_foreign_queues() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let many = vec!["q"; 21].join(",");
    for queues in [
        "queues=",
        "queues=a%2Fb",
        "",
        "queues=a,,b",
        &format!("queues={many}"),
    ] {
        let answer = instance
            .ask_as("viewer", &format!("GET /v1/events?{queues}"), "")
            .await?;
        assert_refused!(&answer, 400, "invalid_input", "{queues}");
    }
    let answer = instance
        .ask_as("foreigner", "GET /v1/events?queues=other-1,orders", "")
        .await?;
    assert_refused!(&answer, 403, "foreign_queue");
    Ok(())
}
