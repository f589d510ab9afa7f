//! Recurring schedules: declared, listed, read, previewed, paused, triggered, removed.

mod access;
mod input;
mod lists;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::instance::{Instance, JSON};
use crate::{assert_has, assert_refused};

const AT: &str = "/v1/queues/reports/schedules";

fn nightly() -> Value {
    json!({ "cron": "30 2 * * *", "zone": "Europe/Paris", "payload": "{\"report\": 1}", "overlap": "skip" })
}

#[tokio::test(flavor = "multi_thread")]
async fn schedule_is_declared_read_changed_and_removed() -> Result<()> {
    let instance = Instance::open().await?;
    let at = format!("{AT}/nightly");
    let dry = instance
        .send(&format!("PUT {at}?dry_run=true"), &nightly())
        .await?;
    assert_eq!(
        (dry.status, &dry.json()?["outcome"]),
        (200, &json!("created"))
    );
    assert!(
        !instance.client.queue("reports")?.exists().await?,
        "a dry run"
    );
    let created = instance.send(&format!("PUT {at}"), &nightly()).await?;
    assert_eq!(
        (created.status, created.header("location")),
        (201, Some(&*at)),
        "{created:?}"
    );
    let next_ms = created.json()?["next_ms"].as_u64().context("a fire")?;
    let kept = instance.send(&format!("PUT {at}"), &nightly()).await?;
    let expected = json!({ "schedule": "nightly", "outcome": "kept", "next_ms": next_ms });
    assert_eq!((kept.status, kept.json()?), (200, expected));

    let read = instance.call(&format!("GET {at}")).await?;
    let schedule = read.json()?;
    for (field, value) in [
        ("name", json!("nightly")),
        ("set", json!("http")),
        ("state", json!("active")),
        ("every_ms", Value::Null),
        ("cron", json!("30 2 * * *")),
        ("zone", json!("Europe/Paris")),
        ("next_ms", json!(next_ms)),
        ("made", json!(0)),
        ("payload", json!("{\"report\": 1}")),
        ("payload_bytes", json!(13)),
        ("payload_withheld", json!(false)),
    ] {
        assert_eq!(schedule[field], value, "{field} of {read:?}");
    }
    assert!(
        schedule["listed"]
            .as_u64()
            .is_some_and(|listed| listed >= 64),
        "{read:?}"
    );
    let cut = instance
        .call(&format!("GET {at}?payload_bytes=2"))
        .await?
        .json()?;
    assert_has!(cut, { "payload": "{\"", "payload_truncated": true });

    let changed = json!({ "every": "15m", "payload_base64": "/8M=" });
    let changed = instance.send(&format!("PUT {at}"), &changed).await?;
    assert_eq!(
        (changed.status, &changed.json()?["outcome"]),
        (200, &json!("changed"))
    );
    let schedule = instance.call(&format!("GET {at}")).await?.json()?;
    assert_eq!(
        (
            &schedule["every_ms"],
            &schedule["cron"],
            &schedule["payload_base64"]
        ),
        (&json!(900_000), &Value::Null, &json!("/8M="))
    );
    let removed = instance.call(&format!("DELETE {at}")).await?;
    assert_eq!(
        (removed.status, &removed.json()?["outcome"]),
        (200, &json!("removed"))
    );
    for line in ["GET", "DELETE"] {
        assert_refused!(
            instance.call(&format!("{line} {at}")).await?,
            404,
            "no_such_schedule"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn schedule_is_paused_resumed_and_triggered() -> Result<()> {
    let instance = Instance::open().await?;
    let at = format!("{AT}/nightly");
    instance.send(&format!("PUT {at}"), &nightly()).await?;
    for (method, outcome, state) in [
        ("PUT", "paused", "paused"),
        ("PUT", "paused", "paused"),
        ("DELETE", "resumed", "active"),
        ("DELETE", "resumed", "active"),
    ] {
        let answer = instance.call(&format!("{method} {at}/pause")).await?;
        let expected = json!({ "schedule": "nightly", "outcome": outcome });
        assert_eq!((answer.status, answer.json()?), (200, expected));
        let schedule = instance.call(&format!("GET {at}")).await?.json()?;
        assert_eq!(schedule["state"], state);
    }
    let made = instance.call(&format!("POST {at}/trigger")).await?;
    assert_eq!(made.status, 201, "{made:?}");
    let id = made.json()?["id"].as_str().context("an id")?.to_owned();
    assert!(id.starts_with("nightly@"), "{id}");
    let tick = instance.client.queue("reports")?.get(id.as_bytes()).await?;
    assert_eq!(tick.context("the tick")?.payload, b"{\"report\": 1}");
    let again = instance.call(&format!("POST {at}/trigger")).await?;
    assert_refused!(&again, 409, "overlaps");
    assert_eq!(
        (&again.json()?["applied"], &again.json()?["retryable"]),
        (&json!("no"), &json!(true))
    );
    let schedule = instance.call(&format!("GET {at}")).await?.json()?;
    assert_has!(schedule, { "triggered": 1, "made": 0 });
    for call in [
        "PUT {}/pause",
        "DELETE {}/pause",
        "POST {}/trigger",
        "GET {}/next",
    ] {
        let line = call.replace("{}", &format!("{AT}/absent"));
        assert_refused!(
            instance.call(&line).await?,
            404,
            "no_such_schedule",
            "{line}"
        );
        let line = call.replace("{}", "/v1/queues/none/schedules/absent");
        assert_refused!(instance.call(&line).await?, 404, "no_such_queue", "{line}");
    }
    assert!(!instance.client.queue("none")?.exists().await?);
    Ok(())
}
