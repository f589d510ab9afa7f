//! `/`: the list of all queues.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::Due;

use crate::dashboard::look::{HOSTILE_IN_FORM, look, look_as, look_until, rows};
use crate::instance::Instance;

/// Makes a queue of each kind: overdue, paused, with dead messages, and without trouble.
async fn troubled(instance: &Instance) -> Result<()> {
    let calm = instance.client.queue("a-calm")?;
    for minutes in [2, 2, 7, 59, 90] {
        let delay = Duration::from_secs(minutes * 60);
        calm.push("x").delay(delay).await?;
    }
    let late = instance.client.queue("z-late")?;
    late.push("x").id("1").due(Due::at_ms(1)).await?;
    let paused = instance.queue("m-paused").await?;
    paused.pause().await?;
    let dead = instance.client.queue("b-dead")?;
    dead.push("x").id("1").await?;
    for delivery in dead.claim(1, Duration::from_secs(60)).await? {
        let _ = delivery.bury("no").await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_page_lists_troubled_queues_first() -> Result<()> {
    let instance = Instance::open().await?;
    troubled(&instance).await?;
    let is_known = |page: &str| rows(page).len() == 4 && !page.contains("…");
    let page = look_until(&instance, "/", is_known).await?;
    let found = rows(&page);
    let starts = [
        "z-late no worker",
        "m-paused paused",
        "b-dead",
        "a-calm no worker",
    ];
    for (row, start) in found.iter().zip(starts) {
        assert!(row.starts_with(start), "{found:?}");
    }
    // Of the five messages, one is due in 5 to 10 minutes, and one after an hour.
    let counts = page.split("due within an hour, each 5 minutes: ").skip(1);
    let counts = counts.filter_map(|rest| rest.split('"').next());
    let sums = counts.map(|counts| {
        counts
            .split(", ")
            .filter_map(|count| count.parse::<u64>().ok())
            .sum()
    });
    assert_eq!(sums.collect::<Vec<u64>>(), [0, 1, 0, 4], "{page}");
    let words = "4 queues · 1 overdue · 1 paused · 1 dead message";
    let summary = crate::dashboard::look::text(&page);
    assert!(summary.contains(words), "{summary}");
    // Waiting, leased, due in an hour, then lateness, pushed, ended and cancelled: no worker has
    // recorded anything yet.
    assert!(found[3].ends_with("5 0 4 – – – –"), "{found:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_queues_are_one_row_until_they_are_asked_for() -> Result<()> {
    let instance = Instance::open().await?;
    troubled(&instance).await?;
    for number in 0..7 {
        let idle = instance.client.queue(&format!("idle-{number}"))?;
        idle.push("x").id("1").await?;
        let _ = idle.cancel("1").await?;
    }
    let folded = |page: &str| page.contains("7 idle queues");
    let page = look_until(&instance, "/", folded).await?;
    let found = rows(&page);
    assert_eq!(found.len(), 5, "{found:?}");
    assert!(
        found[4].contains("idle-0 , idle-1") && !found[4].contains("idle-6"),
        "{found:?}"
    );
    assert!(page.contains("11 queues"), "{page}");
    for address in ["/?idle=show", "/?sort=name"] {
        let found = rows(&look(&instance, address).await?.body);
        assert_eq!(found.len(), 11, "{address}: {found:?}");
    }
    let found = rows(&look(&instance, "/?name=idle-3").await?.body);
    assert!(
        found.len() == 1 && found[0].starts_with("idle-3"),
        "{found:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn address_has_the_order_filter_and_page_of_the_list() -> Result<()> {
    let instance = Instance::open().await?;
    troubled(&instance).await?;
    let page = look_until(&instance, "/?sort=name", |page| rows(page).len() == 4).await?;
    let found = rows(&page);
    assert!(found[0].starts_with("a-calm"), "{found:?}");
    let page = look(&instance, "/?name=LATE").await?;
    assert_eq!(rows(&page.body).len(), 1, "{}", page.body);
    let page = look(&instance, &format!("/?name={HOSTILE_IN_FORM}")).await?;
    assert_eq!(page.status, 200);
    assert!(!page.body.contains("<script>alert"), "{}", page.body);
    assert!(
        page.body.contains("No queue has this text"),
        "{}",
        page.body
    );
    for number in 0..100 {
        let queue = instance.client.queue(&format!("more-{number:03}"))?;
        queue
            .push("x")
            .id("1")
            .delay(Duration::from_secs(60))
            .await?;
    }
    let second = |page: &str| page.contains("Page 2 of 2") && rows(page).len() == 4;
    let page = look_until(&instance, "/?page=2", second).await?;
    let found = rows(&page);
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(found[3].starts_with("more-099"), "{found:?}");
    assert!(page.contains("href=\"/?page=1\""), "{page}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_page_without_queues_says_what_to_run() -> Result<()> {
    let instance = Instance::open().await?;
    let page = look_until(&instance, "/", |page| page.contains("There is no queue")).await?;
    assert!(page.contains("dueq push orders"), "{page}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_page_shows_only_queues_of_the_caller() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    for name in ["orders", "other-1"] {
        instance.queue(name).await?;
    }
    let end = std::time::Instant::now() + crate::dashboard::look::LIMIT;
    loop {
        // When the viewer loads the page, the server reads both queues. The page of the other
        // caller must not show the one it may not use.
        let all = look_as(&instance, "viewer", "/").await?.body;
        let own = look_as(&instance, "foreigner", "/").await?.body;
        assert!(!own.contains("orders</a>"), "{own}");
        if rows(&all).len() == 2 && rows(&own).len() == 1 {
            return Ok(());
        }
        anyhow::ensure!(std::time::Instant::now() < end, "{all}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_queue_is_listed_with_its_error() -> Result<()> {
    let instance = Instance::open().await?;
    instance.queue("calm").await?;
    instance.queue("broken").await?;
    let keys = dueq::admin::queue_keys("broken")?;
    let scheduled = keys.first().context("a key")?;
    instance.redis.command(&["DEL", scheduled])?;
    instance.redis.command(&["SET", scheduled, "x"])?;
    let broken = |page: &str| page.contains("cannot be read");
    let page = look_until(&instance, "/", broken).await?;
    let found = rows(&page);
    assert!(found[0].starts_with("broken cannot be read"), "{found:?}");
    assert!(found[1].starts_with("calm"), "{found:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_page_keeps_the_last_counts_without_redis() -> Result<()> {
    let mut instance = Instance::open().await?;
    instance.queue("orders").await?;
    look_until(&instance, "/", |page| rows(page).len() == 1).await?;
    instance.redis.kill()?;
    let away = |page: &str| page.contains("Redis does not answer");
    let page = look_until(&instance, "/", away).await?;
    assert_eq!(rows(&page).len(), 1, "{page}");
    Ok(())
}
