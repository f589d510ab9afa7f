//! `/traffic`: all queues together.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::Due;
use dueq::schedules::Schedule;

use crate::dashboard::look::{look, look_as, look_until, text};
use crate::instance::Instance;

const MINUTE: Duration = Duration::from_secs(60);

/// The sum of a column of the table of what falls due.
fn sum_of(page: &str, column: usize) -> Result<u64> {
    let table = page.split("id=\"ahead-table\"").nth(1).context("a table")?;
    let body = table.split("<tbody>").nth(1).context("a body")?;
    let body = body.split("</tbody>").next().unwrap_or_default();
    let cells = body.split("<tr>").skip(1).map(|row| {
        let cell = row.split("<td>").nth(column).unwrap_or_default();
        let digits = cell.split('<').next().unwrap_or_default().replace(',', "");
        digits.parse::<u64>().context("a number")
    });
    cells.sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn traffic_of_all_queues_is_stacked_with_the_ticks_of_schedules() -> Result<()> {
    let instance = Instance::open().await?;
    for (queue, count, minutes) in [("a", 7, 30), ("b", 5, 30), ("b", 40, 600), ("c", 90, 5_000)] {
        for number in 0..count {
            let due = MINUTE * minutes;
            let id = format!("{minutes}:{number}");
            instance
                .client
                .queue(queue)?
                .push("x")
                .id(id)
                .delay(due)
                .await?;
        }
    }
    instance
        .client
        .queue("late")?
        .push("x")
        .id("1")
        .due(Due::at_ms(1))
        .await?;
    let hourly = Schedule::every(MINUTE * 60).name("hourly");
    instance
        .client
        .queue("ticks")?
        .schedules("tests")
        .apply([hourly])
        .await?;
    let is_read = |page: &str| !page.contains("so far") && page.contains("All 5 queues");
    look_until(&instance, "/traffic?due=day", is_read).await?;
    // The next tick is a message; of a day 23 more are ahead, and of a week 167.
    for (due, messages, ticks) in [
        ("hour", 12..=13, 0..=0),
        ("day", 53..=53, 23..=23),
        ("week", 143..=143, 167..=167),
    ] {
        let page = look_until(&instance, &format!("/traffic?due={due}"), is_read).await?;
        let shown: u64 = text(&page)
            .split(" of these are ticks")
            .next()
            .unwrap_or_default()
            .rsplit(' ')
            .next()
            .unwrap_or_default()
            .parse()
            .unwrap_or(0);
        assert!(ticks.contains(&shown), "{due}: {shown} ticks");
        let all = sum_of(&page, 1)?;
        assert!(
            messages.contains(&(all - shown)),
            "{due}: {all} with {shown} ticks"
        );
    }
    // The day of most messages, without a choice.
    let page = look(&instance, "/traffic").await?.body;
    assert!(page.contains("in the next day, by queue"), "{page}");
    assert!(
        page.contains("<dd class=\"bad\">1</dd><dd class=\"sub\">the oldest for"),
        "{page}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn traffic_page_counts_only_queues_of_the_caller() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    for queue in ["orders", "other-1"] {
        let delay = MINUTE * 10;
        instance
            .client
            .queue(queue)?
            .push("x")
            .id("1")
            .delay(delay)
            .await?;
    }
    // The viewer's look makes the server find both.
    let mut page = String::new();
    while !page.contains("All 1 queue together") {
        page = look_as(&instance, "foreigner", "/traffic").await?.body;
    }
    assert!(!page.contains("orders"), "{page}");
    Ok(())
}
