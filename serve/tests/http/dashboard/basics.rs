//! Parts of every page: problems, login, preferences, forms.

use std::time::Duration;

use anyhow::Result;

use crate::dashboard::look::{form, look};
use crate::instance::Instance;

#[tokio::test]
async fn form_pauses_the_queue_and_redirects_back() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    queue
        .push("x")
        .id("1")
        .due(Duration::from_secs(3_600))
        .await?;
    let page = look(&instance, "/queues/orders").await?;
    assert_eq!(page.status, 200, "{}", page.body);
    assert!(page.body.contains(">Pause<"), "{}", page.body);
    assert!(
        page.header("content-security-policy")
            .is_some_and(|policy| policy.contains("script-src 'self'"))
    );
    let headers = form(&instance);
    let headers: Vec<_> = headers.iter().map(String::as_str).collect();
    let answer = instance
        .ask("POST /queues/orders", &headers, "action=pause")
        .await?;
    assert_eq!(
        (answer.status, answer.header("location")),
        (303, Some("/queues/orders?did=paused")),
        "{}",
        answer.body
    );
    assert!(queue.stats().await?.paused);
    let page = look(&instance, "/queues/orders?did=paused").await?;
    assert!(page.body.contains("The queue is paused"), "{}", page.body);
    // A request from a page of another site.
    let foreign = [headers[0], headers[1], "Origin: http://evil.com"];
    let answer = instance
        .ask("POST /queues/orders", &foreign, "action=resume")
        .await?;
    assert_eq!(answer.status, 403);
    assert!(queue.stats().await?.paused);
    Ok(())
}

#[tokio::test]
async fn only_browsers_get_problems_as_pages() -> Result<()> {
    let instance = Instance::open().await?;
    let page = look(&instance, "/queues/none").await?;
    assert_eq!(page.status, 404);
    assert!(page.body.starts_with("<!DOCTYPE html>"), "{}", page.body);
    // The page also has the navigation.
    for part in ["no_such_queue", "Find an id", "href=\"/workers\""] {
        assert!(page.body.contains(part), "{part}: {}", page.body);
    }
    let page = look(&instance, "/queue/orders").await?;
    assert_eq!(page.status, 404);
    assert!(
        page.body.contains("No page has the address") && page.body.contains("Find an id"),
        "{}",
        page.body
    );
    // A browser would read this address in a link as another host.
    let page = look(&instance, "//evil.com/a").await?;
    assert_eq!(page.status, 404);
    assert!(!page.body.contains("=\"//evil.com"), "{}", page.body);
    for (line, headers) in [
        ("GET /queues/none", &[][..]),
        ("GET /v1/queues/none", &["Accept: text/html"]),
    ] {
        let answer = instance.ask(line, headers, "").await?;
        assert_eq!(
            (answer.status, answer.code()?.as_str()),
            (404, "no_such_queue"),
            "{line}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn browser_logs_in_with_a_token() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let page = look(&instance, "/queues/a?x=%22").await?;
    assert_eq!(
        (page.status, page.header("location")),
        (303, Some("/login?next=%2Fqueues%2Fa%3Fx%3D%2522"))
    );
    let headers = form(&instance);
    let headers: Vec<_> = headers.iter().map(String::as_str).collect();
    let wrong = instance
        .ask("POST /login", &headers, "token=x&next=%2F")
        .await?;
    assert_eq!(wrong.status, 401);
    assert!(
        wrong.body.contains("the token is unknown"),
        "{}",
        wrong.body
    );
    // A caller without a token cannot use much of the memory for bodies.
    let long = format!("token={}", "x".repeat(16 << 10));
    let refused = instance.ask("POST /login", &headers, &long).await?;
    assert_eq!(refused.status, 413, "{}", refused.body);
    let token = instance.token("viewer");
    let right = format!("token={token}&next=//evil.com");
    let answer = instance.ask("POST /login", &headers, &right).await?;
    assert_eq!(
        (answer.status, answer.header("location")),
        (303, Some("/")),
        "{}",
        answer.body
    );
    let cookie = answer.header("set-cookie").unwrap_or_default();
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap_or_default());
    let page = instance
        .ask("GET /", &["Accept: text/html", &cookie], "")
        .await?;
    assert_eq!(page.status, 200, "{}", page.body);
    assert!(
        page.body.contains("viewer") && page.body.contains("Log out"),
        "{}",
        page.body
    );
    Ok(())
}
