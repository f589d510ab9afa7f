//! Posts spans to the collector, and finds out why it did not take them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::ExporterBuildError;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, StatusCode};

use crate::traces::losses::Losses;
use crate::{http_client, output};

/// How many bytes of an answer a warning quotes.
const QUOTED: usize = 200;

/// The HTTP client of the exporter.
#[derive(Debug)]
pub(super) struct Collector {
    client: Client,
    losses: Arc<Losses>,
}

impl Collector {
    pub(super) fn new(limit: Duration, losses: Arc<Losses>) -> Result<Self, ExporterBuildError> {
        let client = |is_https| http_client::builder(is_https).timeout(limit).build();
        // Without CA certificates, a collector at http:// can still be reached. One at http:// may
        // need them for a proxy.
        let client = client(true)
            .or_else(|_| client(false))
            .map_err(|error| ExporterBuildError::InternalFailure(error.to_string()))?;
        Ok(Self { client, losses })
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let mut response = match self.client.send_bytes(request).await {
            Ok(response) => response,
            Err(error) => {
                self.losses.because(reason(error));
                return Err("no answer".into());
            }
        };
        if !response.status().is_success() {
            let said = quoted(response.body());
            self.losses
                .because(format!("HTTP {}: {said}", response.status()));
            return Ok(response);
        }
        match rejected(&response) {
            Ok((0, _)) => {}
            Ok((spans, reason)) => {
                self.losses
                    .because(format!("the collector refused spans: {reason}"));
                self.losses.add(spans);
            }
            Err(reason) => {
                self.losses.because(reason);
                // A status that the exporter does not repeat.
                *response.status_mut() = StatusCode::NOT_ACCEPTABLE;
            }
        }
        Ok(response)
    }
}

/// How many spans of the export the collector refused, and why. The error says that the answer is
/// not one of a collector.
fn rejected(response: &Response<Bytes>) -> Result<(u64, String), String> {
    let media = response.headers().get(CONTENT_TYPE);
    let media = media.map_or("application/x-protobuf", |media| {
        media.to_str().unwrap_or_default()
    });
    let wrong = || format!("the answer is not OTLP: {}", quoted(response.body()));
    if media.starts_with("text/html") {
        return Err(wrong());
    }
    if !media.starts_with("application/x-protobuf") {
        return Ok((0, String::new()));
    }
    let answer = ExportTraceServiceResponse::decode(&response.body()[..]).map_err(|_| wrong())?;
    let partial = answer.partial_success.unwrap_or_default();
    let spans = u64::try_from(partial.rejected_spans).unwrap_or(0);
    Ok((spans, quoted(partial.error_message.as_bytes())))
}

/// The reason of a failed request, without the URL, which may contain a secret.
fn reason(error: HttpError) -> String {
    match error.downcast::<reqwest::Error>() {
        Ok(error) => format!("{:#}", anyhow::Error::from(error.without_url())),
        Err(error) => error.to_string(),
    }
}

fn quoted(text: &[u8]) -> String {
    output::visible(&text[..text.len().min(QUOTED)])
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;

    use super::*;

    fn answer(media: Option<&str>, body: &[u8]) -> Result<(u64, String), String> {
        let mut response = Response::new(Bytes::copy_from_slice(body));
        if let Some(media) = media {
            let media = media.parse().expect("a media type");
            response.headers_mut().insert(CONTENT_TYPE, media);
        }
        rejected(&response)
    }

    #[test]
    fn answers_that_are_not_otlp_are_losses() {
        let partial = ExportTraceServiceResponse {
            partial_success: Some(ExportTracePartialSuccess {
                rejected_spans: 3,
                error_message: "too\x1bold".to_owned(),
            }),
        };
        let partial = answer(Some("application/x-protobuf"), &partial.encode_to_vec());
        let (spans, reason) = partial.expect("an answer of OTLP");
        assert_eq!(spans, 3);
        assert!(!reason.contains('\x1b'), "{reason}");
        for (media, body) in [(None, &b""[..]), (Some("application/json"), b"{}")] {
            assert_eq!(answer(media, body), Ok((0, String::new())), "{media:?}");
        }
        for (media, body) in [
            (Some("text/html; charset=utf-8"), &b"<html>"[..]),
            (Some("application/x-protobuf"), b"\xff\xff\xff"),
            (None, b"welcome"),
        ] {
            let refused = answer(media, body).expect_err("not OTLP");
            assert!(refused.starts_with("the answer is not OTLP"), "{refused}");
        }
    }
}
