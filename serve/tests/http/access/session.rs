//! Sessions of browsers.

use std::fs;

use anyhow::{Context, Result};
use serde_json::json;

use crate::assert_refused;
use crate::instance::{Instance, JSON};

/// Begins a session of this token's caller, and returns the cookie.
async fn begin(instance: &Instance, name: &str) -> Result<String> {
    let body = json!({ "token": instance.token(name) }).to_string();
    let answer = instance.ask("POST /v1/session", &[JSON], &body).await?;
    assert_eq!(answer.status, 204, "{answer:?}");
    let cookie = answer.header("set-cookie").context("a cookie")?;
    for attribute in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    assert!(!cookie.contains(instance.token(name)), "{cookie}");
    let pair = cookie.split(';').next().unwrap_or_default();
    Ok(format!("Cookie: theme=dark; {pair}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn session_has_the_rights_of_its_token() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let queue = instance.queue("orders").await?;
    let (viewer, operator) = (
        begin(&instance, "viewer").await?,
        begin(&instance, "operator").await?,
    );
    let caller = instance
        .ask("GET /v1/caller", &[&viewer], "")
        .await?
        .json()?;
    let expected = json!({
        "name": "viewer", "via": "session", "roles": ["viewer"], "rights": ["read"],
        "queues": ["*"], "read_only": false,
    });
    assert_eq!(caller, expected);
    let (line, site) = ("PUT /v1/queues/orders/pause", "Sec-Fetch-Site: same-origin");
    assert_refused!(
        instance.ask(line, &[&viewer, site], "").await?,
        403,
        "forbidden"
    );
    // A change with the cookie alone is refused: a browser says where a request comes from.
    assert_refused!(
        instance.ask(line, &[&operator], "").await?,
        403,
        "cross_origin"
    );
    let foreign = "Origin: https://evil.example.com";
    assert_refused!(
        instance.ask(line, &[&operator, foreign], "").await?,
        403,
        "cross_origin"
    );
    assert!(!queue.stats().await?.paused);
    let answer = instance.ask(line, &[&operator, site], "").await?;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(instance.audit()?[0]["via"], "session");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_token_ends_its_sessions() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let cookie = begin(&instance, "viewer").await?;
    assert_eq!(
        instance.ask("GET /v1/caller", &[&cookie], "").await?.status,
        200
    );
    let path = instance.folder.join("tokens.toml");
    let text = fs::read_to_string(&path)?;
    fs::write(
        &path,
        text.replace("\"viewer\"\nroles", "\"renamed\"\nroles"),
    )?;
    instance.control.reload();
    assert_refused!(
        instance.ask("GET /v1/caller", &[&cookie], "").await?,
        401,
        "unauthenticated"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn logout_ends_the_session_for_copies_of_the_cookie() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let site = "Sec-Fetch-Site: same-origin";
    for (name, logout, status) in [
        ("viewer", "DELETE /v1/session", 204),
        ("operator", "POST /logout", 303),
    ] {
        let cookie = begin(&instance, name).await?;
        let caller = async |cookie: &str| {
            let answer = instance.ask("GET /v1/caller", &[cookie], "").await;
            answer.map(|answer| answer.status)
        };
        assert_eq!(caller(&cookie).await?, 200);
        // A logout with a wrongly signed cookie ends no session.
        let (most, last) = cookie.split_at(cookie.len() - 1);
        let forged = format!("{most}{}", if last == "A" { "E" } else { "A" });
        instance.ask(logout, &[&forged, site], "").await?;
        assert_eq!(caller(&cookie).await?, 200);
        let answer = instance.ask(logout, &[&cookie, site], "").await?;
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!(caller(&cookie).await?, 401, "{logout}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_token_or_other_site_begins_no_session() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let right = json!({ "token": instance.token("operator") }).to_string();
    let wrong = json!({ "token": "dueq_x" }).to_string();
    assert_refused!(
        instance.ask("POST /v1/session", &[JSON], &wrong).await?,
        401,
        "unauthenticated"
    );
    let headers = [JSON, "Origin: null"];
    assert_refused!(
        instance.ask("POST /v1/session", &headers, &right).await?,
        403,
        "cross_origin"
    );
    let form = ["Content-Type: text/plain"];
    let answer = instance.ask("POST /v1/session", &form, &right).await?;
    assert_refused!(answer, 415, "unsupported_media_type");
    let ended = instance.call("DELETE /v1/session").await?;
    let cookie = ended.header("set-cookie").context("a cookie")?;
    assert!(
        cookie.starts_with("dueq_session=;") && cookie.contains("Max-Age=0"),
        "{cookie}"
    );
    let open = Instance::open().await?;
    assert_refused!(
        open.ask("POST /v1/session", &[JSON], &right).await?,
        400,
        "invalid_input"
    );
    Ok(())
}
