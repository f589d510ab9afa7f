//! Hostile names, bodies and tokens, in every operation of the OpenAPI document: each is refused
//! with a problem, and nothing changes.

use anyhow::{Context, Result};
use serde_json::{Map, Value};
use tokio::io::AsyncWriteExt;

use crate::assert_refused;
use crate::calls::{Call, Needs, calls, prepare};
use crate::captured::Captured;
use crate::every::faults::{check_logs, state};
use crate::instance::{Answer, Instance, to_end};

struct Stage {
    log: Captured,
    instance: Instance,
    calls: Vec<Call>,
    before: String,
}

impl Stage {
    async fn open() -> Result<Self> {
        let log = Captured::start();
        let instance = Instance::with_tokens().await?;
        prepare(&instance).await?;
        Ok(Self {
            log,
            calls: calls(&instance).await?,
            before: state(&instance)?,
            instance,
        })
    }

    /// Sends another request line and body as the operator, with the content type of the call.
    async fn ask(&self, call: &Call, line: &str, body: &str) -> Result<Answer> {
        let bearer = self.instance.bearer("operator");
        let media_type = format!("Content-Type: {}", call.media_type.unwrap_or("text/plain"));
        let answer = self.instance.ask(line, &[&bearer, &media_type], body).await;
        let answer = answer.with_context(|| line.to_owned())?;
        assert!(
            !answer.body.contains(char::is_control),
            "{line}: {answer:?}"
        );
        for token in self.instance.tokens() {
            assert!(!answer.body.contains(token), "{line}: {answer:?}");
        }
        Ok(answer)
    }

    /// Checks that no data in Redis has changed.
    fn end(self) -> Result<()> {
        assert_eq!(state(&self.instance)?, self.before);
        check_logs(&self.instance, &self.log)
    }

    /// The calls whose body is one JSON object, with the fields of that object.
    fn objects(&self) -> impl Iterator<Item = (&Call, Map<String, Value>)> {
        self.calls.iter().filter_map(|call| {
            let fields = serde_json::from_str(call.body).ok()?;
            Some((call, fields))
        })
    }
}

/// Whether the operation has the front layer; only health has none.
fn has_front(call: &Call) -> bool {
    !["healthz", "readyz"].contains(&&*call.operation)
}

#[tokio::test]
async fn every_operation_refuses_hostile_queue_names() -> Result<()> {
    let stage = Stage::open().await?;
    let (long, long_encoded) = ("x".repeat(129), "%61".repeat(129));
    for call in stage
        .calls
        .iter()
        .filter(|call| call.path.contains("{queue}"))
    {
        for name in [
            "%00",
            "orders%00",
            "~b3JkZXJzAA",
            "~AA",
            "%0d%0aX:y",
            "~DQo",
            "%1b%5b2J",
            "~G1sySg",
            "%ff",
            "~_w",
            "%c3%28",
            "%u0061",
            "%ed%a0%80",
            "a%2fb",
            "~YS9i",
            "%7Bx%7D",
            "~e30",
            "~",
            "~!",
            "~YQ==",
            "%",
            "%zz",
            &long,
            &long_encoded,
        ] {
            let path = call.path.replace("{queue}", name);
            let path = ["{id}", "{name}", "{operation}"]
                .into_iter()
                .fold(path, |path, part| path.replace(part, call.id));
            let line = format!("{} {path}", call.method);
            let answer = stage.ask(call, &line, call.body).await?;
            assert_refused!(&answer, 400, "invalid_path", "{line}");
        }
    }
    stage.end()
}

#[tokio::test]
async fn every_operation_refuses_hostile_ids() -> Result<()> {
    let stage = Stage::open().await?;
    let (long, long_encoded) = ("x".repeat(201), "%61".repeat(201));
    let long_base64 = format!("~{}", "eHh4".repeat(67)); // 201 bytes
    for call in stage.calls.iter().filter(|call| call.path.contains("{id}")) {
        for id in [
            "%00",
            "1%00",
            "~AA",
            "%0a",
            "~Cg",
            "%1b",
            "~Gw",
            "%7f",
            "~",
            "~!",
            "~MQ==",
            "%",
            "%3",
            "%zz",
            &long,
            &long_encoded,
            &long_base64,
        ] {
            let path = call.path.replace("{queue}", "orders").replace("{id}", id);
            let line = format!("{} {path}", call.method);
            let answer = stage.ask(call, &line, call.body).await?;
            assert_eq!(answer.status, 400, "{line}: {answer:?}");
            // The library refuses ids with bytes that are not allowed.
            let code = answer.code()?;
            assert!(
                ["invalid_path", "invalid_input"].contains(&&*code),
                "{line}: {code}"
            );
        }
    }
    stage.end()
}

#[tokio::test]
async fn every_operation_refuses_a_token_in_the_url() -> Result<()> {
    let stage = Stage::open().await?;
    let token = stage.instance.token("operator").to_owned();
    for call in stage.calls.iter().filter(|call| has_front(call)) {
        let line = call.line.split('?').next().unwrap_or_default();
        let mut lines = [
            format!("token={token}"),
            format!("x=1&access_token={token}"),
            "%61ccess_token=x".to_owned(),
            token.clone(),
            format!("x={}", token.replace('_', "%5f")),
            format!("id=1%0d%0a{token}"),
        ]
        .map(|query| format!("{line}?{query}"))
        .to_vec();
        if call.path.contains("{queue}") {
            lines.push(line.replace("/orders", &format!("/{token}")));
        }
        for line in lines {
            let answer = stage.ask(call, &line, call.body).await?;
            assert_refused!(&answer, 400, "token_in_query", "{line}");
            // The token in the URL is refused also from a caller without a right token.
            let answer = stage.instance.ask(&line, &[], call.body).await?;
            assert_refused!(&answer, 400, "token_in_query", "{line}");
            assert!(!answer.body.contains(&token), "{answer:?}");
        }
    }
    stage.end()
}

