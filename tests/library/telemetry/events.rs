//! Names, levels and fields of spans and events must match docs/telemetry.md.
//!
//! A collector records one thread, so these tests use single-threaded runtimes.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{Delivery, Due, Message, Retry, Settlement};

use crate::support::{
    HOUR, LONG, Running, acking, holding, messages, push_all, push_and_claim, seen, setup, steal,
};
use crate::telemetry::collector::{Collector, Entry};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The only event of this name. Checks its level and the names of its fields.
async fn one(collector: &Collector, name: &str, level: &str, fields: &[&str]) -> Result<Entry> {
    let events = collector.wait(name, 1).await?;
    assert_eq!(events.len(), 1, "{events:?}");
    let event = events.into_iter().next().context("an event")?;
    assert_eq!(
        (event.level.as_str(), event.names()),
        (level, fields.to_vec()),
        "{name}"
    );
    Ok(event)
}

#[tokio::test]
async fn handler_run_is_a_span_with_its_outcome() -> Result<()> {
    let (collector, _guard) = Collector::start();
    let setup = setup().await?;
    let handler = |delivery: Delivery| async move {
        tracing::info!(name: "within", target: "dueq", "a handler's own words");
        match &*delivery.id() {
            "again" => Settlement::again(HOUR),
            "retry" | "die" => Settlement::retry("a reason"),
            "bury" => Settlement::bury("hopeless"),
            "by hand" => {
                let _ = delivery.ack().await;
                Settlement::Ack
            }
            "panic" => panic!("in a handler"),
            _ => Settlement::Ack,
        }
    };
    let ends = [
        ("ack", "acked"),
        ("again", "repeated"),
        ("retry", "retried"),
        ("die", "died"),
        ("bury", "buried"),
        ("by hand", "by_handler"),
        ("panic", "retried"),
    ];
    let worker = Running::start(setup.queue.worker().retry(Retry::fixed(HOUR)), handler);
    for (id, _) in ends {
        let message = Message::new("").id(id);
        setup
            .queue
            .push_message(if id == "die" {
                message.max_attempts(1)
            } else {
                message
            })
            .await?;
    }
    let spans = collector.closed(ends.len()).await?;
    for (id, outcome) in ends {
        let span = spans
            .iter()
            .find(|span| span.field("id") == id)
            .with_context(|| format!("no span of {id}"))?;
        assert_eq!(
            (span.name.as_str(), span.level.as_str()),
            ("dueq.handle", "INFO")
        );
        let fields = [
            "attempt",
            "due_ms",
            "handling_ms",
            "id",
            "lateness_ms",
            "otel.kind",
            "outcome",
            "queue",
        ];
        assert_eq!(span.names(), fields, "{id}");
        assert_eq!(
            (
                span.field("outcome"),
                span.field("queue"),
                span.field("attempt")
            ),
            (outcome, "orders", "1")
        );
        assert!(
            span.field("handling_ms").parse::<f64>()? >= 0.0
                && span.field("lateness_ms").parse::<f64>()? >= 0.0
        );
        assert_eq!(span.field("otel.kind"), "consumer");
    }
    let own = collector.events("within");
    assert_eq!(own.len(), ends.len());
    assert!(
        own.iter().all(|event| event.within == "dueq.handle"),
        "{own:?}"
    );

    let fields = ["attempt", "due_ms", "error", "id", "message", "queue"];
    let retried = collector.wait("dueq.retried", 2).await?;
    assert!(
        retried
            .iter()
            .all(|event| event.level == "INFO" && event.names() == fields),
        "{retried:?}"
    );
    assert!(
        retried.iter().all(|event| event.within == "dueq.handle"),
        "{retried:?}"
    );
    let why: Vec<_> = retried
        .iter()
        .map(|event| (event.field("id"), event.field("error")))
        .collect();
    assert!(
        why.contains(&("retry", "a reason"))
            && why.contains(&("panic", "the handler panicked: in a handler")),
        "{why:?}"
    );
    let died = one(
        &collector,
        "dueq.died",
        "WARN",
        &["attempt", "error", "id", "message", "queue"],
    )
    .await?;
    assert_eq!((died.field("id"), died.field("error")), ("die", "a reason"));
    let buried = one(
        &collector,
        "dueq.buried",
        "WARN",
        &["attempt", "id", "message", "queue", "reason"],
    )
    .await?;
    assert_eq!(
        (buried.field("id"), buried.field("reason")),
        ("bury", "hopeless")
    );
    worker.stop().await
}

#[tokio::test]
async fn handler_span_has_the_trace_of_the_push() -> Result<()> {
    let (collector, _guard) = Collector::start();
    let setup = setup().await?;
    let (worker, mut handled) = acking(setup.queue.worker());
    setup
        .queue
        .push("")
        .id("traced")
        .trace_parent(PARENT)
        .await?;
    setup.queue.push("").id("plain").await?;
    handled.take(2).await?;
    worker.stop().await?;
    let spans = collector.spans();
    let linked = |id: &str| {
        spans
            .iter()
            .find(|span| span.field("id") == id)
            .map(|span| span.field("link.traceparent"))
    };
    assert_eq!(
        (linked("traced"), linked("plain")),
        (Some(PARENT), Some(""))
    );
    Ok(())
}

