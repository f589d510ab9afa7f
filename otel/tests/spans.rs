//! The spans of pushes, handlers and settlements, as a provider gets them.

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use dueq::{Batch, Client, Delivery, Message, Queue, Retry, Settlement, in_batches};
use dueq_opentelemetry::{Sending, TraceLayer, process, send, trace_parent};
use dueq_testkit::Server;
use opentelemetry::context::FutureExt;
use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{
    InMemorySpanExporter, Sampler, SamplingResult, SdkTracerProvider, ShouldSample, SpanData,
};
use tokio::sync::mpsc;

/// Drops the spans of one queue.
#[derive(Debug, Clone)]
struct AllButUnsampled;

impl ShouldSample for AllButUnsampled {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let sampler = match name.ends_with(" unsampled") {
            true => Sampler::AlwaysOff,
            false => Sampler::AlwaysOn,
        };
        sampler.should_sample(parent, trace, name, kind, attributes, links)
    }
}

/// All spans of this process. A test finds its own by the name of its queue.
fn exporter() -> &'static InMemorySpanExporter {
    static EXPORTER: OnceLock<InMemorySpanExporter> = OnceLock::new();
    EXPORTER.get_or_init(|| {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder()
            .with_sampler(AllButUnsampled)
            .with_simple_exporter(exporter.clone());
        opentelemetry::global::set_tracer_provider(provider.build());
        exporter
    })
}

/// The spans of a queue, by the word before its name, in the order of their ends.
fn spans(queue: &str, operation: &str) -> Result<Vec<SpanData>> {
    let name = format!("{operation} {queue}");
    let all = exporter().get_finished_spans()?.into_iter();
    Ok(all.filter(|span| span.name == name).collect())
}

async fn setup(name: &str) -> Result<(Server, Client, Queue)> {
    exporter();
    let server = Server::start(&[])?;
    let client = Client::connect(&server.url()).await?;
    let queue = client.queue(name)?;
    Ok((server, client, queue))
}

fn attribute(span: &SpanData, name: &str) -> String {
    let mut all = span.attributes.iter();
    let found = all.find(|one| one.key.as_str() == name);
    found.map(|one| one.value.to_string()).unwrap_or_default()
}

fn text(context: &SpanContext) -> String {
    format!("00-{}-{}-01", context.trace_id(), context.span_id())
}

/// Tells the test the outcome of each delivery.
fn watch(delivery: &Delivery, outcomes: &mpsc::UnboundedSender<&'static str>) {
    let outcomes = outcomes.clone();
    delivery.on_settled(move |outcome| {
        let _ = outcomes.send(outcome);
    });
}

