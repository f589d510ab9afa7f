//! The traces that `dueq serve` and `dueq work` export by OTLP.

use std::fs::{self, File};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dueq::Message;
use dueq_testkit::Stopwatch;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

use crate::serving::serve::Serve;
use crate::work::collector::Collector;
use crate::work::http::{Receiver, post_command};
use crate::work::support::{Dueq, Folder, command, queue, stats, stored, until};

const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const TAKEN: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
const FAILED: &str = "HTTP/1.1 500 No\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno";
const PAGE: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: 6\r\n\r\n<html>";
const NO_HTTP: &str = "\0\0 nonsense\r\n\r\n";
/// Well above the 2 s that the end waits for a collector, and far below what it would wait without
/// that limit.
const END_LIMIT: Duration = Duration::from_secs(120);

/// Lets the program export to this collector at once.
fn exporting<'a>(command: &'a mut Command, url: &str) -> &'a mut Command {
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        .env("OTEL_BSP_SCHEDULE_DELAY", "20")
}

fn put(id: &str, header: &str, body: &str) -> (String, String, String) {
    let length = body.len();
    let header = format!("{header}Content-Type: application/json\r\nContent-Length: {length}\r\n");
    let line = format!("PUT /v1/queues/orders/messages/{id}");
    (line, header, body.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traces_lead_from_an_http_push_to_each_attempt() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let mut collector = Collector::start(TAKEN).await?;
    let mut serve = crate::command(&server);
    serve
        .args(["serve", "--json"])
        .env("DUEQ_SERVE_LISTEN", "127.0.0.1:0")
        .env("OTEL_SERVICE_NAME", "front");
    let serve = Serve::start_by(exporting(&mut serve, &collector.url))?;
    let (line, header, body) = put(
        "a",
        &format!("traceparent: {CALLER}\r\n"),
        "{\"payload\": \"x\", \"delay\": \"2s\"}",
    );
    let answer = serve.ask_with(&line, &header, &body)?;
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let script = "echo $DUEQ_ATTEMPT $TRACEPARENT; test $DUEQ_ATTEMPT -gt 1";
    let args = ["work", "orders", "--retry-min", "10ms", "--exec", script];
    let mut worker = Dueq::run(exporting(
        &mut command(&server.url(), &args),
        &collector.url,
    ))?;
    stats(&orders, "an ack", |stats| stats.acked == 1).await?;
    worker.signal("TERM")?;
    let seen = worker.rest()?;
    assert!(worker.wait()?.success());
    assert_eq!(serve.end("-TERM")?.0, Some(0));

    let spans = collector.spans(5).await?;
    let names: Vec<_> = spans.iter().map(|span| &*span.name).collect();
    assert_eq!(
        names,
        [
            "process orders",
            "process orders",
            "send orders",
            "settle orders",
            "settle orders"
        ]
    );
    let (processes, send, settles) = (&spans[..2], &spans[2], &spans[3..]);
    assert_eq!((send.kind, &*send.parent), (SpanKind::Producer, CALLER));
    assert_eq!((&*send.service, send.is_error), ("front", false));
    assert_eq!(send.attribute("messaging.system"), "dueq");
    let mut parents = Vec::new();
    for (attempt, process) in (1..).zip(processes) {
        assert_eq!((process.kind, &*process.parent), (SpanKind::Consumer, ""));
        assert_eq!(
            (&*process.service, &*process.context),
            ("dueq", &seen[attempt - 1][2..])
        );
        assert_eq!(process.links, [&*send.context]);
        assert_eq!(process.attribute("messaging.message.id"), "a");
        let count = process.attribute("messaging.dueq.message.delivery_count");
        assert_eq!(count, attempt.to_string());
        let failed = attempt == 1;
        assert_eq!(process.is_error, failed);
        assert_eq!(
            process.attribute("error.type"),
            if failed { "retry" } else { "" }
        );
        parents.push((&*process.context, if failed { "retried" } else { "acked" }));
    }
    assert_ne!(processes[0].context[..35], processes[1].context[..35]);
    let mut settled: Vec<_> = settles
        .iter()
        .map(|settle| (&*settle.parent, settle.attribute("messaging.dueq.outcome")))
        .collect();
    settled.sort_unstable();
    parents.sort_unstable();
    assert_eq!(settled, parents);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receiver_gets_the_context_of_its_attempt() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let mut collector = Collector::start(TAKEN).await?;
    let mut receiver = Receiver::start(&["204 No Content"]).await?;
    let mut post = post_command("orders", &server.url(), &receiver.url, &[]);
    // Neither http:// URL needs CA certificates, of which a minimal image has none.
    post.env("SSL_CERT_FILE", "/absent")
        .env("SSL_CERT_DIR", "/absent");
    let _worker = Dueq::run(exporting(&mut post, &collector.url))?;
    orders
        .push_message(Message::new("x").trace_parent(CALLER))
        .await?;
    let header = receiver.request().await?.headers["traceparent"].clone();
    let spans = collector.spans(2).await?;
    assert_eq!(
        (&*spans[0].name, &*spans[0].context),
        ("process orders", &*header)
    );
    assert_eq!(spans[0].links, [CALLER]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_is_one_span_with_a_link_for_each_push() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let mut collector = Collector::start(TAKEN).await?;
    for id in ["a", "b"] {
        let message = Message::new("x").id(id).trace_parent(CALLER);
        orders.push_message(message).await?;
    }
    let args = [
        "work",
        "orders",
        "--batch",
        "2",
        "--linger",
        "5s",
        "--exec",
        "cat >/dev/null",
    ];
    let mut work = command(&server.url(), &args);
    let _worker = Dueq::run(exporting(&mut work, &collector.url))?;
    let spans = collector.spans(3).await?;
    let (process, settles) = (&spans[0], &spans[1..]);
    assert_eq!(process.attribute("messaging.batch.message_count"), "2");
    assert_eq!(process.links, [CALLER, CALLER]);
    for settle in settles {
        assert_eq!(
            (&*settle.name, &*settle.parent),
            ("settle orders", &*process.context)
        );
    }
    Ok(())
}

#[tokio::test]
async fn push_without_export_keeps_the_context_of_the_caller() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let serve = Serve::start(&server, &[])?;
    let own = CALLER.replace("0af", "fff");
    let with_own = format!("{{\"payload\": \"x\", \"traceparent\": \"{own}\"}}");
    for (id, header, body, expected) in [
        ("header", CALLER, "{\"payload\": \"x\"}", Some(CALLER)),
        ("own", CALLER, &*with_own, Some(&*own)),
        ("malformed", "00-x", "{\"payload\": \"x\"}", None),
    ] {
        let (line, header, body) = put(id, &format!("traceparent: {header}\r\n"), body);
        let answer = serve.ask_with(&line, &header, &body)?;
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
        let stored = stored(&orders, id, |_| true).await?;
        assert_eq!(stored.trace_parent.as_deref(), expected, "{id}");
    }
    Ok(())
}

#[tokio::test]
async fn wrong_endpoint_is_named_without_its_password() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let folder = Folder::new("endpoint")?;
    let log = folder.path().join("log");
    let mut work = command(&server.url(), &["work", "orders", "--print"]);
    exporting(&mut work, "http://user:secret@a b/")
        .env("RUST_LOG", "warn")
        .stderr(File::create(&log)?);
    let _worker = Dueq::run(&mut work)?;
    orders.push_message(Message::new("x")).await?;
    stats(&orders, "an ack", |stats| stats.acked == 1).await?;
    let said = fs::read_to_string(&log)?;
    assert!(
        said.contains("no traces are exported") && said.contains("OTEL_EXPORTER_OTLP_ENDPOINT"),
        "{said}"
    );
    assert!(!said.contains("secret"), "{said}");
    Ok(())
}