#[tokio::test]
async fn every_operation_refuses_a_token_with_line_ends() -> Result<()> {
    let stage = Stage::open().await?;
    let (token, own) = (stage.instance.token("operator"), stage.instance.address);
    for call in stage
        .calls
        .iter()
        .filter(|call| call.needs != Needs::Snapshot && has_front(call))
    {
        if ["begin_session", "end_session"].contains(&&*call.operation) {
            continue; // these operations need no token
        }
        for end in ["\n", "\r", "\r\n ", "\n X: y", "\0"] {
            let head = format!("{} HTTP/1.1\r\nHost: {own}\r\n", call.line);
            // A line end in a token must not begin a further header.
            let header = format!(
                "Authorization: Bearer {}{end}{}\r\n",
                &token[..9],
                &token[9..]
            );
            let request = format!("{head}{header}Connection: close\r\n\r\n");
            let answer = stage.instance.raw(request.as_bytes()).await?;
            assert_refused!(&answer, 400, "bad_request", "{end:?}");
        }
    }
    for token in [
        format!("{token}\n"),
        format!("\n{token}"),
        format!("{token}\0"),
    ] {
        let body = serde_json::json!({ "token": token }).to_string();
        let media_type = "Content-Type: application/json";
        let answer = stage
            .instance
            .ask("POST /v1/session", &[media_type], &body)
            .await?;
        assert_refused!(&answer, 401, "unauthenticated");
        assert!(answer.header("set-cookie").is_none(), "{answer:?}");
    }
    stage.end()
}

#[tokio::test]
async fn every_operation_with_a_body_refuses_broken_ones() -> Result<()> {
    let stage = Stage::open().await?;
    let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let nested_objects = "{\"a\":".repeat(100_000);
    for (call, fields) in stage.objects() {
        let (name, value) = fields.iter().next().context("a field")?;
        let body = call.body.trim_end();
        let half = &body[..body.len() / 2];
        let twice = call
            .body
            .replacen('{', &format!("{{\"{name}\": {value}, "), 1);
        let deep = format!("{{\"{name}\": {nested}}}");
        let last = body.len() - 1;
        for body in [
            half,
            &body[..last],
            &format!("{}, \"unknown\": 1}}", &body[..last]),
            &format!("{body} {body}"),
            &format!("[{body}]"),
            &twice,
            &nested,
            &nested_objects,
            &deep,
            "{\"for_ms\": NaN}",
            "{\"at\": 1e400, \"delay\": -1}",
            "\u{0}",
            "\u{feff}{}x",
            "null",
            "0",
            "\"{}\"",
        ] {
            // The operation on one message also accepts a list of messages, and the other way
            // round.
            let answer = stage.ask(call, &call.line, body).await?;
            let shown: String = body.chars().take(60).collect();
            let context = format!("{} {shown}: {answer:?}", call.line);
            // If a body has many items, only the wrong ones are refused.
            let of_many = match &*call.operation {
                "push_messages" => Some("created"),
                "settle_deliveries" | "extend_deliveries" => Some("done"),
                _ => None,
            };
            if let (200, Some(acted)) = (answer.status, of_many) {
                let counts = answer.json()?;
                assert_eq!(counts[acted], 0, "{context}");
                assert!(counts["refused"].as_u64() > Some(0), "{context}");
            } else {
                let codes = ["bad_request", "invalid_input", "too_large"];
                assert!(codes.contains(&&*answer.code()?), "{context}");
            }
        }
    }
    stage.end()
}

#[tokio::test]
async fn body_with_a_wrong_length_changes_nothing() -> Result<()> {
    let stage = Stage::open().await?;
    let bearer = stage.instance.bearer("operator");
    for (call, _) in stage.objects() {
        let own = stage.instance.address;
        let media_type = call.media_type.context("a type")?;
        let head = format!(
            "{} HTTP/1.1\r\nHost: {own}\r\n{bearer}\r\nContent-Type: {media_type}\r\n",
            call.line
        );
        // The announced length is too short: the rest of the body is taken for the next request,
        // and is not one.
        let short = format!(
            "{head}Content-Length: {}\r\n\r\n{}",
            call.body.len() / 2,
            call.body
        );
        let text = stage.instance.raw_text(short.as_bytes()).await?;
        let statuses: Vec<_> = text
            .split("HTTP/1.1 ")
            .skip(1)
            .map(|text| &text[..3])
            .collect();
        match media_type {
            // A line that is cut off is refused.
            "application/x-ndjson" => assert_eq!(statuses, ["200", "400"], "{text}"),
            _ => assert_eq!(statuses, ["400", "400"], "{text}"),
        }
        // The announced length is too long, and the connection ends early.
        let long = format!(
            "{head}Content-Length: {}\r\n\r\n{}",
            call.body.len() + 1,
            call.body
        );
        let mut stream = stage.instance.connect().await?;
        stream.write_all(long.trim_end().as_bytes()).await?;
        stream.shutdown().await?;
        let text = to_end(&mut stream).await?;
        assert!(!text.contains("HTTP/1.1 2"), "{}: {text}", call.line);
    }
    stage.end()
}
