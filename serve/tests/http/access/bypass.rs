//! Attempts to act without a token, or with more rights than the token has.

use anyhow::Result;

use crate::assert_refused;
use crate::instance::Instance;

const PAUSE: &str = "PUT /v1/queues/orders/pause";

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_name_a_user_are_ignored() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let queue = instance.queue("orders").await?;
    let headers = [
        "X-Forwarded-User: root",
        "X-Remote-User: root",
        "Remote-User: root",
        "X-Auth-Request-User: root",
        "X-Forwarded-Groups: sre",
        "X-Forwarded-For: 127.0.0.1",
        "X-Real-IP: 127.0.0.1",
        "Forwarded: for=127.0.0.1",
        "X-Original-URL: /healthz",
        "X-Rewrite-URL: /healthz",
    ];
    assert_refused!(
        instance.ask(PAUSE, &headers, "").await?,
        401,
        "unauthenticated"
    );
    assert!(!queue.stats().await?.paused);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn variants_of_authorization_are_refused() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let token = instance.token("operator");
    for header in [
        "Authorization:".to_owned(),
        "Authorization: Bearer".to_owned(),
        "Authorization: Bearer ".to_owned(),
        format!("Authorization: {token}"),
        format!("Authorization: Basic {token}"),
        format!("Authorization: Token {token}"),
        format!("Authorization: Bearer: {token}"),
        format!("Authorization: Bearer,{token}"),
        format!("Authorization: Bearer {token}x"),
        format!("Authorization: Bearer x{token}"),
        format!("Authorization: Bearer {token} x"),
        format!("Authorization: Bearer {}", &token[..token.len() - 1]),
        format!("Authorization: Bearer {}", token.to_uppercase()),
        format!("Authorization: Bearer \"{token}\""),
        format!("Authorization: Bearer {token}\u{e9}"),
        format!("Proxy-Authorization: Bearer {token}"),
        format!("X-Api-Key: {token}"),
        format!("Cookie: token={token}"),
    ] {
        let answer = instance.ask("GET /v1/queues", &[&header], "").await?;
        assert_refused!(&answer, 401, "unauthenticated", "{header:?}");
        assert!(!answer.body.contains(token), "the answer repeats the token");
    }
    let header = format!("authorization: bEARER {token}");
    let answer = instance.ask("GET /v1/queues", &[&header], "").await?;
    assert_eq!(answer.status, 200, "the scheme has no case: {answer:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn second_authorization_header_is_refused() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let (viewer, operator) = (instance.bearer("viewer"), instance.bearer("operator"));
    for headers in [
        [&*viewer, &*operator],
        [&*operator, &*viewer],
        [&*viewer, &*viewer],
    ] {
        assert_refused!(
            instance.ask(PAUSE, &headers, "").await?,
            401,
            "unauthenticated"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn method_override_headers_have_no_effect() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let queue = instance.queue("orders").await?;
    let bearer = instance.bearer("operator");
    for header in [
        "X-HTTP-Method-Override: PUT",
        "X-HTTP-Method: PUT",
        "X-Method-Override: PUT",
    ] {
        let headers = [&*bearer, header];
        let answer = instance
            .ask("GET /v1/queues/orders/pause", &headers, "")
            .await?;
        assert_refused!(&answer, 405, "method_not_allowed", "{header}");
        assert_eq!(answer.header("allow"), Some("PUT,DELETE"), "{answer:?}");
        let answer = instance
            .ask("POST /v1/queues/orders/pause?_method=PUT", &headers, "")
            .await?;
        assert_refused!(&answer, 405, "method_not_allowed", "{header}");
    }
    // The header also does not hide a change from the guard.
    let (viewer, header) = (instance.bearer("viewer"), "X-HTTP-Method-Override: GET");
    assert_refused!(
        instance.ask(PAUSE, &[&viewer, header], "").await?,
        403,
        "forbidden"
    );
    assert!(!queue.stats().await?.paused);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn methods_without_a_route_change_nothing() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let queue = instance.queue("orders").await?;
    let bearer = instance.bearer("operator");
    for method in [
        "HEAD", "POST", "PATCH", "TRACE", "OPTIONS", "put", "PUTT", "PROPFIND",
    ] {
        let line = format!("{method} /v1/queues/orders/pause");
        let answer = instance.ask(&line, &[&bearer], "").await?;
        assert_eq!(answer.status, 405, "{line}: {answer:?}");
    }
    assert!(!queue.stats().await?.paused);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn preflight_gets_no_cors_headers() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    for (origin, status) in [
        ("Origin: https://evil.example.com", 403),
        ("X-Nothing: 1", 401),
    ] {
        let headers = [origin, "Access-Control-Request-Method: PUT"];
        let answer = instance
            .ask("OPTIONS /v1/queues/orders/pause", &headers, "")
            .await?;
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(
            !answer
                .headers
                .iter()
                .any(|(name, _)| name.starts_with("access-control")),
            "{answer:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_from_pages_of_other_sites_change_nothing() -> Result<()> {
    // The riskiest server: it asks for no token.
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    let other_port = format!(
        "Origin: http://127.0.0.1:{}",
        instance.address.port().wrapping_add(1)
    );
    for header in [
        "Origin: null",
        "Origin: https://evil.example.com",
        "Origin: http://127.0.0.1.evil.example.com",
        &other_port,
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
        "Sec-Fetch-Site: Same-Origin",
    ] {
        assert_refused!(
            instance.ask(PAUSE, &[header], "").await?,
            403,
            "cross_origin",
            "{header}"
        );
    }
    // The content types that an HTML form of another site can send without a preflight.
    for media in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
    ] {
        let header = format!("Content-Type: {media}");
        let answer = instance.ask(PAUSE, &[&header], "{\"for_ms\":5}").await?;
        assert_refused!(answer, 415, "unsupported_media_type", "{media}");
    }
    assert!(!queue.stats().await?.paused);
    let own = format!("Origin: http://{}", instance.address);
    let answer = instance
        .ask(PAUSE, &[&own, "Sec-Fetch-Site: same-origin"], "")
        .await?;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(queue.stats().await?.paused);
    Ok(())
}
