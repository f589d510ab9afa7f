//! Names of queues in paths: both spellings, and hostile ones.

use anyhow::Result;

use crate::assert_refused;
use crate::instance::Instance;

#[tokio::test(flavor = "multi_thread")]
async fn hostile_names_are_refused() -> Result<()> {
    let instance = Instance::open().await?;
    let (long, long_encoded) = ("x".repeat(129), "%61".repeat(129));
    for segment in [
        "%00",
        "orders%00",
        "%0d%0aSet-Cookie:x",
        "%1b%5b2J",
        "%ff",
        "%c3%28",
        "%ed%a0%80",
        "a%2fb",
        "%7Bx%7D",
        "%",
        "%zz",
        "%u0061",
        "~",
        "~!",
        "~YQ==",
        "~AA",
        "~_w",
        &long,
        &long_encoded,
    ] {
        for line in ["GET /v1/queues/SEGMENT", "PUT /v1/queues/SEGMENT/pause"] {
            let line = line.replace("SEGMENT", segment);
            let answer = instance.ask(&line, &[], "").await?;
            assert_refused!(&answer, 400, "invalid_path", "{line}");
            assert!(!answer.body.contains(char::is_control), "{answer:?}");
        }
    }
    assert_eq!(
        instance.redis.command(&["DBSIZE"])?,
        ":0\r\n",
        "nothing was created"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_valid_name_has_two_spellings() -> Result<()> {
    let instance = Instance::open().await?;
    for (name, percent, base64) in [
        ("orders", "orders", "~b3JkZXJz"),
        ("a b?#%~", "a%20b%3F%23%25%7E", "~YSBiPyMlfg"),
        ("f\u{fc}r", "f%C3%BCr", "~ZsO8cg"),
        ("~x", "%7Ex", "~fng"),
    ] {
        instance.queue(name).await?;
        for segment in [percent, base64] {
            let answer = instance
                .ask(&format!("GET /v1/queues/{segment}"), &[], "")
                .await?;
            assert_eq!(answer.status, 200, "{answer:?}");
            let stats = answer.json()?;
            assert_eq!(
                (stats["queue"].as_str(), stats["scheduled"].as_u64()),
                (Some(name), Some(1))
            );
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn absent_queue_is_not_created() -> Result<()> {
    let instance = Instance::open().await?;
    for line in [
        "GET /v1/queues/absent",
        "PUT /v1/queues/absent/pause",
        "DELETE /v1/queues/absent/pause",
    ] {
        assert_refused!(
            instance.ask(line, &[], "").await?,
            404,
            "no_such_queue",
            "{line}"
        );
    }
    assert_eq!(instance.redis.command(&["DBSIZE"])?, ":0\r\n");
    Ok(())
}
