//! Schedules: names and bodies that the server refuses.

use anyhow::Result;
use serde_json::json;

use super::{AT, JSON};
use crate::assert_refused;
use crate::instance::Instance;

#[tokio::test(flavor = "multi_thread")]
async fn both_encodings_of_a_name_address_one_schedule() -> Result<()> {
    let instance = Instance::open().await?;
    let body = json!({ "every": "1h" });
    for (path, name, spelled) in [
        ("shop%2Fde", "shop/de", "~c2hvcC9kZQ"),
        ("~Li4", "..", "%2e%2e"),
        ("~Lg", ".", "~Lg"),
        ("a:b", "a:b", "~YTpi"),
    ] {
        let made = instance.send(&format!("PUT {AT}/{path}"), &body).await?;
        assert_eq!(
            (made.status, &made.json()?["schedule"]),
            (201, &json!(name)),
            "{path}"
        );
        let read = instance.call(&format!("GET {AT}/{spelled}")).await?;
        assert_eq!(
            (read.status, &read.json()?["name"]),
            (200, &json!(name)),
            "{spelled}"
        );
    }
    let long = "x".repeat(201);
    for path in [
        "a%00",
        "%00",
        "a%20b",
        "a%0Ab",
        "%FF",
        "~",
        "~YQ==",
        "%",
        "%2",
        "~_w",
        "a%22",
        "k%C3%A4se",
        &long[..101],
        &long,
        &format!("~{long}"),
    ] {
        for method in ["GET", "PUT", "DELETE"] {
            let line = format!("{method} {AT}/{path}");
            let answer = if method == "PUT" {
                instance.send(&line, &body).await?
            } else {
                instance.call(&line).await?
            };
            assert_refused!(&answer, 400, "invalid_path", "{line}");
        }
    }
    assert_eq!(
        instance.client.queue("reports")?.stats().await?.schedules,
        4
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_schedules_change_nothing() -> Result<()> {
    let instance = Instance::open().await?;
    for (fields, detail) in [
        ("", "it has no rule"),
        ("\"cron\": \"61 * * * *\", \"zone\": \"UTC\"", "61"),
        ("\"cron\": \"* * *\", \"zone\": \"UTC\"", "cron"),
        (
            "\"cron\": \"0 2 * * *\", \"zone\": \"Mars/Olympus\"",
            "Mars/Olympus",
        ),
        ("\"cron\": \"0 2 * * *\"", "time zone"),
        ("\"cron\": \"0 0 30 2 *\", \"zone\": \"UTC\"", "ten years"),
        (
            "\"every\": \"1h\", \"zone\": \"UTC\"",
            "every has no time zone",
        ),
        ("\"every\": \"1h\", \"every\": \"2h\"", "duplicate field"),
        ("\"every\": \"9ms\"", "10 ms to 100 years"),
        ("\"every\": \"101y\"", "every"),
        ("\"every\": -1", "every is a number"),
        ("\"every\": \"1h\", \"limit\": -1", "limit is -1"),
        ("\"every\": \"1h\", \"limit\": 1e300", "limit"),
        (
            "\"every\": \"1h\", \"limit\": 1e400",
            "the number is too large",
        ),
        (
            "\"every\": \"1h\", \"jiter\": \"1s\"",
            "did you mean jitter?",
        ),
        ("\"every\": \"1h\", \"jitter\": \"1h\"", "jitter"),
        ("\"every\": \"1h\", \"name\": \"other\"", "another name"),
        ("\"every\": \"1h\", \"payload\": 5", "payload is a number"),
        (
            "\"every\": \"1h\", \"payload\": \"x\", \"payload_base64\": \"eA==\"",
            "leave out one",
        ),
        (
            "\"every\": \"1h\", \"on_expire\": \"drop\"",
            "without expires",
        ),
        (
            "\"every\": \"1h\", \"start\": \"2027-01-01\"",
            "with its offset",
        ),
    ] {
        let answer = instance
            .ask(
                &format!("PUT {AT}/nightly"),
                &[JSON],
                &format!("{{{fields}}}"),
            )
            .await?;
        assert_refused!(&answer, 400, "invalid_input", "{fields}");
        let problem = answer.json()?;
        assert!(
            problem["detail"]
                .as_str()
                .is_some_and(|text| text.contains(detail)),
            "{fields}: {answer:?}"
        );
        assert_eq!(problem["applied"], "no");
    }
    for body in [
        "{\"every\": NaN}",
        "{\"every\": \"1h\"",
        "{\"every\": \"1h\"}}",
        "{\"every\": \"\u{1}\"}",
        "",
    ] {
        let answer = instance
            .ask(&format!("PUT {AT}/nightly"), &[JSON], body)
            .await?;
        assert_refused!(&answer, 400, "bad_request", "{body:?}");
    }
    let deep = format!(
        "{{\"every\": \"1h\", \"payload_json\": {}1{}}}",
        "[".repeat(5_000),
        "]".repeat(5_000)
    );
    let answer = instance
        .ask(&format!("PUT {AT}/nightly"), &[JSON], &deep)
        .await?;
    assert_eq!(answer.status, 400, "{answer:?}");
    for query in [
        "revision=-1",
        "revision=NaN",
        "revision=1e3",
        "revision=9007199254740993",
        "revision=99999999999999999999",
        "set=",
        "set=a%20b",
        "set=a%00",
        "prune=true",
        "dry_run=yes",
        "set=a&set=b",
        "x=1",
    ] {
        let answer = instance
            .send(
                &format!("PUT {AT}/nightly?{query}"),
                &json!({ "every": "1h" }),
            )
            .await?;
        assert_refused!(&answer, 400, "invalid_input", "{query}");
    }

    let apply = format!("POST {AT}");
    let hourly = |name: String| json!({ "name": name, "every": "1h" });
    let many: Vec<_> = (0..1_001)
        .map(|number| hourly(format!("s{number}")))
        .collect();
    for (body, detail) in [
        (json!({ "schedules": many }), "write up to 1000"),
        (
            json!({ "schedules": [hourly("a".into()), hourly("a".into())] }),
            "schedule 1 of the list has this name",
        ),
        (
            json!({ "schedules": [hourly("a".into()), { "name": "b" }] }),
            "schedule \"b\": it has no rule",
        ),
        (json!({ "schedules": [{ "every": "1h" }] }), "has no name"),
        (json!({ "schedules": {} }), "write a list"),
        (json!({ "schedule": [] }), "there is no such field"),
        (
            json!({ "schedules": [], "set": "a" }),
            "there is no such field",
        ),
        (json!([]), "write an object"),
    ] {
        let answer = instance.send(&apply, &body).await?;
        assert_refused!(&answer, 400, "invalid_input", "{detail}");
        assert!(
            answer.body.contains(&detail.replace('"', "\\\"")),
            "{detail}: {answer:?}"
        );
    }
    assert_refused!(
        instance
            .ask(&apply, &["Content-Type: application/toml"], "schedule = []")
            .await?,
        415,
        "unsupported_media_type"
    );
    let large = json!({ "every": "1h", "payload": "x".repeat(1 << 20) });
    assert_refused!(
        instance.send(&format!("PUT {AT}/nightly"), &large).await?,
        413,
        "too_large"
    );
    assert!(
        !instance.client.queue("reports")?.exists().await?,
        "nothing was changed"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_that_cannot_have_schedules_refuses_them() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("reports")?;
    queue
        .configure(dueq::QueueLimits::new().max_payload_bytes(3))
        .await?;
    let body = json!({ "every": "1h", "payload": "1234" });
    let answer = instance.send(&format!("PUT {AT}/sync"), &body).await?;
    assert_refused!(&answer, 400, "invalid_input");
    assert!(answer.body.contains("payload has 4 bytes"), "{answer:?}");
    queue.partition_into(2).await?;
    let answer = instance
        .send(&format!("PUT {AT}/sync"), &json!({ "every": "1h" }))
        .await?;
    assert_refused!(&answer, 409, "partitioned");
    assert_eq!(answer.json()?["applied"], "no", "{answer:?}");
    assert_eq!(queue.stats().await?.schedules, 0);
    Ok(())
}
