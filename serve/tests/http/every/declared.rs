//! What every operation of the OpenAPI document refuses.

use anyhow::{Context, Result};

use crate::assert_refused;
use crate::calls::{Call, calls, prepare};
use crate::instance::{Answer, Instance};

/// A server with the queue that the calls need, and all calls except streams.
pub(crate) async fn stage() -> Result<(Instance, Vec<Call>)> {
    let instance = Instance::with_tokens().await?;
    prepare(&instance).await?;
    let mut calls = calls(&instance).await?;
    calls.retain(|call| !call.is_stream);
    Ok((instance, calls))
}

/// Makes the call as the operator, with another request line, body and more headers.
pub(crate) async fn ask(
    instance: &Instance,
    call: &Call,
    line: &str,
    headers: &[&str],
    body: &str,
) -> Result<Answer> {
    let (bearer, media) = (instance.bearer("operator"), call.media_type);
    let media = format!("Content-Type: {}", media.unwrap_or("application/json"));
    let mut all = vec![&*bearer];
    if !headers
        .iter()
        .any(|header| header.starts_with("Content-Type"))
    {
        all.push(&media);
    }
    all.extend(headers);
    instance.ask(line, &all, body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_refuses_unknown_parameters() -> Result<()> {
    let (instance, calls) = stage().await?;
    for call in &calls {
        let sign = if call.line.contains('?') { '&' } else { '?' };
        for name in ["b", "Limit", "state%20", "a=b=c", "_"] {
            let line = format!("{}{sign}{name}", call.line);
            let answer = ask(&instance, call, &line, &[], call.body).await?;
            assert_refused!(&answer, 400, "invalid_input", "{line}");
            assert!(answer.body.contains("there is no parameter"), "{answer:?}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_obeys_or_refuses_a_conditional_header() -> Result<()> {
    let (instance, calls) = stage().await?;
    let document = instance.ask_as("operator", "GET /openapi.json", "").await?;
    let document = document.json()?;
    let changes = calls.iter().filter(|call| call.method != "GET");
    for call in changes.filter(|call| call.operation != "delete_queue") {
        let described = &document["paths"][&call.path][call.method.to_lowercase()];
        for condition in ["If-None-Match", "If-Match", "If-Unmodified-Since"] {
            let header = format!("{condition}: *");
            let answer = ask(&instance, call, &call.line, &[&header], call.body).await?;
            let is_declared = described["parameters"].to_string().contains(condition);
            let is_refused = answer.status == 400 && answer.body.contains("no such condition");
            assert_eq!(
                is_refused, !is_declared,
                "{} {header}: {answer:?}",
                call.line
            );
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_refuses_a_body_other_than_plain_utf_8() -> Result<()> {
    let (instance, calls) = stage().await?;
    for call in calls.iter().filter(|call| !call.body.is_empty()) {
        let media = call.media_type.context("a type")?;
        let typed = |charset: &str| format!("Content-Type: {media}; charset={charset}");
        for header in [
            "Content-Encoding: gzip".to_owned(),
            "Content-Encoding: identity, br".to_owned(),
            typed("utf-16"),
            typed("latin1"),
            typed("\"us\"; charset=utf-8"),
        ] {
            let answer = ask(&instance, call, &call.line, &[&header], call.body).await?;
            assert_refused!(
                &answer,
                415,
                "unsupported_media_type",
                "{} {header}",
                call.line
            );
        }
    }
    for call in calls.iter().filter(|call| !call.body.is_empty()) {
        let media = call.media_type.context("a type")?;
        let headers = [
            &*format!("Content-Type: {media} ; x=y; CharSet=\"UTF-8\""),
            "Content-Encoding: Identity",
        ];
        let answer = ask(&instance, call, &call.line, &headers, call.body).await?;
        assert_ne!(answer.status, 415, "{}: {answer:?}", call.line);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_pushes_and_settings_create_a_queue() -> Result<()> {
    let (instance, calls) = stage().await?;
    let creates = [
        "push_message",
        "push_messages",
        "change_limits",
        "declare_schedule",
        "apply_schedules",
    ];
    // Operations that need no stored message need no queue.
    let mut others = Vec::new();
    for call in calls.iter().filter(|call| call.path.contains("{queue}")) {
        let operation = &*call.operation;
        if creates.contains(&operation) {
            continue;
        }
        let line = call.line.replace("/orders", "/absent");
        let headers: &[_] = match operation {
            "delete_queue" => &["If-Match: *"],
            _ => &[],
        };
        let answer = ask(&instance, call, &line, headers, call.body).await?;
        if answer.status == 200 {
            others.push(operation);
        } else {
            assert_eq!(answer.status, 404, "{line}: {answer:?}");
            assert!(answer.code()?.starts_with("no_such_"), "{answer:?}");
        }
    }
    others.sort_unstable();
    let expected = ["extend_deliveries", "list_operations", "settle_deliveries"];
    assert_eq!(others, expected);
    let keys = instance.redis.command(&["KEYS", "dueq:{absent}*"])?;
    assert_eq!(keys, "*0\r\n");
    Ok(())
}
