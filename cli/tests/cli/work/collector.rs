//! An OTLP receiver: an HTTP server that decodes the spans which the program exports.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1;
use prost::Message;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::work::http::read;

/// An exported span.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) service: String,
    pub(crate) kind: v1::span::SpanKind,
    /// Its context, as a `traceparent` of a chosen span.
    pub(crate) context: String,
    /// The context of its parent; empty for a root.
    pub(crate) parent: String,
    pub(crate) links: Vec<String>,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) is_error: bool,
}

impl Span {
    pub(crate) fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }
}

/// Answers all requests alike, and forwards their spans to the test.
pub(crate) struct Collector {
    pub(crate) url: String,
    spans: mpsc::UnboundedReceiver<Span>,
}

impl Collector {
    /// `answer` is the whole response, or empty if no request is answered.
    pub(crate) async fn start(answer: &'static str) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://127.0.0.1:{}", listener.local_addr()?.port());
        let (sender, spans) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mut stream = BufReader::new(stream);
                let Ok(request) = read(&mut stream).await else {
                    continue;
                };
                assert_eq!(request.line, "POST /v1/traces HTTP/1.1");
                assert_eq!(request.headers["content-type"], "application/x-protobuf");
                let export = ExportTraceServiceRequest::decode(&request.body[..]);
                for span in decoded(export.expect("protobuf")) {
                    let _ = sender.send(span);
                }
                match answer {
                    // Keep the connection open without an answer.
                    "" => std::mem::forget(stream),
                    answer => {
                        let _ = stream.get_mut().write_all(answer.as_bytes()).await;
                    }
                }
            }
        });
        Ok(Self { url, spans })
    }

    /// The next exported spans, in the order of their names and starts.
    pub(crate) async fn spans(&mut self, count: usize) -> Result<Vec<Span>> {
        let mut spans = Vec::new();
        while spans.len() < count {
            spans.push(self.spans.recv().await.context("the collector has ended")?);
        }
        let place = |span: &Span| {
            let attempt = span.attribute("messaging.dueq.message.delivery_count");
            (span.name.clone(), attempt.to_owned())
        };
        spans.sort_by_key(place);
        Ok(spans)
    }
}

fn decoded(export: ExportTraceServiceRequest) -> Vec<Span> {
    let mut spans = Vec::new();
    for of_resource in export.resource_spans {
        let resource = attributes(of_resource.resource.unwrap_or_default().attributes);
        for span in of_resource
            .scope_spans
            .into_iter()
            .flat_map(|scope| scope.spans)
        {
            let parent = match span.parent_span_id.is_empty() {
                true => String::new(),
                false => context(&span.trace_id, &span.parent_span_id),
            };
            let links = span.links.iter();
            spans.push(Span {
                kind: span.kind(),
                service: resource.get("service.name").cloned().unwrap_or_default(),
                context: context(&span.trace_id, &span.span_id),
                parent,
                links: links
                    .map(|link| context(&link.trace_id, &link.span_id))
                    .collect(),
                is_error: span
                    .status
                    .as_ref()
                    .is_some_and(|status| status.code() == v1::status::StatusCode::Error),
                attributes: attributes(span.attributes),
                name: span.name,
            });
        }
    }
    spans
}

fn context(trace: &[u8], span: &[u8]) -> String {
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    format!("00-{}-{}-01", hex(trace), hex(span))
}

fn attributes(all: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |value: Option<AnyValue>| match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    all.into_iter()
        .map(|one| (one.key, text(one.value)))
        .collect()
}
