//! `--http`: sends a signed POST for each message, after the Standard Webhooks specification.

use std::time::{Duration, Instant, SystemTime};

use anyhow::bail;
use dueq::{Delivery, Settlement};
use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode, Url};
use serde::de::IgnoredAny;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use crate::commands::work::address::{self, PublicOnly};
use crate::commands::work::batch;
use crate::commands::work::breaks::Breaks;
use crate::commands::work::exec::{all_lost, queue_of};
use crate::commands::work::handler::trace_parent;
use crate::commands::work::sender::Sender;
use crate::commands::work::signature::Secrets;
use crate::output::{self, Usage};
use crate::{http_client, log};

const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// The range to which a Retry-After is clamped. Its lower end prevents a busy loop.
const RETRY_AFTER_RANGE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(24 * 3600)];
/// How many bytes of an answer are read. A completely read answer lets its connection be reused.
const ANSWER: usize = 16 * 1024;
/// How many bytes of an answer are kept as the error.
const KEPT: usize = 300;

pub(super) struct Http {
    url: Url,
    sender: Sender,
    secrets: Secrets,
    /// The breaks of each queue; only with --throttle-queue.
    breaks: Option<Breaks>,
    /// Cancelled when the grace period after the stop is over.
    over: CancellationToken,
}

impl Http {
    pub(super) async fn new(
        url: Url,
        secrets: Secrets,
        timeout: Duration,
        allow_private: bool,
        throttle_queue: bool,
        over: CancellationToken,
    ) -> anyhow::Result<Self> {
        let is_https = url.scheme() == "https";
        // Ignore proxies of the environment: a proxy would connect to addresses that this program
        // has not checked.
        let client = || {
            let client = http_client::builder(is_https)
                .no_proxy()
                .connect_timeout(CONNECT_LIMIT);
            match allow_private {
                true => client,
                false => client.dns_resolver(PublicOnly),
            }
        };
        if !allow_private {
            address::check_host(&url).await?;
        }
        Ok(Self {
            url,
            sender: Sender::new(timeout, client)?,
            secrets,
            breaks: throttle_queue.then(Breaks::default),
            over,
        })
    }

    pub(super) fn reload(&self) -> anyhow::Result<()> {
        self.secrets.reload()
    }

    pub(super) async fn handle(&self, delivery: &Delivery) -> Settlement {
        let (id, payload) = (header_id(delivery.id_bytes()), delivery.payload().to_vec());
        tokio::select! {
            settlement = self.post(delivery.queue(), &id, payload, Some(delivery)) => settlement,
            // The end of the grace or a lost lease is not the receiver's failure. A message with a
            // lost lease is not settled at all.
            () = self.over.cancelled() => Settlement::Release,
            () = delivery.lost() => Settlement::Release,
        }
    }

    /// Posts a batch as one array: one settlement for each delivery.
    pub(super) async fn handle_batch(&self, deliveries: &[Delivery]) -> Vec<Settlement> {
        let (id, payload) = (batch_id(deliveries), batch::array(deliveries));
        let all = tokio::select! {
            settlement = self.post(queue_of(deliveries), &id, payload, None) => settlement,
            () = self.over.cancelled() => Settlement::Release,
            () = all_lost(deliveries) => Settlement::Release,
        };
        let all = match all {
            // The answer does not say which message it refuses, so each is retried alone.
            Settlement::Bury(reason) if deliveries.len() > 1 => Settlement::retry(reason),
            settlement => settlement,
        };
        vec![all; deliveries.len()]
    }

    async fn post(
        &self,
        queue: &str,
        id: &str,
        payload: Vec<u8>,
        single: Option<&Delivery>,
    ) -> Settlement {
        let now = SystemTime::now();
        let seconds = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let mut request = self
            .sender
            .client()
            .post(self.url.clone())
            .header("webhook-id", id)
            .header("webhook-timestamp", seconds)
            .header(
                "webhook-signature",
                self.secrets.sign(id, seconds, &payload),
            )
            .header("dueq-queue", header_id(queue.as_bytes()))
            .header(CONTENT_TYPE, content_type(&payload))
            .body(payload);
        if let Some(trace_parent) = trace_parent(single) {
            request = request.header("traceparent", trace_parent);
        }
        if let Some(tick) = single.and_then(Delivery::tick) {
            request = request
                .header("dueq-schedule", tick.schedule)
                .header("dueq-nominal-ms", tick.nominal_ms);
        }
        let answered = match request.build() {
            Ok(request) => self.sender.send(request).await,
            Err(error) => Err(error),
        };
        match answered {
            Ok(response) => {
                let (status, headers) = (response.status(), response.headers().clone());
                let (now, said) = (SystemTime::now(), answer(response).await);
                let asked = retry_after(&headers, now);
                self.throttle(queue, status, asked, &said)
                    .unwrap_or_else(|| settlement(status, asked, &said))
            }
            // The error leaves out the URL, which may contain a secret: many people can read a
            // message's error.
            Err(error) => Settlement::retry(format_args!(
                "{:#}",
                anyhow::Error::from(error.without_url())
            )),
        }
    }

