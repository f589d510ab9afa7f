//! `/queues/Q`: the page of one queue.

mod forms;

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::Delivery;
use dueq::inspect::HistoryResolution;
use dueq::outcomes::CancelOutcome;
use dueq::schedules::Schedule;

use crate::dashboard::look::{LIMIT, form, led, look, submit};
use crate::instance::{Answer, Instance};

const HOUR: Duration = Duration::from_secs(3_600);

fn assert_has(page: &Answer, texts: &[&str]) {
    for text in texts {
        assert!(page.body.contains(text), "{text:?} is not in {}", page.body);
    }
}

/// The counts in the table of due messages.
fn due_counts(page: &Answer) -> Result<Vec<u64>> {
    let table = page.body.split("id=\"due-table\"").nth(1);
    let table = table.and_then(|rest| rest.split("</table>").next());
    let cells = table.context("a table")?.split("<td>").skip(1);
    cells
        .map(|cell| {
            let number = cell.split("</td>").next().unwrap_or_default();
            Ok(number.replace(',', "").parse()?)
        })
        .collect()
}

#[tokio::test]
async fn bars_count_all_scheduled_messages_and_link_to_them() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    for (number, hours) in [1, 1, 20, 40, 1_000, 20_000].into_iter().enumerate() {
        queue
            .push("x")
            .id(format!("{number}"))
            .delay(HOUR * hours)
            .await?;
    }
    queue.push("x").id("late").delay(Duration::ZERO).await?;
    for (tab, bars, later) in [
        ("hour", 31, 6_u64),
        ("day", 49, 3),
        ("48h", 49, 2),
        ("all", 20, 0),
    ] {
        let page = look(&instance, &format!("/queues/orders?due={tab}")).await?;
        assert_eq!(page.status, 200, "{}", page.body);
        let counts = due_counts(&page)?;
        let stats = queue.stats().await?;
        let all = stats.scheduled + stats.ready;
        assert_eq!(counts.iter().sum::<u64>(), all, "{tab}");
        assert!(counts.len() > bars, "{tab}: {counts:?}");
        // The last bar has both messages that are due in an hour, or neither: it ends at a round
        // time.
        let last = counts.last().context("a count")?;
        assert!(
            [later, later.saturating_sub(2)].contains(last),
            "{tab}: {counts:?}"
        );
        assert_has(
            &page,
            &[
                "<a href=\"/queues/orders/messages?state=scheduled&amp;from=",
                "aria-label=\"Bars: What falls due",
            ],
        );
    }
    Ok(())
}

#[tokio::test]
async fn queue_page_says_why_messages_wait() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    queue.push("x").id("1").delay(HOUR).await?;
    let calm = look(&instance, "/queues/orders").await?;
    assert_has(
        &calm,
        &["<dt>Next due</dt>", "in 59 min", "nothing is overdue"],
    );
    assert!(!calm.body.contains("Why messages wait"), "{}", calm.body);
    queue.push("x").id("2").delay(Duration::ZERO).await?;
    queue.pause().await?;
    let paused = look(&instance, "/queues/orders").await?;
    assert_has(
        &paused,
        &[
            "Why messages wait",
            "The queue is paused: workers claim nothing.",
            "value=\"resume\"",
            "No worker is alive.",
            "dueq work orders --exec COMMAND",
            "<dt>Next due</dt>",
            "<dd>now</dd>",
        ],
    );
    queue.resume().await?;
    queue.pause_for(HOUR).await?;
    let closed = look(&instance, "/queues/orders").await?;
    assert_has(
        &closed,
        &["The queue is closed for some time", "opens <time"],
    );
    Ok(())
}

