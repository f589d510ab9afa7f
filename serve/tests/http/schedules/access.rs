//! Schedules: rights of callers, older workers, and calls while Redis is unreachable.

use anyhow::Result;
use serde_json::{Value, json};

use super::{AT, nightly};
use crate::assert_refused;
use crate::instance::Instance;

#[tokio::test(flavor = "multi_thread")]
async fn first_schedule_is_refused_while_old_workers_live() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("reports").await?;
    // A node of release 0.1: its id has no release in it.
    let keys = dueq::admin::queue_keys("reports")?;
    instance.client.load_functions().await?;
    let words = ["FCALL", "dueq_beat", "10"]
        .into_iter()
        .chain(keys.iter().map(String::as_str));
    let words: Vec<_> = words.chain(["", "old-node", "stay"]).collect();
    let reply = instance.redis.command(&words)?;
    assert!(!reply.starts_with('-'), "{reply}");
    assert_eq!(queue.older_nodes().await?, ["old-node"]);
    let answer = instance
        .send(&format!("PUT {AT}/sync"), &json!({ "every": "1h" }))
        .await?;
    assert_refused!(&answer, 409, "older_workers");
    assert!(answer.body.contains("old-node"), "{answer:?}");
    let answer = instance
        .send(
            &format!("PUT {AT}/sync?allow_older=true"),
            &json!({ "every": "1h" }),
        )
        .await?;
    assert_eq!(answer.status, 201, "{answer:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn viewer_reads_schedules_without_payloads() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let at = format!("{AT}/nightly");
    let body = nightly().to_string();
    assert_eq!(
        instance
            .ask_as("operator", &format!("PUT {at}"), &body)
            .await?
            .status,
        201
    );
    let read = instance.ask_as("viewer", &format!("GET {at}"), "").await?;
    let schedule = read.json()?;
    assert_eq!(
        (
            &schedule["payload"],
            &schedule["payload_bytes"],
            &schedule["payload_withheld"]
        ),
        (&Value::Null, &json!(13), &json!(true))
    );
    assert!(!read.body.contains("report\\\""), "{read:?}");
    assert!(instance.read_as("operator", &format!("GET {at}")).await?["payload"].is_string());
    let log = instance.audit()?;
    assert_eq!(
        log[0]["body"]["payload"],
        json!({ "bytes": 13 }),
        "no payload in the audit log"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn trigger_with_a_lost_reply_is_unknown_and_acts_once() -> Result<()> {
    let mut instance = Instance::open().await?;
    instance
        .send(&format!("PUT {AT}/nightly"), &json!({ "every": "1h" }))
        .await?;
    // These calls load the scripts into Redis, so that the lost reply below is not that of loading
    // one.
    for line in ["POST {}/trigger", "PUT {}/pause", "DELETE {}/pause"] {
        let line = line.replace("{}", &format!("{AT}/nightly"));
        assert!(instance.call(&line).await?.status < 300, "{line}");
    }
    let proxy = instance.restart_behind_a_proxy().await?;
    // Of the calls that a trigger makes, only one contains this name.
    proxy.cut_reply_of("nightly");
    let answer = instance.call(&format!("POST {AT}/nightly/trigger")).await?;
    assert!(matches!(answer.status, 503 | 504), "{answer:?}");
    answer.code()?;
    assert_eq!(
        (proxy.cuts(), &answer.json()?["applied"]),
        (1, &json!("unknown")),
        "{answer:?}"
    );
    let schedule = instance.call(&format!("GET {AT}/nightly")).await?.json()?;
    assert_eq!(
        schedule["triggered"], 2,
        "the server did not repeat the call"
    );
    // A pause is harmless to repeat, so the server repeats it.
    proxy.cut_reply_of("nightly");
    let answer = instance.call(&format!("PUT {AT}/nightly/pause")).await?;
    assert_eq!((answer.status, proxy.cuts()), (200, 2), "{answer:?}");
    Ok(())
}
