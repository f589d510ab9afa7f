//! `/queues/Q/dead`: groups, requeue, purge and the file.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{Message, Queue};
use serde_json::Value;

use crate::dashboard::look::{after, claimed, led, look, submit};
use crate::instance::{Answer, Instance};

const AT: &str = "/queues/orders/dead";

/// Buries a message with each of these errors. The ids are the errors' indices.
async fn bury(queue: &Queue, errors: &[&str]) -> Result<()> {
    for (number, error) in errors.iter().enumerate() {
        let message = Message::new(format!("secret {number}")).id(number.to_string());
        assert!(queue.push_message(message).await?.is_created());
        for delivery in claimed(queue, 1).await? {
            let _ = delivery.bury(error).await?;
        }
    }
    Ok(())
}

/// Waits for the end of the operation that a form began, and returns it.
async fn ended(instance: &Instance, answer: &Answer) -> Result<Value> {
    let to = answer
        .header("location")
        .with_context(|| answer.body.clone())?;
    let id = to
        .strip_prefix("/operations/orders/")
        .context("an operation")?;
    loop {
        let line = format!("GET /v1/queues/orders/operations/{id}");
        let operation = instance.read(&line).await?;
        if operation["state"] != "running" {
            return Ok(operation);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The value of a hidden field of a page.
fn field<'a>(body: &'a str, name: &str) -> &'a str {
    let value = body.split(&format!("name=\"{name}\" value=\"")).nth(1);
    value
        .and_then(|value| value.split('"').next())
        .unwrap_or_default()
}

#[tokio::test]
async fn dead_page_groups_errors_and_separates_crashes() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let empty_queue = instance.queue("empty").await?;
    bury(&queue, &["timeout\nat 1", "timeout\nat 2", "<b>refused"]).await?;
    // Its lease expires more often than the queue's `max_crashes` allows.
    queue
        .configure(dueq::QueueLimits::new().max_crashes(0))
        .await?;
    let past = dueq::Due::at_ms(1_700_000_000_000);
    queue.push("x").id("crash").due(past).await?;
    // A claim over HTTP makes the server attend the queue, and so reap expired leases.
    let json = ["Content-Type: application/json"];
    let claim = instance.ask("POST /v1/queues/orders/claims", &json, "{\"lease_ms\": 1}");
    assert_eq!(claim.await?.status, 200);
    while queue.stats().await?.dead < 4 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let shown = look(&instance, AT).await?;
    assert_eq!(shown.status, 200, "{}", shown.body);
    let (failed, crashed) = shown
        .body
        .split_once("<h2>Crashed</h2>")
        .context("crashes")?;
    assert!(
        failed.contains("timeout") && failed.contains("<td>2</td>"),
        "{failed}"
    );
    assert!(
        failed.contains("refused") && !failed.contains("<b>"),
        "{failed}"
    );
    assert!(crashed.contains("the lease ran out 1 times"), "{crashed}");
    assert!(
        crashed.contains("/queues/orders/messages/crash"),
        "{crashed}"
    );
    assert!(!shown.body.contains("secret"), "{}", shown.body);
    let none = look(&instance, "/queues/empty/dead").await?;
    assert!(none.body.contains("No message is dead"), "{}", none.body);
    drop(empty_queue);
    assert_eq!(look(&instance, "/queues/none/dead").await?.status, 404);
    Ok(())
}

#[tokio::test]
async fn group_requeue_leaves_messages_that_died_later() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    bury(&queue, &["timeout\nat 1", "refused", " timeout"]).await?;
    // The row links to a form, so that a single click changes nothing.
    let shown = look(&instance, AT).await?.body;
    let link = "/queues/orders/dead?group=dGltZW91dA&amp;crashed=false#requeue";
    assert!(shown.contains(link), "{shown}");
    let at = format!("{AT}?group=dGltZW91dA&crashed=false");
    let shown = look(&instance, &at).await?.body;
    for part in [
        "Requeue one error",
        "timeout</strong>.",
        ">Requeue 2</button>",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // The problem page leads back to this form.
    let action = "action=\"/queues/orders/dead?group=dGltZW91dA&amp;crashed=false\"";
    assert!(shown.contains(action), "{shown}");
    let broken = look(&instance, &format!("{AT}?group=%21")).await?;
    assert_eq!(broken.status, 400, "{}", broken.body);
    let (before_ms, key) = (field(&shown, "before_ms"), field(&shown, "error"));
    let form = format!("action=requeue&before_ms={before_ms}&error={key}&crashed=false");
    let done = async |form: &str| {
        let answer = submit(&instance, None, AT, form).await?;
        assert_eq!(answer.status, 303, "{}", answer.body);
        Ok::<_, anyhow::Error>(ended(&instance, &answer).await?["done"].clone())
    };
    assert_eq!(
        done(&form.replace("crashed=false", "crashed=true")).await?,
        0
    );
    assert_eq!(done(&format!("{form}&pace=1000")).await?, 2);
    assert_eq!(queue.stats().await?.dead, 1);
    // A second click changes nothing more, and messages that died again stay dead.
    for delivery in claimed(&queue, 2).await? {
        let _ = delivery.bury("timeout").await?;
    }
    assert_eq!(done(&form).await?, 0);
    assert_eq!(queue.stats().await?.dead, 3);
    let body = format!("action=requeue&before_ms={before_ms}&error=%21&crashed=false");
    let answer = submit(&instance, None, AT, &body).await?;
    assert_eq!(answer.status, 400, "{}", answer.body);
    Ok(())
}