#[tokio::test]
async fn worker_emits_its_start_stop_and_released_messages() -> Result<()> {
    let (collector, _guard) = Collector::start();
    let setup = setup().await?;
    let (worker, mut held) = holding(setup.queue.worker().concurrency(3).grace(Duration::ZERO));
    setup.queue.push("").id("held").await?;
    held.next().await?;
    let fields = ["concurrency", "lease_ms", "message", "node", "queue"];
    let started = one(&collector, "dueq.worker_started", "INFO", &fields).await?;
    assert_eq!(
        (started.field("concurrency"), started.field("lease_ms")),
        ("3", "30000")
    );
    worker.stop().await?;
    let stopped = one(
        &collector,
        "dueq.worker_stopped",
        "INFO",
        &["message", "node", "queue"],
    )
    .await?;
    assert_eq!(started.field("node"), stopped.field("node"));
    let released = one(
        &collector,
        "dueq.released",
        "DEBUG",
        &["attempt", "id", "message", "queue"],
    )
    .await?;
    assert_eq!(released.field("id"), "held");
    assert_eq!(collector.spans()[0].field("outcome"), "released");
    Ok(())
}

#[tokio::test]
async fn lost_lease_and_crash_emit_one_event_each() -> Result<()> {
    let (collector, _guard) = Collector::start();
    let setup = setup().await?;
    let delivery = push_and_claim(&setup.queue, Message::new("").id("id")).await?;
    steal(&setup, &delivery).await?;
    let _ = delivery.ack().await?;
    let _ = delivery.ack().await?;
    let lost = one(
        &collector,
        "dueq.lease_lost",
        "WARN",
        &["attempt", "id", "message", "queue", "why"],
    )
    .await?;
    assert_eq!(
        (lost.field("id"), lost.field("why")),
        ("id", "a settlement found it gone")
    );

    let crashed = setup.client.queue("crashed")?;
    push_all(
        &crashed,
        messages(2)
            .into_iter()
            .map(|message| message.due(Due::at_ms(1)))
            .collect(),
    )
    .await?;
    assert_eq!(crashed.claim(2, Duration::from_millis(1)).await?.len(), 2);
    let (worker, mut handled) = acking(crashed.worker());
    handled.take(2).await?;
    let reaped = one(
        &collector,
        "dueq.reaped",
        "INFO",
        &["message", "messages", "queue"],
    )
    .await?;
    assert_eq!(
        (reaped.field("messages"), reaped.field("queue")),
        ("2", "crashed")
    );
    worker.stop().await
}

#[tokio::test]
async fn emptied_store_and_unreachable_server_emit_events() -> Result<()> {
    let (collector, _guard) = Collector::start();
    let mut setup = setup().await?;
    one(
        &collector,
        "dueq.server_not_persistent",
        "WARN",
        &["address", "message"],
    )
    .await?;
    let (sender, mut handled) = seen();
    let handler = move |_: Delivery| {
        let _ = sender.send(());
        async {}
    };
    let worker = Running::start(setup.queue.worker().lease(LONG), handler);
    setup.queue.push("").await?;
    handled.next().await?;
    setup.command::<()>(&["FLUSHALL"]).await?;
    one(
        &collector,
        "dueq.store_emptied",
        "ERROR",
        &["message", "queue"],
    )
    .await?;

    setup.server.kill()?;
    for (name, fields) in [
        (
            "dueq.call_failed",
            &["call", "error", "message", "queue"][..],
        ),
        ("dueq.wake_up_failed", &["error", "message", "queue"]),
        ("dueq.subscription_failed", &["error", "message", "queue"]),
    ] {
        let entries = collector.wait(name, 1).await?;
        assert_eq!(
            (entries[0].level.as_str(), entries[0].names()),
            ("WARN", fields.to_vec()),
            "{name}"
        );
        assert_eq!(entries[0].field("queue"), "orders", "{name}");
    }
    let (queue, message) = (setup.queue.clone(), Message::new("").id("waits").due(HOUR));
    let pushing = tokio::spawn(async move { queue.push_message(message).await });
    let repeated = collector.wait("dueq.call_repeated", 1).await?;
    assert_eq!(
        (repeated[0].level.as_str(), repeated[0].names()),
        ("INFO", vec!["error", "message"])
    );

    setup.server.restart()?;
    pushing.await??;
    let recovered = collector.wait("dueq.recovered", 1).await?;
    assert_eq!(
        (recovered[0].level.as_str(), recovered[0].field("queue")),
        ("WARN", "orders")
    );
    assert_eq!(
        recovered[0].names(),
        ["call", "failures", "message", "queue"]
    );
    worker.abort().await
}