/// Whatever the collector does: messages are handled, a warning a minute and those of the end are
/// all, and the end comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_collector_delays_messages_or_the_end() -> Result<()> {
    let folder = Folder::new("collectors")?;
    let away = "http://127.0.0.1:1".to_owned();
    for (name, answer, reason) in [
        ("away", None, "onnect"),
        ("failing", Some(FAILED), "HTTP 500"),
        ("page", Some(PAGE), "not OTLP"),
        ("nonsense", Some(NO_HTTP), "HTTP"),
        // The time limit of an export is ten minutes here.
        ("silent", Some(""), "last spans"),
    ] {
        let (server, orders) = queue("orders").await?;
        let collector = match answer {
            Some(answer) => Some(Collector::start(answer).await?),
            None => None,
        };
        let url = collector.as_ref().map_or(&away, |collector| &collector.url);
        let log = folder.path().join(name);
        let limit_ms = if name == "silent" { "600000" } else { "5000" };
        let mut work = command(&server.url(), &["work", "orders", "--print"]);
        exporting(&mut work, url)
            .env("RUST_LOG", "warn")
            .env("OTEL_EXPORTER_OTLP_TIMEOUT", limit_ms)
            .stderr(File::create(&log)?);
        let started = Instant::now();
        let mut worker = Dueq::run(&mut work)?;
        let warnings = || -> Result<Vec<String>> {
            let said = fs::read_to_string(&log)?;
            let is_warning = |line: &&str| line.contains("WARN") && line.contains("spans");
            Ok(said.lines().filter(is_warning).map(str::to_owned).collect())
        };
        for round in 1..=3 {
            for result in orders.push_many((0..100).map(|_| Message::new("x"))).await {
                result?;
            }
            stats(&orders, "acks", |stats| stats.acked == round * 100).await?;
            if name != "silent" {
                until("a warning", async || Ok(warnings()?.pop())).await?;
            }
        }
        let stopped = Stopwatch::start();
        worker.signal("TERM")?;
        assert_eq!(worker.rest()?.len(), 300, "{name}");
        assert!(worker.wait()?.success(), "{name}");
        assert!(
            stopped.elapsed() < END_LIMIT,
            "{name}: {:?}",
            stopped.elapsed()
        );
        let warnings = warnings()?;
        let warning = warnings.first().context(name)?;
        let minutes = usize::try_from(started.elapsed().as_secs() / 60)?;
        assert!(
            warnings.len() <= 3 + minutes && warning.contains(reason),
            "{name}: {warnings:?}"
        );
        if name == "away" {
            // Each span of `dueq work` is an attempt or its settlement. On a machine that stands still
            // the end does not wait for the last ones, and says so.
            let counted = warnings.iter().filter_map(|line| lost(line)).sum::<u64>();
            let is_cut = warnings.iter().any(|line| line.contains("in time"));
            assert!(counted == 600 || is_cut && counted < 600, "{warnings:?}");
        }
    }
    Ok(())
}

/// How many spans a warning counts.
fn lost(warning: &str) -> Option<u64> {
    let number = warning.split_once("spans=")?.1.split(' ').next()?;
    number.parse().ok()
}