#[tokio::test]
async fn only_what_died_in_the_chosen_times_is_counted_and_requeued() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    bury(&queue, &["timeout", "refused"]).await?;
    // These two are earlier than what dies from now on.
    let split = died_ms(&instance).await? + 1;
    while queue.dues(&[]).await?.now_ms < split {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for number in 2..5 {
        queue.push("x").id(number.to_string()).await?;
        for delivery in claimed(&queue, 1).await? {
            let _ = delivery.bury("timeout").await?;
        }
    }
    let shown = look(&instance, &format!("{AT}?from={split}")).await?.body;
    assert!(
        shown.contains("<strong>3</strong>") && shown.contains(">Requeue 3<"),
        "{shown}"
    );
    let shown = look(&instance, &format!("{AT}?until={}", split - 1))
        .await?
        .body;
    assert!(shown.contains("<strong>2</strong>"), "{shown}");
    assert!(shown.contains(">Purge 2</button>"), "{shown}");
    let (before_ms, key) = (field(&shown, "before_ms"), "dGltZW91dA");
    let early = format!("action=requeue&before_ms={before_ms}&error={key}&crashed=false&canary=");
    let answer = submit(&instance, None, AT, &early).await?;
    assert_eq!(ended(&instance, &answer).await?["done"], 1);
    let group = format!("{AT}?from={split}&group={key}&crashed=false");
    let shown = look(&instance, &group).await?.body;
    assert!(shown.contains(">Requeue 3</button>"), "{shown}");
    let (before_ms, after_ms) = (field(&shown, "before_ms"), field(&shown, "after_ms"));
    assert_eq!(after_ms, split.to_string());
    let times = format!("before_ms={before_ms}&after_ms={after_ms}");
    let late = format!("{times}&error={key}&crashed=false&canary=10&pace=1000");
    let counted = submit(&instance, None, AT, &format!("action=count&{late}")).await?;
    let counted = ended(&instance, &counted).await?;
    assert_eq!(
        (&counted["done"], &counted["dry_run"]),
        (&3.into(), &true.into())
    );
    assert_eq!(queue.stats().await?.dead, 4, "a count changes nothing");
    let purge = format!("action=purge&{times}&count=3&typed=3");
    let answer = submit(&instance, None, AT, &purge).await?;
    assert_eq!(ended(&instance, &answer).await?["done"], 3);
    let page = after(&instance, &answer).await?;
    assert!(page.contains("Only what died or was due from"), "{page}");
    assert_eq!(queue.stats().await?.dead, 1);
    Ok(())
}

/// When the newest dead message died.
async fn died_ms(instance: &Instance) -> Result<u64> {
    let list = "GET /v1/queues/orders/messages?state=dead&order=newest&limit=1";
    let list = instance.read(list).await?;
    list["messages"][0]["died_ms"].as_u64().context("a time")
}

#[tokio::test]
async fn refused_form_of_dead_messages_keeps_what_was_typed() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    bury(&queue, &["a", "b"]).await?;
    let body = "action=requeue&before_ms=1796299200000&canary=500&pace=77";
    let answer = submit(&instance, None, AT, body).await?;
    assert_eq!(answer.status, 400, "{}", answer.body);
    for part in [
        "name=\"canary\" inputmode=\"numeric\" value=\"500\"",
        "id=\"mistake-canary\"",
        "value=\"77\"",
    ] {
        assert!(answer.body.contains(part), "{part}: {}", answer.body);
    }
    for (wrong, other) in [("from", "until"), ("until", "from")] {
        let address = format!("{AT}?{wrong}=soon+ago&{other}=1m+ago");
        let answer = look(&instance, &address).await?;
        assert_eq!(answer.status, 400, "{}", answer.body);
        for part in [
            format!("id=\"mistake-{wrong}\""),
            format!("name=\"{wrong}\" value=\"soon ago\""),
            format!("name=\"{other}\" value=\"1m ago\""),
        ] {
            assert!(answer.body.contains(&part), "{part}: {}", answer.body);
        }
    }
    assert_eq!(queue.stats().await?.dead, 2);
    Ok(())
}

