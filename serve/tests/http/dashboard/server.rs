//! `/server`, and the strip of findings that every page has.

use anyhow::Result;

use crate::dashboard::look::{look, look_as, look_until, text};
use crate::instance::Instance;

#[tokio::test(flavor = "multi_thread")]
async fn page_shows_each_finding_with_its_remedy() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let config = ["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"];
    instance.redis.command(&config)?;
    let page = look_as(&instance, "viewer", "/server").await?;
    assert_eq!(page.status, 200, "{}", page.body);
    for part in ["allkeys-lru", "What to do:", "noeviction", "dueq doctor"] {
        assert!(page.body.contains(part), "{part}: {}", page.body);
    }
    let words = text(&page.body);
    for part in [
        "dueq serve 0.",
        "Recognized by token",
        "Roles viewer",
        "no limit",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    // Other pages show the same findings; for 10 s Redis is not examined again.
    let page = look_as(&instance, "viewer", "/operations").await?.body;
    assert!(
        page.contains("What is wrong with the Redis server"),
        "{page}"
    );
    assert!(page.contains("allkeys-lru"), "{page}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_show_findings_before_the_server_page_is_opened() -> Result<()> {
    let instance = Instance::open().await?;
    let config = ["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"];
    instance.redis.command(&config)?;
    let found = |page: &str| page.contains("allkeys-lru");
    let page = look_until(&instance, "/operations", found).await?;
    assert!(page.contains("What to do"), "{page}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn server_page_is_shown_while_redis_is_away() -> Result<()> {
    let mut instance = Instance::open().await?;
    look_until(&instance, "/server", |page| page.contains("Examined")).await?;
    instance.redis.kill()?;
    let away = |page: &str| page.contains("Redis does not answer");
    look_until(&instance, "/operations", away).await?;
    let page = look(&instance, "/server").await?;
    assert_eq!(page.status, 200, "{}", page.body);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn suggested_time_zones_are_valid() -> Result<()> {
    let instance = Instance::open().await?;
    let page = look(&instance, "/operations").await?.body;
    let zones = page
        .split_once("<datalist id=\"zones\">")
        .map(|(_, rest)| rest);
    let zones = zones.and_then(|rest| rest.split_once("</datalist>"));
    let zones = zones.map_or("", |(zones, _)| zones);
    let names: Vec<_> = zones.split('"').skip(1).step_by(2).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        let page = look(&instance, &format!("/operations?tz={name}")).await?;
        assert_eq!(page.status, 200, "{name}");
    }
    Ok(())
}
