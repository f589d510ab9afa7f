//! Purges, cancels, audits and repairs; dry runs of all; and operations that are refused.

use anyhow::Result;
use serde_json::{Value, json};

use super::{AT, JSON, begin, bury, dead, depths, push, run, scheduled};
use crate::instance::Instance;
use crate::{assert_has, assert_refused};

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_counts_and_changes_nothing() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, before_ms) = dead(&instance, 1_500).await?;
    push(&queue, "later-dead-", 3).await?;
    bury(&queue, 3).await?;
    let due_ms = scheduled(&queue, 20).await?;
    push(&queue, "due-", 5).await?;
    let keys = queue.keys_of("later-1").await?;
    instance.redis.command(&["HDEL", &keys[4], "later-1"])?;
    let info = instance.redis.command(&["HGET", &keys[9], "seq"])?;
    let before = depths(&queue).await?;
    let early_ms = due_ms - 1;
    for (body, done) in [
        (
            json!({ "kind": "requeue", "before_ms": before_ms, "canary": 10 }),
            1_500,
        ),
        (json!({ "kind": "requeue" }), 1_503),
        (
            json!({ "kind": "purge", "state": "dead", "before_ms": before_ms }),
            1_500,
        ),
        (
            json!({ "kind": "purge", "state": "scheduled", "before_ms": due_ms }),
            25,
        ),
        (
            json!({ "kind": "purge", "state": "scheduled", "before_ms": early_ms }),
            5,
        ),
        (
            json!({ "kind": "cancel", "ids": ["later-0", "old-1", "due-1", "none"] }),
            2,
        ),
        (
            json!({ "kind": "cancel", "ids": ["later-0", "old-1"], "dead": true }),
            2,
        ),
    ] {
        let mut body = body;
        body["dry_run"] = json!(true);
        body["pace"] = json!(100_000);
        let end = run(&instance, body.clone()).await?;
        assert_eq!(
            (&end["state"], &end["done"], &end["dry_run"]),
            (&json!("done"), &json!(done), &json!(true)),
            "{body}: {end}"
        );
    }
    for body in [
        json!({ "kind": "audit" }),
        json!({ "kind": "repair", "dry_run": true }),
    ] {
        let end = run(&instance, body).await?;
        assert_eq!(
            (&end["audit"]["found"], &end["audit"]["repaired"]),
            (&json!(1), &json!(0)),
            "{end}"
        );
        let found = &end["audit"]["findings"][0];
        assert_has!(found, { "code": "hollow", "subject": "later-1" });
    }
    assert_eq!(depths(&queue).await?, before);
    assert_eq!(
        instance.redis.command(&["HGET", &keys[9], "seq"])?,
        info,
        "no call changed it"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_removes_only_the_selected_messages() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, before_ms) = dead(&instance, 300).await?;
    push(&queue, "later-dead-", 3).await?;
    bury(&queue, 3).await?;
    let due_ms = scheduled(&queue, 20).await?;
    let body = |state: &str, before_ms: Value| json!({ "kind": "purge", "state": state, "before_ms": before_ms, "pace": 100_000 });
    let end = run(&instance, body("dead", json!(before_ms))).await?;
    assert_has!(end, { "done": 300, "messages": "dead" });
    assert_eq!(depths(&queue).await?, [20, 0, 0, 3]);
    let end = run(&instance, body("scheduled", json!(due_ms - 1))).await?;
    assert_eq!(end["done"], 0, "{end}");
    let end = run(&instance, body("scheduled", json!(due_ms))).await?;
    assert_has!(end, { "done": 20, "before_ms": due_ms });
    push(&queue, "due-", 5).await?;
    // A claim promotes messages: those that it does not take are on the ready list.
    let mut released = false;
    while !released {
        for delivery in queue.claim(1, super::LIMIT).await? {
            let _ = delivery.release().await?;
            released = true;
        }
    }
    let [waiting, ready, ..] = depths(&queue).await?;
    assert_eq!(waiting + ready, 5);
    let end = run(
        &instance,
        json!({ "kind": "purge", "state": "ready", "pace": 100_000 }),
    )
    .await?;
    assert_eq!(end["done"], json!(ready), "{end}");
    assert_eq!(depths(&queue).await?, [waiting, 0, 0, 3]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_reports_the_messages_it_did_not_cancel() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, _) = dead(&instance, 2).await?;
    scheduled(&queue, 300).await?;
    queue.push("x").id("held").await?;
    queue.push("x").id(&b"\xff"[..]).delay(super::LIMIT).await?;
    let mut held = Vec::new();
    while held.is_empty() {
        held = queue.claim(1, super::LIMIT).await?; // the message is due within this millisecond
    }
    let mut ids: Vec<_> = (0..300).map(|number| format!("later-{number}")).collect();
    ids.extend(["held", "old-0", "none", "~_w"].map(str::to_owned));
    let body = json!({ "kind": "cancel", "ids": ids, "pace": 100_000 });
    let end = run(&instance, body.clone()).await?;
    assert_has!(end, { "done": 301, "of": 304 });
    assert_eq!(
        end["skipped"],
        json!({ "leased": 1, "dead": 1, "absent": 1 })
    );
    assert_eq!(end["before_ms"], Value::Null);
    assert_eq!(depths(&queue).await?, [0, 0, 1, 2]);
    // A cancel that is repeated within 12 s gets the answer of the first.
    let again = run(&instance, body).await?;
    assert_eq!(again["done"], 301, "{again}");
    let body = json!({ "kind": "cancel", "ids": ["old-0"], "dead": true });
    assert_eq!(run(&instance, body).await?["done"], 1);
    assert_eq!(depths(&queue).await?, [0, 0, 1, 1]);
    drop(held);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn repair_mends_the_damage_that_an_audit_found() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    scheduled(&queue, 600).await?;
    let keys = queue.keys_of("later-1").await?;
    for number in 0..150 {
        let id = format!("later-{number}");
        instance.redis.command(&["HDEL", &keys[4], &id])?;
    }
    let end = run(&instance, json!({ "kind": "repair" })).await?;
    assert_eq!(
        (
            &end["state"],
            &end["audit"]["found"],
            &end["audit"]["repaired"]
        ),
        (&json!("done"), &json!(150), &json!(150)),
        "{end}"
    );
    let findings = end["audit"]["findings"].as_array().expect("a list");
    assert_eq!(findings.len(), 100, "the answer is bounded");
    let listed = instance.read(&format!("GET {AT}")).await?;
    assert_eq!(
        listed["operations"][0]["audit"],
        json!({ "found": 150, "repaired": 150 })
    );
    let end = run(&instance, json!({ "kind": "audit" })).await?;
    assert_eq!(end["audit"]["found"], 0, "{end}");
    assert!(end["done"].as_u64() >= Some(900), "{end}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_operations_are_refused_and_not_begun() -> Result<()> {
    let instance = Instance::open().await?;
    let absent = begin(&instance, json!({ "kind": "requeue" })).await?;
    assert_refused!(absent, 404, "no_such_queue");
    let (queue, _) = dead(&instance, 3).await?;
    let nested = format!("{{\"kind\": {}", "[".repeat(100_000));
    for (body, code) in [
        ("", "invalid_input"),
        ("{}", "invalid_input"),
        ("[]", "invalid_input"),
        ("{", "bad_request"),
        (&*nested, "bad_request"),
        ("{\"kind\": \"requeue\"} {}", "bad_request"),
        ("{\"kind\": \"drop\"}", "invalid_input"),
        (
            "{\"kind\": \"requeue\", \"kind\": \"purge\"}",
            "invalid_input",
        ),
        (
            "{\"kind\": \"requeue\", \"before_ms\": 1e400}",
            "invalid_input",
        ),
        (
            "{\"kind\": \"requeue\", \"before_ms\": -1}",
            "invalid_input",
        ),
        (
            "{\"kind\": \"requeue\", \"before_ms\": \"now\"}",
            "invalid_input",
        ),
        (
            "{\"kind\": \"requeue\", \"before_ms\": 18446744073709551615}",
            "invalid_input",
        ),
        ("{\"kind\": \"requeue\", \"canary\": 0}", "invalid_input"),
        ("{\"kind\": \"requeue\", \"pace\": NaN}", "bad_request"),
        (
            "{\"kind\": \"purge\", \"state\": \"leased\"}",
            "invalid_input",
        ),
        (
            "{\"kind\": \"cancel\", \"ids\": [\"\\u0000\"]}",
            "invalid_input",
        ),
    ] {
        let answer = instance.ask(&format!("POST {AT}"), &[JSON], body).await?;
        let shown: String = body.chars().take(60).collect();
        assert_eq!(
            (answer.status, &*answer.code()?),
            (400, code),
            "{shown}: {answer:?}"
        );
        assert_eq!(answer.json()?["applied"], "no");
    }
    let form = instance
        .ask(
            &format!("POST {AT}"),
            &["Content-Type: text/plain"],
            "{\"kind\": \"requeue\"}",
        )
        .await?;
    assert_refused!(form, 415, "unsupported_media_type");
    assert_eq!(depths(&queue).await?, [0, 0, 0, 3]);
    let listed = instance.call(&format!("GET {AT}")).await?;
    assert_eq!(listed.json()?, json!({ "operations": [] }));
    for id in ["none", "%00", "..", "~_w", &"x".repeat(5_000)] {
        for line in [format!("GET {AT}/{id}"), format!("POST {AT}/{id}/stop")] {
            let answer = instance.call(&line).await?;
            assert!(matches!(answer.status, 400 | 404), "{line}: {answer:?}");
            answer.code()?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_cannot_reach_operations_of_other_queues() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    dead(&instance, 3).await?;
    instance.queue("other-1").await?;
    let line = format!("POST {AT}");
    let body = "{\"kind\": \"requeue\"}";
    for (name, code) in [("foreigner", "foreign_queue"), ("producer", "forbidden")] {
        let answer = instance.ask_as(name, &line, body).await?;
        assert_eq!(answer.refusal()?, (403, code.to_owned()), "{name}");
    }
    let begun = instance.ask_as("operator", &line, body).await?;
    assert_eq!(begun.status, 202, "{begun:?}");
    let id = begun.json()?["id"].as_str().expect("an id").to_owned();
    assert_eq!(begun.json()?["by"], "operator");
    // The path has a queue that the caller may use, and the id an operation on another queue.
    let foreign = format!("/v1/queues/other-1/operations/{id}");
    for line in [format!("GET {foreign}"), format!("POST {foreign}/stop")] {
        let answer = instance.ask_as("foreigner", &line, "").await?;
        assert_refused!(answer, 404, "no_such_operation");
    }
    let viewed = instance
        .ask_as("viewer", &format!("GET {AT}/{id}"), "")
        .await?;
    assert_eq!(viewed.status, 200, "{viewed:?}");
    Ok(())
}