#[tokio::test]
async fn form_requeues_all_dead_with_a_canary_and_a_pace() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    bury(&queue, &["a", "b"]).await?;
    let shown = look(&instance, AT).await?.body;
    let before_ms = field(&shown, "before_ms");
    let form = format!("action=requeue&before_ms={before_ms}&canary=&pace=500");
    let operation = ended(&instance, &submit(&instance, None, AT, &form).await?).await?;
    assert_eq!(
        (&operation["kind"], &operation["pace"]),
        (&"requeue".into(), &500.into())
    );
    assert_eq!(
        (&operation["done"], operation["before_ms"].to_string()),
        (&2.into(), before_ms.to_owned())
    );
    assert_eq!(queue.stats().await?.dead, 0);
    for form in [
        "action=requeue",
        "action=requeue&before_ms=x",
        "action=requeue&before_ms=1&canary=101",
        "action=requeue&before_ms=1&canary=1.5",
        "action=drop&before_ms=1",
        "action=group&before_ms=1&error=%3F",
        "action=requeue&before_ms=1&after_ms=x",
    ] {
        assert_eq!(
            submit(&instance, None, AT, form).await?.status,
            400,
            "{form}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn purge_form_needs_the_count_of_dead_messages() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let queue = instance.client.queue("orders")?;
    bury(&queue, &["a", "b", "c"]).await?;
    // A payload longer than a page shows, and not text.
    let large = vec![0xff_u8; 100_000];
    queue.push(large.clone()).id("large").await?;
    for delivery in claimed(&queue, 1).await? {
        let _ = delivery.bury("d").await?;
    }
    let bearer = instance.bearer("operator");
    let headers = ["Accept: text/html", bearer.as_str()];
    let shown = instance.ask(&format!("GET {AT}"), &headers, "").await?.body;
    let (before_ms, count) = (field(&shown, "before_ms"), field(&shown, "count"));
    assert_eq!(count, "4", "{shown}");
    let file = instance
        .ask(
            &format!("GET /queues/orders/dead.ndjson?before_ms={before_ms}"),
            &headers,
            "",
        )
        .await?;
    assert_eq!(file.header("content-type"), Some("application/x-ndjson"));
    let chunks = dechunked(&file.body);
    let lines = chunks.lines().map(serde_json::from_str::<Value>);
    let lines = lines.collect::<Result<Vec<_>, _>>()?;
    assert_eq!(lines.len(), 5, "{}", chunks.len());
    assert_eq!(
        (&lines[0]["id"], &lines[0]["payload"]),
        (&"0".into(), &"secret 0".into())
    );
    let encoded = lines[3]["payload_base64"].as_str().map(str::len);
    assert_eq!(encoded, Some(large.len().div_ceil(3) * 4));
    assert_eq!(
        lines[4],
        serde_json::json!({"exported": 4, "complete": true})
    );
    // Other callers get a file without payloads, or none.
    for (token, status) in [
        ("viewer", 403),
        ("producer", 403),
        ("foreigner", 403),
        ("consumer", 200),
    ] {
        let bearer = instance.bearer(token);
        let headers = ["Accept: text/html", bearer.as_str()];
        let answer = instance
            .ask("GET /queues/orders/dead.ndjson", &headers, "")
            .await?;
        assert_eq!(answer.status, status, "{token}");
    }
    let operator = Some("operator");
    let form =
        |typed: &str| format!("action=purge&before_ms={before_ms}&count={count}&typed={typed}");
    for typed in ["", "3", "four", "-4"] {
        let answer = submit(&instance, operator, AT, &form(typed)).await?;
        assert_eq!(answer.status, 400, "{typed}");
    }
    for token in ["viewer", "producer", "consumer"] {
        let forms = [
            form("4"),
            format!("action=requeue&before_ms={before_ms}"),
            format!("action=requeue&before_ms={before_ms}&error=YQ&crashed=false"),
        ];
        for form in forms {
            let answer = submit(&instance, Some(token), AT, &form).await?;
            assert_eq!(answer.status, 403, "{token} {form}: {}", answer.body);
        }
    }
    assert_eq!(queue.stats().await?.dead, 4);
    let answer = submit(&instance, operator, AT, &form("4")).await?;
    let to = answer.header("location").unwrap_or_default().to_owned();
    assert!(to.starts_with("/operations/orders/"), "{}", answer.body);
    while queue.stats().await?.dead > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // A second click finds no messages left.
    let again = submit(&instance, operator, AT, &form("4")).await?;
    assert_eq!(again.status, 303, "{}", again.body);
    let missing = submit(&instance, operator, "/queues/none/dead", &form("4")).await?;
    assert_eq!(missing.status, 404, "{}", missing.body);
    led(
        &submit(
            &instance,
            operator,
            "/queues/orders/messages",
            "action=cancel",
        )
        .await?,
        "/queues/orders/messages?did=nothing_selected",
    );
    Ok(())
}

/// The body without the size lines of its chunks.
fn dechunked(body: &str) -> String {
    let (mut rest, mut whole) = (body, String::new());
    while let Some((length, after)) = rest.split_once("\r\n") {
        let Ok(length) = usize::from_str_radix(length.trim(), 16) else {
            return body.to_owned();
        };
        let Some((chunk, end)) = after.split_at_checked(length) else {
            break;
        };
        whole.push_str(chunk);
        rest = end.trim_start_matches("\r\n");
    }
    whole
}