#[tokio::test]
async fn queue_page_shows_a_worker_its_lateness_and_counts() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    queue.push("x").id("kept").delay(HOUR).await?;
    let worker = queue.worker().spawn(async |_: Delivery| {})?;
    let begun = async {
        // Workers record history only once this field exists.
        let words = ["HEXISTS", "dueq:{orders}:meta", "history"];
        while !instance.redis.command(&words)?.starts_with(":1") {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(LIMIT, begun).await??;
    for number in 0..3 {
        queue.push("x").id(format!("{number}")).await?;
    }
    queue.push("x").id("gone").delay(HOUR).await?;
    assert_eq!(queue.cancel("gone").await?, CancelOutcome::Cancelled);
    let reported = async {
        loop {
            let history = queue.history(HistoryResolution::Minutes).await?;
            let sum = history.sum(0..u64::MAX).unwrap_or_default();
            if sum.lateness.count() == 3 && sum.acked == 3 && sum.cancelled == 1 {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(LIMIT, reported).await??;
    for range in ["hour", "day", "week", "90d"] {
        let page = look(&instance, &format!("/queues/orders?range={range}")).await?;
        assert_eq!(page.status, 200, "{}", page.body);
        assert_has(
            &page,
            &[
                "3 handled in the last hour",
                "<strong>leader</strong>",
                "<strong>25.0 %</strong> of what ended in",
                "1 of 4",
                "<strong>acked</strong> <span>3</span> <span class=\"quiet\">peak 3</span>",
                "<path class=\"line p90\" d=\"M",
                " · acked 3 · ",
            ],
        );
        assert!(!page.body.contains("NaN"), "{}", page.body);
    }
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test]
async fn page_of_an_empty_queue_says_what_to_run() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("it's empty")?;
    queue.push("x").id("1").delay(HOUR).await?;
    assert_eq!(queue.cancel("1").await?, CancelOutcome::Cancelled);
    let page = look(&instance, "/queues/it's%20empty").await?;
    assert_eq!(page.status, 200, "{}", page.body);
    assert_has(
        &page,
        &[
            "The queue has no messages and no workers.",
            "dueq push &#39;it&#39;\\&#39;&#39;s empty&#39;",
            "Nothing falls due in this time",
            "Nothing was recorded in this time",
            "nothing is scheduled",
            "No worker is alive.",
        ],
    );
    Ok(())
}

#[tokio::test]
async fn queue_page_escapes_hostile_names() -> Result<()> {
    let instance = Instance::open().await?;
    let name = "<img src=x onerror=alert(1)>\u{202e}\"'&{{7*7}}".replace("{{", "[[");
    let name = name.replace("}}", "]]");
    let queue = instance.client.queue(&name)?;
    queue.push("x").id("1").delay(HOUR).await?;
    queue.pause().await?;
    let segment = dueq_input::id_path(name.as_bytes());
    let page = look(&instance, &format!("/queues/{segment}")).await?;
    assert_eq!(page.status, 200, "{}", page.body);
    assert!(!page.body.contains("<img"), "{}", page.body);
    assert!(!page.body.contains('\u{202e}'), "{}", page.body);
    assert_has(&page, &["\\u{202e}"]);
    let answer = submit(
        &instance,
        None,
        &format!("/queues/{segment}"),
        "action=resume",
    )
    .await?;
    led(&answer, &format!("/queues/{segment}?did=resumed"));
    assert!(!queue.stats().await?.paused);
    Ok(())
}

#[tokio::test]
async fn viewer_sees_no_forms_and_cannot_send_them() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let queue = instance.queue("orders").await?;
    let rule = Schedule::every(HOUR * 24).name("nightly");
    queue.schedules("tests").apply([rule]).await?;
    let bearer = instance.bearer("viewer");
    let page = instance
        .ask("GET /queues/orders", &["Accept: text/html", &bearer], "")
        .await?;
    assert_eq!(page.status, 200, "{}", page.body);
    assert_has(&page, &["nightly", "Limits"]);
    assert!(
        !page.body.contains("name=\"action\""),
        "a form: {}",
        page.body
    );
    let headers = form(&instance);
    let mut headers: Vec<_> = headers.iter().map(String::as_str).collect();
    headers.push(&bearer);
    for body in [
        "action=pause",
        "action=pause_for&for=1h",
        "action=resume",
        "action=limits&max_leased=8&was_max_leased=",
        "action=schedule_pause&schedule=nightly",
        "action=schedule_resume&schedule=nightly",
        "action=schedule_trigger&schedule=nightly&triggered=0",
        "action=schedule_remove&schedule=nightly",
    ] {
        let answer = instance.ask("POST /queues/orders", &headers, body).await?;
        assert_eq!(answer.status, 403, "{body}: {}", answer.body);
    }
    let stats = queue.stats().await?;
    assert_eq!(
        (
            stats.paused,
            stats.closed_ms,
            stats.max_leased,
            stats.schedules
        ),
        (false, 0, 0, 1)
    );
    let stored = queue.schedule("nightly").get().await?;
    let stored = stored.context("the schedule")?;
    assert_eq!((stored.state.as_str(), stored.triggered), ("active", 0));
    Ok(())
}

#[tokio::test]
async fn queue_page_shows_the_parts_that_can_be_read() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    queue.push("x").id("2").delay(Duration::ZERO).await?;
    // Only the call for the counts needs this command of Redis.
    instance
        .redis
        .command(&["ACL", "SETUSER", "default", "-lindex"])?;
    let page = look(&instance, "/queues/orders").await?;
    assert_eq!(page.status, 200, "{}", page.body);
    assert_has(
        &page,
        &[
            "The counts could not be read",
            "aria-label=\"Bars: What falls due",
            "Nothing ended in 60 min.",
            "No worker is alive.",
        ],
    );
    assert_eq!(due_counts(&page)?.iter().sum::<u64>(), 2);
    Ok(())
}

#[tokio::test]
async fn each_part_of_the_page_says_that_redis_is_unreachable() -> Result<()> {
    let mut instance = Instance::open().await?;
    instance.queue("orders").await?;
    instance.redis.kill()?;
    for _ in 0..2 {
        let page = look(&instance, "/queues/orders").await?;
        assert_eq!(page.status, 200, "{}", page.body);
        assert_has(
            &page,
            &[
                "The counts could not be read",
                "What falls due could not be read",
                "The history could not be read",
                "The workers could not be read",
                "The schedules could not be read",
            ],
        );
    }
    Ok(())
}
