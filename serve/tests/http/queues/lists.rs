//! The list of queues with their counts, and the two encodings of queue names.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::assert_refused;
use crate::instance::{Instance, LIMIT};

/// Reads the list repeatedly until it is as expected.
pub(crate) async fn list_until(
    instance: &Instance,
    expected: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let end = Instant::now() + LIMIT;
    loop {
        let answer = instance.call("GET /v1/queues").await?;
        let list = answer.json()?;
        if answer.status == 200 && expected(&list) {
            return Ok(list);
        }
        anyhow::ensure!(Instant::now() < end, "the list stays {list}");
    }
}

fn of<'a>(list: &'a Value, queue: &str) -> Option<&'a Value> {
    let mut all = list["queues"].as_array()?.iter();
    all.find(|listed| listed["queue"] == queue)
}

#[tokio::test(flavor = "multi_thread")]
async fn first_list_waits_for_the_counts_of_all_queues() -> Result<()> {
    let instance = Instance::open().await?;
    for name in ["orders", "f\u{fc}r", "a b"] {
        instance.queue(name).await?;
    }
    let list = instance.read("GET /v1/queues").await?;
    let names: Vec<_> = list["queues"]
        .as_array()
        .context("a list")?
        .iter()
        .collect();
    assert_eq!(names.len(), 3, "{list}");
    assert_eq!(names[0]["queue"], "a b", "sorted: {list}");
    for listed in names {
        assert_eq!(listed["counts"]["scheduled"], 1, "{list}");
        assert!(
            listed["age_ms"].as_u64().is_some_and(|age| age < 60_000),
            "{list}"
        );
    }
    assert_eq!(
        (&list["complete"], &list["next"]),
        (&Value::Bool(true), &Value::Null)
    );
    Ok(())
}

/// A list and a search contain every queue that was created before the last scan began.
#[tokio::test(flavor = "multi_thread")]
async fn complete_list_has_all_queues_older_than_its_scan() -> Result<()> {
    let instance = Instance::open().await?;
    instance.queue("q-0").await?;
    list_until(&instance, |list| list["complete"] == true).await?;
    for number in 1..4 {
        let name = format!("q-{number}");
        instance.queue(&name).await?;
        let created = Instant::now();
        // Both answers repeat until they contain the queue and report a scan that began after its
        // creation. The reported age is measured at the answer, so the scan began at most that long
        // before the call.
        let end = created + LIMIT;
        for line in ["GET /v1/search?id=1", "GET /v1/queues"] {
            loop {
                let sent = Instant::now();
                let answer = instance.read(line).await?;
                let age = answer["names_age_ms"].as_u64().map(Duration::from_millis);
                let age = age.map(|age| age + Duration::from_millis(1)); // the age is rounded down
                let is_later = age.is_some_and(|age| age < sent.duration_since(created));
                let has = answer["asked"] == number + 1 || of(&answer, &name).is_some();
                assert!(
                    has || answer["complete"] != true || !is_later,
                    "{created:?}: {answer}"
                );
                if has && is_later {
                    break;
                }
                anyhow::ensure!(sent < end, "{answer}");
            }
        }
    }
    Ok(())
}

