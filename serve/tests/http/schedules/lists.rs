//! Schedules: sets, pages and previews.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{AT, nightly};
use crate::assert_refused;
use crate::instance::{Answer, Instance};

#[tokio::test(flavor = "multi_thread")]
async fn declared_set_replaces_its_schedules_in_one_step() -> Result<()> {
    let instance = Instance::open().await?;
    let apply = async |query: &str, schedules: Value| {
        let line = format!("POST {AT}?{query}");
        instance
            .send(&line, &json!({ "schedules": schedules }))
            .await
    };
    let two = json!([{ "name": "a", "every": "1h" }, { "name": "b", "every": "2h", "payload_json": { "x": 1 } }]);
    let words = |answer: &Answer| -> Result<Vec<String>> {
        let applied = answer.json()?;
        let list = applied["schedules"].as_array().context("a list")?;
        Ok(list
            .iter()
            .map(|one| format!("{} {}", one["schedule"], one["outcome"]).replace('"', ""))
            .collect())
    };
    let created = apply("set=billing&revision=42&now=true", two.clone()).await?;
    assert_eq!(
        (created.status, words(&created)?),
        (200, vec!["a created".to_owned(), "b created".to_owned()])
    );
    let kept = apply("set=billing&revision=42&now=true", two.clone()).await?;
    assert_eq!(words(&kept)?, ["a kept", "b kept"]);
    let queue = instance.client.queue("reports")?;
    assert_eq!(queue.stats().await?.schedules, 2);
    assert_eq!(
        queue.schedule("a").get().await?.context("a")?.triggered,
        1,
        "now makes one tick"
    );

    let stale = apply("set=billing&revision=41&prune=true", json!([])).await?;
    assert_refused!(&stale, 409, "stale");
    let foreign = apply("set=mail", json!([{ "name": "a", "every": "1h" }])).await?;
    assert_refused!(&foreign, 409, "other_set");
    assert!(
        foreign.body.contains("belongs to the set billing"),
        "{foreign:?}"
    );
    let own = instance
        .send(&format!("PUT {AT}/a"), &json!({ "every": "1h" }))
        .await?;
    assert_refused!(&own, 409, "other_set");
    assert!(own.body.contains("?set=billing"), "{own:?}");
    let own = instance
        .send(
            &format!("PUT {AT}/a?set=billing"),
            &json!({ "every": "1h" }),
        )
        .await?;
    assert_eq!((own.status, &own.json()?["outcome"]), (200, &json!("kept")));

    let dry = apply(
        "set=billing&prune=true&dry_run=true",
        json!([{ "name": "a", "every": "3h" }]),
    )
    .await?;
    assert_eq!(
        (words(&dry)?, &dry.json()?["dry_run"]),
        (
            vec!["a changed".to_owned(), "b removed".to_owned()],
            &json!(true)
        )
    );
    assert_eq!(queue.stats().await?.schedules, 2, "a dry run");
    let pruned = apply("set=billing&prune=true", json!([])).await?;
    assert_eq!(words(&pruned)?, ["a removed", "b removed"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn schedule_pages_list_each_schedule_once() -> Result<()> {
    let instance = Instance::open().await?;
    let all: Vec<_> = (0..450).map(|number| json!({ "name": format!("s/{number:03}"), "every": "1h", "payload": "secret" })).collect();
    instance
        .send(&format!("POST {AT}?set=a"), &json!({ "schedules": all }))
        .await?;
    instance
        .send(&format!("PUT {AT}/z?set=b"), &json!({ "every": "1h" }))
        .await?;
    let (mut names, mut next) = (Vec::new(), Some(format!("{AT}?limit=150")));
    while let Some(page) = next {
        let answer = instance.call(&format!("GET {page}")).await?;
        assert!(!answer.body.contains("secret"), "lists have no payloads");
        let list = answer.json()?;
        let page = list["schedules"].as_array().context("a list")?;
        assert!(page.len() <= 150);
        for schedule in page {
            let href = schedule["href"].as_str().context("an address")?;
            names.push(schedule["name"].as_str().context("a name")?.to_owned());
            if names.len() % 100 == 1 {
                let one = instance.call(&format!("GET {href}")).await?;
                assert_eq!(
                    (one.status, &one.json()?["name"]),
                    (200, &schedule["name"]),
                    "{href}"
                );
            }
        }
        next = list["next"].as_str().map(ToOwned::to_owned);
        let link = next.as_ref().map(|next| format!("<{next}>; rel=\"next\""));
        assert_eq!(answer.header("link"), link.as_deref());
    }
    let mut expected: Vec<_> = (0..450).map(|number| format!("s/{number:03}")).collect();
    expected.push("z".to_owned());
    assert_eq!(names, expected);

    for query in [
        "limit=0",
        "limit=201",
        "limit=NaN",
        "limit=1e400",
        "limit=-1",
        "limit=1&limit=1",
        "lmit=1",
    ] {
        let answer = instance.call(&format!("GET {AT}?{query}")).await?;
        assert_refused!(&answer, 400, "invalid_input", "{query}");
    }
    let page = instance.call(&format!("GET {AT}?limit=1")).await?.json()?;
    let cursor = page["next"]
        .as_str()
        .and_then(|next| next.split("cursor=").nth(1))
        .context("a cursor")?;
    for wrong in [
        "",
        "x",
        "~",
        "MQ",
        "%00",
        &format!("{cursor}A"),
        &cursor[1..],
    ] {
        let answer = instance.call(&format!("GET {AT}?cursor={wrong}")).await?;
        assert_refused!(&answer, 400, "invalid_cursor", "{wrong}");
    }
    let other = format!("GET /v1/queues/mail/schedules?cursor={cursor}");
    assert_refused!(instance.call(&other).await?, 400, "invalid_cursor");
    assert_refused!(
        instance.call("GET /v1/queues/mail/schedules").await?,
        404,
        "no_such_queue"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn preview_shows_fires_and_clock_changes() -> Result<()> {
    let instance = Instance::open().await?;
    instance
        .send(&format!("PUT {AT}/nightly"), &nightly())
        .await?;
    let next = instance
        .call(&format!("GET {AT}/nightly/next"))
        .await?
        .json()?;
    let schedule = instance.call(&format!("GET {AT}/nightly")).await?.json()?;
    let fires = next["fires"].as_array().context("fires")?;
    assert_eq!((fires.len(), &next["zone"]), (10, &json!("Europe/Paris")));
    assert_eq!(fires[0]["nominal_ms"], schedule["next_ms"], "{next}");
    let spring = "from=2027-03-27T00:00:00%2B01:00&count=3";
    let of_rule = format!("GET /v1/fires?cron=30%202%20*%20*%20*&zone=Europe/Paris&{spring}");
    let of_rule = instance.call(&of_rule).await?.json()?;
    let stored = instance
        .call(&format!("GET {AT}/nightly/next?{spring}"))
        .await?
        .json()?;
    for answer in [&of_rule, &stored] {
        let remarks: Vec<_> = (0..3)
            .map(|index| &answer["fires"][index]["remark"])
            .collect();
        assert_eq!(
            remarks,
            [
                &Value::Null,
                &json!("02:30 does not exist that day: 03:00"),
                &Value::Null
            ],
            "{answer}"
        );
        let fire = &answer["fires"][1];
        assert_eq!(fire["local"], "2027-03-28T03:00:00+02:00[Europe/Paris]");
        assert_eq!(
            (&fire["utc"], &fire["nominal_ms"]),
            (
                &json!("2027-03-28T01:00:00Z"),
                &json!(1_806_195_600_000_u64)
            )
        );
    }
    instance.call(&format!("PUT {AT}/nightly/pause")).await?;
    let paused = instance
        .call(&format!("GET {AT}/nightly/next"))
        .await?
        .json()?;
    assert_eq!(paused["fires"], json!([]));
    let every = instance
        .call("GET /v1/fires?every=50ms&count=1000&from=1970-01-01T00:00:00Z")
        .await?
        .json()?;
    assert_eq!(
        (&every["fires"][999]["nominal_ms"], &every["zone"]),
        (&json!(50_000), &json!("UTC"))
    );

    for query in [
        "count=0",
        "count=1001",
        "count=1e400",
        "count=NaN",
        "from=yesterday",
        "from=1e400",
        "from=",
        "n=5",
    ] {
        let answer = instance
            .call(&format!("GET {AT}/nightly/next?{query}"))
            .await?;
        assert_refused!(&answer, 400, "invalid_input", "{query}");
    }
    for query in [
        "",
        "cron=*",
        "every=5ms",
        "every=5%20apples",
        "every=1h&zone=UTC",
        "cron=0%202%20*%20*%20*",
        "cron=61%20*%20*%20*%20*&zone=UTC",
        "cron=0%202%20*%20*%20*&zone=Europe/Pariss",
        "cron=0%202%20*%20*%20*&zone=..%2Fetc",
        "cron=0%200%2030%202%20*&zone=UTC",
        "every=1h&cron=*",
        "every=NaN",
        "every=1h&every=1h",
        "every=1h&x=1",
    ] {
        let answer = instance.call(&format!("GET /v1/fires?{query}")).await?;
        assert_refused!(&answer, 400, "invalid_input", "{query}");
    }
    Ok(())
}