    /// The settlement for an answer that asks for a break, with --throttle-queue.
    fn throttle(
        &self,
        queue: &str,
        status: StatusCode,
        retry_after: Option<Duration>,
        said: &str,
    ) -> Option<Settlement> {
        let breaks = self.breaks.as_ref()?;
        let asked = breaks.asked(queue, status, retry_after, Instant::now())?;
        if asked.is_new {
            let (error, length) = (error_of(status, said), asked.length);
            tracing::warn!(name: log::BREAK, target: "dueq", queue, ?length, error, "the receiver asks for a break");
        }
        Some(Settlement::throttle(asked.length))
    }
}

/// Reads the URL of --http.
pub(super) fn parse(text: &str) -> anyhow::Result<Url> {
    let wrong = || {
        Usage(
            "--http needs an http:// or https:// URL, such as https://example.com/hook".to_owned(),
        )
    };
    let url = Url::parse(text).map_err(|_| wrong())?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        bail!(wrong());
    }
    Ok(url)
}

/// The id for the header and the signature: visible ASCII as it is, other bytes percent-encoded.
///
/// The percent sign is encoded too, so that different ids stay different, and so is the full stop,
/// which separates the signed parts.
fn header_id(id: &[u8]) -> String {
    let mut text = String::with_capacity(id.len());
    for &byte in id {
        match byte {
            b'!'..=b'~' if !matches!(byte, b'%' | b'.') => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// The id of a batch: that of its only message, or else a hash of all ids and attempts.
fn batch_id(deliveries: &[Delivery]) -> String {
    if let [delivery] = deliveries {
        return header_id(delivery.id_bytes());
    }
    let mut hash = Sha256::new();
    for delivery in deliveries {
        hash.update(header_id(delivery.id_bytes()));
        hash.update(format!(" {}\n", delivery.attempt()));
    }
    let hex: String = hash.finalize()[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("batch-{hex}")
}

fn content_type(payload: &[u8]) -> &'static str {
    // Only validate, do not build a value: a short text can describe a large one.
    let is_json = std::str::from_utf8(payload)
        .is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
    if is_json {
        "application/json"
    } else {
        "application/octet-stream"
    }
}

/// The first bytes of the answer, in one line without control characters.
async fn answer(mut response: Response) -> String {
    let mut body = Vec::new();
    while body.len() < ANSWER
        && let Ok(Some(chunk)) = response.chunk().await
    {
        body.extend_from_slice(&chunk);
    }
    body.truncate(KEPT);
    output::visible(body.trim_ascii())
}

fn error_of(status: StatusCode, said: &str) -> String {
    if said.is_empty() {
        format!("HTTP {status}")
    } else {
        format!("HTTP {status}: {said}")
    }
}

fn settlement(status: StatusCode, retry_after: Option<Duration>, said: &str) -> Settlement {
    let error = error_of(status, said);
    match status.as_u16() {
        200..=299 => Settlement::Ack,
        // The receiver refuses this payload, or no longer exists (410). A wrong path, secret or
        // right (401, 403, 404) is a configuration mistake, which must not bury a whole queue.
        400 | 410 | 413 | 415 | 422 => Settlement::bury(error),
        429 | 503 => match retry_after {
            Some(after) => Settlement::retry_after(after, error),
            None => Settlement::retry(error),
        },
        300..=399 => Settlement::retry(format_args!(
            "{error}: redirects are not followed, set --http to the last URL"
        )),
        _ => Settlement::retry(error),
    }
}

/// Reads Retry-After: seconds, or a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let after = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text)
            .ok()?
            .duration_since(now)
            .unwrap_or_default(),
    };
    Some(after.clamp(RETRY_AFTER_RANGE[0], RETRY_AFTER_RANGE[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: u16) -> Settlement {
        settlement(StatusCode::from_u16(code).expect("a status"), None, "")
    }

    #[test]
    fn statuses_map_to_settlements() {
        for code in [200, 201, 202, 204, 299] {
            assert_eq!(of(code), Settlement::Ack, "{code}");
        }
        for code in [400, 410, 413, 415, 422] {
            assert!(matches!(of(code), Settlement::Bury(_)), "{code}");
        }
        for code in [
            301, 302, 307, 308, 401, 403, 404, 405, 408, 409, 425, 429, 451, 500, 502, 503, 504,
            599,
        ] {
            assert!(
                matches!(of(code), Settlement::Retry { after: None, .. }),
                "{code}"
            );
        }
    }

    #[test]
    fn retry_after_takes_seconds_or_a_date_within_bounds() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").expect("a date");
        let after = |text: &str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().expect("a value"))]);
            retry_after(&headers, now).map(|after| after.as_secs())
        };
        for (text, seconds) in [
            ("120", Some(120)),
            ("0", Some(1)),
            ("99999999", Some(86_400)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sunday, 06-Nov-94 08:50:37 GMT", Some(60)),
            ("Sun Nov  6 08:50:37 1994", Some(60)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(1)),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
        ] {
            assert_eq!(after(text), seconds, "{text}");
        }
    }

    #[test]
    fn different_ids_have_different_header_values() {
        assert_eq!(header_id(b"order:42"), "order:42");
        assert_eq!(header_id("a b.c%\u{e9}".as_bytes()), "a%20b%2Ec%25%C3%A9");
    }

    #[test]
    fn content_type_is_json_only_for_valid_json() {
        assert_eq!(content_type(b"{\"order\": 42}"), "application/json");
        assert_eq!(content_type(b"\xff"), "application/octet-stream");
        assert_eq!(content_type(b"\"\xff\""), "application/octet-stream");
        assert_eq!(content_type(b""), "application/octet-stream");
    }
}
