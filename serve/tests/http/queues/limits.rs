//! The limits of a queue: read and set.

use anyhow::Result;
use serde_json::{Value, json};

use crate::assert_refused;
use crate::instance::{Answer, Instance, JSON};

const AT: &str = "/v1/queues/orders/limits";

async fn set(instance: &Instance, body: &str) -> Result<Answer> {
    instance.ask(&format!("PATCH {AT}"), &[JSON], body).await
}

/// Asserts that the object has these fields.
fn assert_has(answer: &Answer, expected: &Value) -> Result<()> {
    let limits = answer.json()?;
    for (name, value) in expected.as_object().into_iter().flatten() {
        assert_eq!(&limits[name], value, "{name}: {answer:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn call_changes_only_the_limits_it_names() -> Result<()> {
    let instance = Instance::open().await?;
    let usual = json!({
        "queue": "orders", "max_attempts": 20, "max_crashes": 5, "max_messages": null,
        "max_payload_bytes": 1_048_576, "keep_dead_ms": 2_592_000_000_u64, "keep_dead": 100_000,
        "rate": null, "rate_window_ms": null, "burst": null, "max_leased": null,
        "max_throttle_ms": 900_000, "max_remembered": 1_000_000, "keep_life_ms": null,
    });
    assert_refused!(
        instance.call(&format!("GET {AT}")).await?,
        404,
        "no_such_queue"
    );
    let made = set(&instance, "{\"max_attempts\": 20}").await?;
    assert_eq!((made.status, made.json()?), (201, usual.clone()));
    let read = instance.call(&format!("GET {AT}")).await?;
    assert_eq!((read.status, read.json()?), (200, usual));

    let all = json!({
        "max_attempts": 1, "max_crashes": 0, "max_messages": 1_000_000_000_000_000_u64,
        "max_payload_bytes": 16_777_216, "keep_dead_ms": 1, "keep_dead": 1, "rate": 50,
        "rate_window_ms": 60_000, "burst": 5, "max_leased": 1_000_000, "max_throttle_ms": 1,
        "max_remembered": 1, "keep_life_ms": 0,
    });
    for _ in 0..2 {
        let answer = set(&instance, &all.to_string()).await?;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_has(&answer, &all)?;
    }
    let queue = instance.call("GET /v1/queues/orders").await?;
    assert_has(&queue, &all)?;
    // Only the named fields change. A rate without a burst gets the default burst.
    let answer = set(&instance, "{\"rate\": 7, \"rate_window_ms\": 1000}").await?;
    assert_has(
        &answer,
        &json!({ "rate": 7, "rate_window_ms": 1_000, "burst": 1, "max_leased": 1_000_000 }),
    )?;
    // The answer without the queue's name is a valid change itself.
    let mut again = answer.json()?;
    again.as_object_mut().map(|fields| fields.remove("queue"));
    let same = set(&instance, &again.to_string()).await?;
    assert_eq!(same.json()?, answer.json()?);
    let none = json!({ "max_messages": null, "rate": null, "rate_window_ms": null, "burst": null, "max_leased": null });
    let answer = set(&instance, &none.to_string()).await?;
    assert_has(&answer, &none)?;
    assert_has(&answer, &json!({ "max_attempts": 1, "keep_dead": 1 }))?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_limits_change_nothing() -> Result<()> {
    let instance = Instance::open().await?;
    for (body, detail) in [
        ("{}", "no limit is named"),
        ("", "no limit is named"),
        (
            "{\"max_attempts\": 0}",
            "max_attempts is 0: write 1 to 1000000",
        ),
        ("{\"max_attempts\": 1000001}", "max_attempts is 1000001"),
        ("{\"max_attempts\": -1}", "-1"),
        ("{\"max_attempts\": 1.5}", "1.5"),
        ("{\"max_attempts\": 1e3}", "the number `1000"),
        ("{\"max_attempts\": \"5\"}", "the text \"5\""),
        ("{\"max_attempts\": null}", "null"),
        ("{\"max_attempts\": 99999999999999999999}", "is given"),
        (
            "{\"max_attempts\": 5, \"max_attempts\": 6}",
            "duplicate field",
        ),
        ("{\"max_atempts\": 5}", "unknown field `max_atempts`"),
        (
            "{\"queue\": \"orders\", \"max_attempts\": 5}",
            "unknown field `queue`",
        ),
        ("{\"max_crashes\": 1000001}", "max_crashes"),
        ("{\"max_messages\": 0}", "max_messages is 0"),
        ("{\"max_messages\": 1000000000000001}", "max_messages"),
        ("{\"max_payload_bytes\": 0}", "max_payload_bytes"),
        ("{\"max_payload_bytes\": 16777217}", "max_payload_bytes"),
        ("{\"keep_dead_ms\": 0}", "keep_dead_ms"),
        ("{\"keep_dead_ms\": 3155760000001}", "keep_dead_ms"),
        ("{\"keep_dead\": 0}", "keep_dead is 0"),
        ("{\"max_leased\": 0}", "max_leased is 0"),
        ("{\"max_leased\": 1000001}", "max_leased"),
        ("{\"max_throttle_ms\": 0}", "max_throttle_ms"),
        ("{\"max_remembered\": 0}", "max_remembered"),
        ("{\"rate\": 5}", "set together"),
        ("{\"rate_window_ms\": 5}", "set together"),
        ("{\"burst\": 5}", "set together"),
        ("{\"rate\": null, \"rate_window_ms\": 1000}", "set together"),
        ("{\"rate\": null, \"burst\": 1}", "set together"),
        ("{\"rate_window_ms\": null}", "no limit is named"),
        ("{\"rate\": 0, \"rate_window_ms\": 1000}", "rate is 0"),
        (
            "{\"rate\": 1000001, \"rate_window_ms\": 1000}",
            "rate is 1000001",
        ),
        (
            "{\"rate\": 5, \"rate_window_ms\": 0}",
            "rate_window_ms is 0",
        ),
        (
            "{\"rate\": 5, \"rate_window_ms\": 2592000001}",
            "rate_window_ms",
        ),
        (
            "{\"rate\": 5, \"rate_window_ms\": 1000, \"burst\": 6}",
            "burst is 6: write 1 to 5",
        ),
        (
            "{\"rate\": 5, \"rate_window_ms\": 1000, \"burst\": 0}",
            "burst is 0",
        ),
        ("{\"max_attempts\": 5, \"keep_dead\": 0}", "keep_dead is 0"),
        ("[5]", "a list is given"),
        ("5", "an object is expected"),
        ("{\"max_attempts\": 1e400}", "too large"),
    ] {
        let answer = set(&instance, body).await?;
        assert_refused!(&answer, 400, "invalid_input", "{body}");
        let problem = answer.json()?;
        assert!(
            problem["detail"]
                .as_str()
                .is_some_and(|text| text.contains(detail)),
            "{body}: {answer:?}"
        );
        assert_eq!(problem["applied"], "no", "{body}");
    }
    for body in [
        "{\"max_attempts\": NaN}",
        "{\"max_attempts\": 5",
        "{\"max_attempts\": 5}}",
        "\u{1}",
    ] {
        assert_refused!(set(&instance, body).await?, 400, "bad_request", "{body}");
    }
    let queue = instance.client.queue("orders")?;
    assert!(!queue.exists().await?, "nothing was changed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_apply_to_the_whole_of_a_partitioned_queue() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    queue.partition_into(4).await?;
    for body in [
        "{\"max_leased\": 3}",
        "{\"rate\": 3, \"rate_window_ms\": 1000}",
    ] {
        let answer = set(&instance, body).await?;
        assert_refused!(&answer, 400, "invalid_input", "{body}");
        assert_eq!(answer.json()?["applied"], "no");
    }
    let answer = set(
        &instance,
        "{\"rate\": 8, \"rate_window_ms\": 1000, \"max_leased\": 8}",
    )
    .await?;
    assert_has(
        &answer,
        &json!({ "rate": 8, "max_leased": 8, "max_attempts": 20 }),
    )?;
    Ok(())
}