/// With pauses between its steps, a scan would take minutes here.
#[tokio::test(flavor = "multi_thread")]
async fn old_and_new_queues_are_listed_among_foreign_keys() -> Result<()> {
    let redis = dueq_testkit::Server::start(&["--enable-debug-command", "yes"])?;
    // In several calls, each short enough for the time limit of a command.
    for part in 0..20 {
        let prefix = format!("foreign-{part}");
        redis.command(&["DEBUG", "POPULATE", "50000", &prefix])?;
    }
    let instance = Instance::start_on(redis, |_, _| Ok(Vec::new())).await?;
    let mut names = Vec::new();
    // Creates the first queues before the poller starts.
    for number in 0..20 {
        names.push(format!("q-{number}"));
        instance.queue(&names[number]).await?;
        if number >= 9 {
            let all = |list: &Value| names.iter().all(|name| of(list, name).is_some());
            list_until(&instance, all).await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_pages_list_each_queue_once() -> Result<()> {
    let instance = Instance::open().await?;
    for number in 0..7 {
        instance.queue(&format!("q-{number}")).await?;
    }
    let (mut seen, mut address) = (Vec::new(), "/v1/queues?limit=3".to_owned());
    loop {
        let answer = instance.call(&format!("GET {address}")).await?;
        let page = answer.json()?;
        let queues = page["queues"].as_array().context("a list")?;
        assert!(queues.len() <= 3, "{page}");
        seen.extend(
            queues
                .iter()
                .filter_map(|one| Some(one["queue"].as_str()?.to_owned())),
        );
        match page["next"].as_str() {
            Some(next) => {
                let link = format!("<{next}>; rel=\"next\"");
                assert_eq!(answer.header("link"), Some(&*link));
                address = next.to_owned();
            }
            None => break,
        }
    }
    let expected: Vec<_> = (0..7).map(|number| format!("q-{number}")).collect();
    assert_eq!(seen, expected);
    let beyond = instance.read("GET /v1/queues?after=zzz").await?;
    assert_eq!(beyond["queues"], serde_json::json!([]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_list_parameters_are_refused() -> Result<()> {
    let instance = Instance::open().await?;
    for query in [
        "limit=0",
        "limit=1001",
        "limit=-1",
        "limit=1e3",
        "limit=NaN",
        "limit=",
        "limit=1&limit=2",
        "limt=5",
        "after=a&after=b",
        "limit=99999999999999999999",
    ] {
        let answer = instance.call(&format!("GET /v1/queues?{query}")).await?;
        assert_refused!(&answer, 400, "invalid_input", "{query}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn list_follows_created_broken_and_deleted_queues() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    list_until(&instance, |list| of(list, "orders").is_some()).await?;
    instance.queue("later").await?;
    instance
        .redis
        .command(&["SET", "dueq:{orders}:scheduled", "x"])?;
    let list = list_until(&instance, |list| {
        of(list, "later").is_some()
            && of(list, "orders").is_some_and(|one| one["error"].is_string())
    })
    .await?;
    let broken = of(&list, "orders").context("it is listed")?;
    assert_eq!(
        broken["counts"]["scheduled"], 1,
        "the last counts stay: {list}"
    );
    assert!(
        of(&list, "later").context("listed")?["error"].is_null(),
        "{list}"
    );
    instance
        .redis
        .command(&["DEL", "dueq:{orders}:scheduled"])?;
    queue.delete().await?;
    list_until(&instance, |list| of(list, "orders").is_none()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn list_before_the_first_answer_of_redis_is_refused() -> Result<()> {
    let mut instance = Instance::open().await?;
    instance.redis.kill()?;
    let answer = instance.call("GET /v1/queues").await?;
    assert_refused!(&answer, 503, "redis_unavailable");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn hundred_viewers_cost_redis_no_more_than_one() -> Result<()> {
    let instance = Instance::open().await?;
    for number in 0..20 {
        instance.queue(&format!("q-{number}")).await?;
    }
    list_until(&instance, |list| of(list, "q-7").is_some()).await?;
    let calls = || -> Result<u64> {
        let info = instance.redis.command(&["INFO", "commandstats"])?;
        let line = info
            .lines()
            .find(|line| line.starts_with("cmdstat_evalsha"));
        let calls = line.and_then(|line| line.split(['=', ',']).nth(1));
        Ok(calls.context("calls of scripts")?.parse()?)
    };
    let (before, begun) = (calls()?, Instant::now());
    let viewers = (0..100).map(|_| instance.call("GET /v1/queues"));
    let mut viewers: Vec<_> = viewers.map(Box::pin).collect();
    for viewer in &mut viewers {
        assert_eq!(viewer.await?.status, 200);
    }
    let most = 100.0 * begun.elapsed().as_secs_f64() + 20.0;
    let more = calls()? - before;
    assert!(more as f64 <= most, "{more} calls in {:?}", begun.elapsed());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn list_waits_for_counts_up_to_its_limit() -> Result<()> {
    let instance = Instance::open().await?;
    for name in ["a", "b"] {
        instance.queue(name).await?;
    }
    list_until(&instance, |list| of(list, "b").is_some()).await?;
    let page = instance.read("GET /v1/queues?limit=1&wait_ms=0").await?;
    assert_eq!(page["next"], "/v1/queues?limit=1&wait_ms=0&after=a");
    for wait in ["2001", "-1", "x", "18446744073709551616"] {
        let line = format!("GET /v1/queues?wait_ms={wait}");
        let answer = instance.call(&line).await?;
        assert_refused!(&answer, 400, "invalid_input", "{wait}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_valid_queue_name_has_two_encodings() -> Result<()> {
    let instance = Instance::open().await?;
    for (name, percent, base64) in [
        ("orders", "orders", "~b3JkZXJz"),
        ("a b?#%~", "a%20b%3F%23%25%7E", "~YSBiPyMlfg"),
        ("f\u{fc}r", "f%C3%BCr", "~ZsO8cg"),
        ("~x", "%7Ex", "~fng"),
    ] {
        instance.queue(name).await?;
        for segment in [percent, base64] {
            let answer = instance.call(&format!("GET /v1/queues/{segment}")).await?;
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
