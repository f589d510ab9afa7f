//! `/schedules`: the schedules of all queues.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::schedules::Schedule;

use crate::dashboard::look::{look, look_as, look_until, text};
use crate::instance::Instance;

const HOUR: Duration = Duration::from_secs(3_600);

/// Two queues with schedules: `orders` has a paused one.
async fn declare(instance: &Instance) -> Result<()> {
    for (queue, names) in [
        ("orders", ["late", "nightly"]),
        ("mails", ["digest", "hourly"]),
    ] {
        let schedules = names.map(|name| Schedule::every(HOUR).name(name));
        let queue = instance.client.queue(queue)?;
        queue.schedules("tests").apply(schedules).await?;
    }
    let orders = instance.client.queue("orders")?;
    assert!(orders.schedule("nightly").pause().await?);
    Ok(())
}

/// The names of the schedules in the order of the rows.
fn names(page: &str) -> Vec<&str> {
    let rows = page.split("#schedule-").skip(1);
    rows.filter_map(|row| row.split('"').next()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_of_all_queues_are_on_one_page_paused_ones_first() -> Result<()> {
    let instance = Instance::open().await?;
    declare(&instance).await?;
    let is_read = |page: &str| page.contains("4 schedules") && !page.contains("so far");
    let page = look_until(&instance, "/schedules", is_read).await?;
    let all = names(&page);
    assert_eq!(all.first(), Some(&"nightly"), "{page}");
    assert_eq!(all.len(), 4, "{page}");
    assert!(page.contains("every 1 h"), "{page}");
    let row = page
        .split("<tr>")
        .find(|row| row.contains("#schedule-nightly"));
    assert!(text(row.context("a row")?).contains("paused"), "{page}");

    for (filter, expected) in [
        ("nigh", &["nightly"][..]),
        ("MAIL", &["digest", "hourly"]),
        ("none%3Cb%3E", &[]),
    ] {
        let page = look(&instance, &format!("/schedules?q={filter}")).await?;
        let mut found = names(&page.body);
        found.sort_unstable();
        assert_eq!(found, expected, "{filter}: {}", page.body);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_page_shows_only_queues_of_the_caller() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    declare(&instance).await?;
    let other = Schedule::every(HOUR).name("foreign");
    let queue = instance.client.queue("other-1")?;
    queue.schedules("tests").apply([other]).await?;
    let mut page = String::new();
    while !page.contains("#schedule-foreign") {
        page = look_as(&instance, "foreigner", "/schedules").await?.body;
    }
    assert!(
        page.contains("1 schedule<") || page.contains("1 schedule "),
        "{page}"
    );
    assert!(
        !page.contains("orders") && !page.contains("mails"),
        "{page}"
    );
    Ok(())
}
