//! Schedules: who may do what, older workers, and calls while Redis is away.

use anyhow::Result;
use serde_json::{Value, json};

use super::{AT, JSON, ask, nightly, send};
use crate::assert_refused;
use crate::instance::Instance;

#[tokio::test(flavor = "multi_thread")]
async fn first_schedule_is_refused_below_older_workers() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("reports").await?;
    // A node as release 0.1 has it: its id says nothing of a release.
    let keys = dueq::queue_keys("reports")?;
    instance.client.load_functions().await?;
    let words = ["FCALL", "dueq_beat", "10"]
        .into_iter()
        .chain(keys.iter().map(String::as_str));
    let words: Vec<_> = words.chain(["", "old-node", "stay"]).collect();
    let reply = instance.redis.command(&words)?;
    assert!(!reply.starts_with('-'), "{reply}");
    assert_eq!(queue.older_nodes().await?, ["old-node"]);
    let answer = send(
        &instance,
        &format!("PUT {AT}/sync"),
        &json!({ "every": "1h" }),
    )
    .await?;
    assert_refused!(&answer, 409, "older_workers");
    assert!(answer.body.contains("old-node"), "{answer:?}");
    let answer = send(
        &instance,
        &format!("PUT {AT}/sync?allow_older=true"),
        &json!({ "every": "1h" }),
    )
    .await?;
    assert_eq!(answer.status, 201, "{answer:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn viewers_read_schedules_without_payloads() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let at = format!("{AT}/nightly");
    let body = nightly().to_string();
    for role in ["viewer", "producer", "consumer"] {
        for line in [
            format!("PUT {at}"),
            format!("POST {AT}"),
            format!("POST {at}/trigger"),
            format!("DELETE {at}"),
            format!("PUT {at}/pause"),
        ] {
            assert_refused!(
                instance.ask_as(role, &line, &body).await?,
                403,
                "forbidden",
                "{role} {line}"
            );
        }
    }
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
    assert!(
        instance
            .ask_as("operator", &format!("GET {at}"), "")
            .await?
            .json()?["payload"]
            .is_string()
    );
    for line in [
        format!("GET {AT}"),
        format!("GET {at}"),
        format!("GET {at}/next"),
        format!("DELETE {at}"),
    ] {
        assert_refused!(
            instance.ask_as("foreigner", &line, "").await?,
            403,
            "foreign_queue",
            "{line}"
        );
    }
    let log = instance.audit()?;
    assert_eq!(
        log[0]["body"]["payload"],
        json!({ "bytes": 13 }),
        "no payload in the audit log"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_say_whether_they_applied_without_redis() -> Result<()> {
    let mut instance = Instance::open().await?;
    let at = format!("{AT}/nightly");
    send(&instance, &format!("PUT {at}"), &nightly()).await?;
    instance.redis.kill()?;
    let call = async |line: &str, body: &str| {
        let line = line.replace("{}", AT);
        instance.ask(&line, &[JSON], body).await
    };
    let all = async || {
        tokio::join!(
            call("PUT {}/nightly", "{\"every\": \"1h\"}"),
            call("POST {}", "{\"schedules\": []}"),
            call("POST {}/nightly/trigger", ""),
            call("PUT {}/nightly/pause", ""),
            call("DELETE {}/nightly/pause", ""),
            call("DELETE {}/nightly", ""),
            call("GET {}", ""),
            call("GET {}/nightly", ""),
            call("GET {}/nightly/next", ""),
        )
    };
    // The first call on a connection may be the one that finds it broken: it may have been sent.
    let _ = tokio::time::timeout(std::time::Duration::from_secs(1), all()).await;
    let (put, post, trigger, pause, resume, remove, list, read, next) = all().await;
    for answer in [put, post, trigger, pause, resume, remove, list, read, next] {
        let answer = answer?;
        assert!(matches!(answer.status, 503 | 504), "{answer:?}");
        answer.code()?;
        assert_eq!(
            answer.json()?["applied"],
            "no",
            "no call reached Redis: {answer:?}"
        );
    }
    let fires = ask(&instance, "GET /v1/fires?every=1h").await?;
    assert_eq!(fires.status, 200, "needs no Redis: {fires:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn trigger_whose_reply_is_lost_is_unknown_and_made_once() -> Result<()> {
    let mut instance = Instance::open().await?;
    send(
        &instance,
        &format!("PUT {AT}/nightly"),
        &json!({ "every": "1h" }),
    )
    .await?;
    // Redis has the scripts after these calls: a lost reply is not that it lacks one.
    for line in ["POST {}/trigger", "PUT {}/pause", "DELETE {}/pause"] {
        let line = line.replace("{}", &format!("{AT}/nightly"));
        assert!(ask(&instance, &line).await?.status < 300, "{line}");
    }
    let proxy = instance.restart_behind_a_proxy().await?;
    // The name is in no other call of the trigger.
    proxy.cut_reply_of("nightly");
    let answer = ask(&instance, &format!("POST {AT}/nightly/trigger")).await?;
    assert!(matches!(answer.status, 503 | 504), "{answer:?}");
    answer.code()?;
    assert_eq!(
        (proxy.cuts(), &answer.json()?["applied"]),
        (1, &json!("unknown")),
        "{answer:?}"
    );
    let schedule = ask(&instance, &format!("GET {AT}/nightly")).await?.json()?;
    assert_eq!(
        schedule["triggered"], 2,
        "the server did not repeat the call"
    );
    // A pause can be repeated, so the server does.
    proxy.cut_reply_of("nightly");
    let answer = ask(&instance, &format!("PUT {AT}/nightly/pause")).await?;
    assert_eq!((answer.status, proxy.cuts()), (200, 2), "{answer:?}");
    Ok(())
}
