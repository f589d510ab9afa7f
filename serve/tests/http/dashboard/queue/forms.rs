//! The forms of the page of one queue.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::schedules::Schedule;

use super::{HOUR, assert_has, led, look, submit};
use crate::instance::Instance;

#[tokio::test]
async fn form_changes_only_the_limits_that_were_edited() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    let page = look(&instance, "/queues/orders").await?;
    assert_has(
        &page,
        &[
            "name=\"keep_dead_ms\" value=\"30d\"",
            "name=\"was_max_attempts\"",
        ],
    );
    let body = "action=limits&rate=100/min&was_rate=&burst=&was_burst=&keep_dead_ms=7d&was_keep_dead_ms=30d\
                &max_leased=+8+&was_max_leased=&max_attempts=5&was_max_attempts=5";
    for _ in 0..2 {
        let answer = submit(&instance, None, "/queues/orders", body).await?;
        led(&answer, "/queues/orders?did=limits#limits");
    }
    let stats = queue.stats().await?;
    assert_eq!((stats.max_leased, stats.keep_dead_ms), (8, 604_800_000));
    let rate = stats.rate.context("a rate")?;
    assert_eq!((rate.starts, rate.window), (100, Duration::from_secs(60)));
    // The form did not change `max_attempts`, so the other operator's value stays.
    assert_ne!(stats.max_attempts, 5);
    let body =
        "action=limits&rate=&was_rate=100/1m&burst=1&was_burst=1&max_leased=&was_max_leased=8";
    let answer = submit(&instance, None, "/queues/orders", body).await?;
    led(&answer, "/queues/orders?did=limits#limits");
    let stats = queue.stats().await?;
    assert_eq!((stats.rate, stats.max_leased), (None, 0));
    for wrong in [
        "max_attempts=x&was_max_attempts=5",
        "max_attempts=0&was_max_attempts=5",
        "max_attempts=&was_max_attempts=5",
        "keep_dead_ms=1+month&was_keep_dead_ms=30d",
        "rate=fast&was_rate=",
    ] {
        let body = format!("action=limits&{wrong}");
        let answer = submit(&instance, None, "/queues/orders", &body).await?;
        assert_eq!(answer.status, 400, "{wrong}: {}", answer.body);
        assert_has(&answer, &["Nothing was changed."]);
    }
    // What was typed stays, the form is open, and the mistake is beside its field.
    let body = "action=limits&rate=5+per+second&was_rate=&burst=10&was_burst=&keep_dead=1,000&was_keep_dead=100000";
    let answer = submit(&instance, None, "/queues/orders", body).await?;
    assert_eq!(answer.status, 400, "{}", answer.body);
    assert_has(
        &answer,
        &[
            "<details open>",
            "name=\"rate\" value=\"5 per second\"",
            "name=\"was_rate\" value=\"\"",
            "name=\"keep_dead\" value=\"1,000\"",
            "name=\"burst\" value=\"10\" aria-describedby=\"mistake-burst hint-burst\" aria-invalid=\"true\"",
            "id=\"mistake-burst\">10: write 1 to 5. Nothing was changed.</p>",
        ],
    );
    let right = body.replace("burst=10", "burst=2");
    led(
        &submit(&instance, None, "/queues/orders", &right).await?,
        "/queues/orders?did=limits#limits",
    );
    assert_eq!(queue.stats().await?.rate.map(|rate| rate.starts), Some(5));
    let answer = submit(
        &instance,
        None,
        "/queues/orders",
        "action=limits&rate=&was_rate=",
    )
    .await?;
    led(&answer, "/queues/orders");
    Ok(())
}

#[tokio::test]
async fn form_pauses_a_queue_for_a_time() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    for _ in 0..2 {
        let answer = submit(
            &instance,
            None,
            "/queues/orders",
            "action=pause_for&for=10m",
        )
        .await?;
        led(&answer, "/queues/orders?did=closed");
    }
    let stats = queue.stats().await?;
    assert!(!stats.paused);
    // The queue opens at the next full millisecond after the wait. The current millisecond has
    // already begun.
    assert!((1..=600_001).contains(&stats.closed_ms), "{stats:?}");
    for wrong in ["for=", "for=soon", "for=0s", "for=-5m"] {
        let answer = submit(
            &instance,
            None,
            "/queues/orders",
            &format!("action=pause_for&{wrong}"),
        )
        .await?;
        assert_eq!(answer.status, 400, "{wrong}");
        assert_has(&answer, &["id=\"mistake-for\""]);
    }
    let answer = submit(&instance, None, "/queues/orders", "action=explode").await?;
    assert_eq!(answer.status, 400);
    Ok(())
}

#[tokio::test]
async fn forms_pause_trigger_and_remove_a_schedule() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("reports")?;
    let rule = Schedule::every(HOUR * 24).name("night/ly");
    queue.schedules("tests").apply([rule]).await?;
    let shown = look(&instance, "/queues/reports").await?;
    let segment = dueq_input::id_path(b"night/ly");
    assert_has(
        &shown,
        &[
            "night/ly",
            "every 1 d",
            &format!("name=\"schedule\" value=\"{segment}\""),
            "The next tick of each schedule counts as a message.",
        ],
    );
    let did = async |action: &str| {
        let body = format!("action={action}&schedule={segment}&triggered=0");
        submit(&instance, None, "/queues/reports", &body).await
    };
    // Each form is sent twice: the second click of a double click changes nothing more.
    for (action, word) in [
        ("schedule_pause", "schedule_paused"),
        ("schedule_trigger", "triggered"),
        ("schedule_resume", "schedule_resumed"),
        ("schedule_remove", "schedule_removed"),
    ] {
        for _ in 0..2 {
            let answer = did(action).await?;
            led(&answer, &format!("/queues/reports?did={word}"));
        }
        let stored = queue.schedule("night/ly").get().await?;
        let state = stored.as_ref().map(|stored| stored.state.as_str());
        let triggered = stored.as_ref().map_or(0, |stored| stored.triggered);
        match action {
            "schedule_pause" => assert_eq!((state, triggered), (Some("paused"), 0)),
            "schedule_trigger" => assert_eq!((state, triggered), (Some("paused"), 1)),
            "schedule_resume" => assert_eq!((state, triggered), (Some("active"), 1)),
            _ => assert_eq!(state, None),
        }
    }
    for wrong in [
        "schedule=none&triggered=0",
        "schedule=..&triggered=0",
        "schedule=x/../../limits&triggered=0",
    ] {
        let body = format!("action=schedule_trigger&{wrong}");
        let answer = submit(&instance, None, "/queues/reports", &body).await?;
        assert_eq!(answer.status, 404, "{wrong}: {}", answer.body);
    }
    Ok(())
}