#[tokio::test]
async fn each_attempt_is_a_root_that_links_to_the_push() -> Result<()> {
    let (_server, client, orders) = setup("attempts").await?;
    let caller = SpanContext::new(
        TraceId::from(7),
        SpanId::from(8),
        TraceFlags::SAMPLED,
        true,
        TraceState::default(),
    );
    let context = Context::new().with_remote_span_context(caller);
    let message = Message::new("x").id("order:42");
    send(&orders, message).with_context(context).await?;
    let (sender, mut outcomes) = mpsc::unbounded_channel();
    let (seen, mut contexts) = mpsc::unbounded_channel();
    let handler = move |delivery: Delivery| {
        watch(&delivery, &sender);
        let seen = seen.clone();
        async move {
            seen.send(trace_parent())?;
            match delivery.attempt() {
                1 => Err(anyhow!("busy")),
                _ => Ok(()),
            }
        }
    };
    let retry = Retry::fixed(Duration::from_millis(1));
    let worker = client.worker().retry(retry).layer(TraceLayer::new());
    let worker = worker.queue(&orders, handler).spawn()?;
    assert_eq!(outcomes.recv().await, Some("retried"));
    assert_eq!(outcomes.recv().await, Some("acked"));
    worker.shutdown().await?;

    let sent = spans("attempts", "send")?.pop().context("a send")?;
    assert_eq!(sent.span_kind, SpanKind::Producer);
    assert_eq!(sent.span_context.trace_id(), TraceId::from(7));
    assert_eq!(sent.parent_span_id, SpanId::from(8));
    assert_eq!(attribute(&sent, "messaging.message.id"), "order:42");
    let (processed, settled) = (spans("attempts", "process")?, spans("attempts", "settle")?);
    assert_eq!((processed.len(), settled.len()), (2, 2));
    for (attempt, (process, settle)) in (1..).zip(processed.iter().zip(&settled)) {
        assert_eq!(process.span_kind, SpanKind::Consumer);
        assert_eq!(process.parent_span_id, SpanId::INVALID);
        let links: Vec<_> = process
            .links
            .iter()
            .map(|link| &link.span_context)
            .collect();
        assert_eq!(links.len(), 1);
        assert_eq!(text(links[0]), text(&sent.span_context));
        let seen = contexts.recv().await.context("a handler")?;
        assert_eq!(seen, Some(text(&process.span_context)));
        for (name, value) in [
            ("messaging.system", "dueq"),
            ("messaging.operation.type", "process"),
            ("messaging.destination.name", "attempts"),
            ("messaging.message.id", "order:42"),
            (
                "messaging.dueq.message.delivery_count",
                &*attempt.to_string(),
            ),
            ("error.type", if attempt == 1 { "retry" } else { "" }),
        ] {
            assert_eq!(attribute(process, name), value, "{name}");
        }
        let status = match attempt {
            1 => Status::error("busy"),
            _ => Status::Unset,
        };
        assert_eq!(process.status, status);
        assert_eq!(settle.span_kind, SpanKind::Client);
        assert_eq!(settle.parent_span_id, process.span_context.span_id());
        assert!(settle.start_time >= process.end_time && settle.end_time >= settle.start_time);
        let outcome = if attempt == 1 { "retried" } else { "acked" };
        assert_eq!(attribute(settle, "messaging.dueq.outcome"), outcome);
    }
    Ok(())
}

#[tokio::test]
async fn handler_that_does_not_return_is_an_error() -> Result<()> {
    let (_server, client, orders) = setup("unreturned").await?;
    for id in ["panic", "hang"] {
        orders
            .push_message(Message::new("x").id(id).max_attempts(1))
            .await?;
    }
    let (sender, mut outcomes) = mpsc::unbounded_channel();
    let handler = move |delivery: Delivery| {
        watch(&delivery, &sender);
        async move {
            assert!(delivery.id() != "panic", "on purpose");
            std::future::pending::<()>().await;
        }
    };
    let limit = Duration::from_millis(50);
    let worker = client.worker().time_limit(limit).layer(TraceLayer::new());
    let worker = worker.queue(&orders, handler).spawn()?;
    for _ in 0..2 {
        assert_eq!(outcomes.recv().await, Some("died"));
    }
    worker.shutdown().await?;
    let processed = spans("unreturned", "process")?;
    let mut types: Vec<_> = processed
        .iter()
        .map(|span| {
            (
                attribute(span, "messaging.message.id"),
                attribute(span, "error.type"),
            )
        })
        .collect();
    types.sort();
    let expected = [("hang", "cancelled"), ("panic", "panic")];
    assert_eq!(
        types,
        expected.map(|(id, error)| (id.to_owned(), error.to_owned()))
    );
    assert_eq!(spans("unreturned", "settle")?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn batch_has_one_span_and_a_settlement_for_each_message() -> Result<()> {
    let (_server, client, orders) = setup("batches").await?;
    for id in ["a", "b", "c"] {
        send(&orders, Message::new("x").id(id)).await?;
    }
    let (sender, mut outcomes) = mpsc::unbounded_channel();
    let handler = move |batch: Batch<Vec<u8>>| {
        let deliveries: Vec<_> = batch.into_iter().map(|(_, delivery)| delivery).collect();
        deliveries
            .iter()
            .for_each(|delivery| watch(delivery, &sender));
        async move {
            let settle = async || {
                let settle = |delivery: &Delivery| match &*delivery.id() {
                    "b" => Settlement::bury("hopeless"),
                    _ => Settlement::Ack,
                };
                deliveries.iter().map(settle).collect::<Vec<_>>()
            };
            process(&deliveries, settle()).await
        }
    };
    let handler = in_batches(3, Duration::from_secs(5), handler);
    let worker = client.worker().queue(&orders, handler).spawn()?;
    for _ in 0..3 {
        outcomes.recv().await;
    }
    worker.shutdown().await?;
    let processed = spans("batches", "process")?;
    assert_eq!(processed.len(), 1);
    assert_eq!(processed[0].links.len(), 3);
    assert_eq!(
        attribute(&processed[0], "messaging.batch.message_count"),
        "3"
    );
    assert_eq!(attribute(&processed[0], "error.type"), "bury");
    let mut settled: Vec<_> = spans("batches", "settle")?
        .iter()
        .map(|span| {
            assert_eq!(span.parent_span_id, processed[0].span_context.span_id());
            (
                attribute(span, "messaging.message.id"),
                attribute(span, "messaging.dueq.outcome"),
            )
        })
        .collect();
    settled.sort();
    let expected = [("a", "acked"), ("b", "buried"), ("c", "acked")];
    assert_eq!(
        settled,
        expected.map(|(id, outcome)| (id.to_owned(), outcome.to_owned()))
    );
    Ok(())
}

#[tokio::test]
async fn settlement_by_the_handler_has_no_span() -> Result<()> {
    let (_server, client, orders) = setup("by-handler").await?;
    orders.push_message(Message::new("x")).await?;
    let (sender, mut outcomes) = mpsc::unbounded_channel();
    let handler = move |delivery: Delivery| {
        watch(&delivery, &sender);
        async move { delivery.ack().await.map(drop) }
    };
    let worker = client.worker().layer(TraceLayer::new());
    let worker = worker.queue(&orders, handler).spawn()?;
    assert_eq!(outcomes.recv().await, Some("by_handler"));
    worker.shutdown().await?;
    assert_eq!(spans("by-handler", "process")?.len(), 1);
    assert_eq!(spans("by-handler", "settle")?.len(), 0);
    Ok(())
}

#[tokio::test]
async fn unsampled_push_carries_only_its_caller() -> Result<()> {
    let (_server, client, orders) = setup("unsampled").await?;
    let caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let carried = |caller| Sending::start("unsampled", caller).trace_parent();
    assert_eq!(carried(Some(caller)).as_deref(), Some(caller));
    send(&orders, Message::new("x")).await?;
    let (seen, mut contexts) = mpsc::unbounded_channel();
    let handler = move |delivery: Delivery| {
        let pushed = delivery.trace_parent().map(str::to_owned);
        let _ = seen.send((pushed, trace_parent()));
        std::future::ready(())
    };
    let worker = client.worker().layer(TraceLayer::new());
    let worker = worker.queue(&orders, handler).spawn()?;
    let (pushed, run) = contexts.recv().await.context("a handler")?;
    worker.shutdown().await?;
    assert_eq!(pushed, None);
    // What the handler calls learns that the trace is not recorded.
    let run = run.context("the context of the run")?;
    assert!(run.ends_with("-00"), "{run}");
    let all = exporter().get_finished_spans()?;
    let is_own = |name: &str| name.ends_with(" unsampled") || !name.contains(' ');
    assert!(!all.iter().any(|span| is_own(&span.name)), "{all:?}");
    Ok(())
}

#[tokio::test]
async fn failed_push_has_its_kind_and_a_short_reason() -> Result<()> {
    let (_server, _client, orders) = setup("refused").await?;
    let refused = send(&orders, Message::new("x").id(vec![b'x'; 10_000])).await;
    assert!(refused.is_err());
    let sent = spans("refused", "send")?.pop().context("a send")?;
    assert_eq!(attribute(&sent, "error.type"), "invalid_input");
    let Status::Error { description } = sent.status else {
        anyhow::bail!("{:?}", sent.status);
    };
    assert!(!description.is_empty() && description.chars().count() <= 256);
    Ok(())
}
