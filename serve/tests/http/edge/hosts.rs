//! Requests that name another host: DNS rebinding.

use anyhow::Result;

use crate::assert_refused;
use crate::instance::Instance;

#[tokio::test(flavor = "multi_thread")]
async fn loopback_server_refuses_the_host_of_another_site() -> Result<()> {
    let instance = Instance::open().await?;
    let port = instance.address.port();
    for host in [
        format!("evil.example.com:{port}"),
        "evil.example.com".to_owned(),
        format!("127.0.0.1.nip.io:{port}"),
        format!("localhost.evil.example.com:{port}"),
        "127.0.0.1:1".to_owned(),
        "localhost".to_owned(),
        format!("0.0.0.0:{port}"),
        format!("2130706433:{port}"),
    ] {
        for line in [
            "GET /v1/queues",
            "PUT /v1/queues/orders/pause",
            "GET /nothing",
        ] {
            let request = format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            let answer = instance.raw(request.as_bytes()).await?;
            assert_refused!(answer, 421, "wrong_host", "{host}");
        }
    }
    for host in [format!("localhost:{port}"), format!("127.0.0.1:{port}")] {
        let request =
            format!("GET /v1/queues HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        assert_eq!(
            instance.raw(request.as_bytes()).await?.status,
            200,
            "{host}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn forwarded_host_does_not_replace_the_host() -> Result<()> {
    let instance = Instance::open().await?;
    let request = format!(
        "GET /v1/queues HTTP/1.1\r\nHost: evil.example.com\r\nX-Forwarded-Host: {}\r\nConnection: close\r\n\r\n",
        instance.address
    );
    assert_refused!(instance.raw(request.as_bytes()).await?, 421, "wrong_host");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_or_repeated_host_header_is_refused() -> Result<()> {
    let instance = Instance::open().await?;
    let own = instance.address;
    for (request, status) in [
        (
            "GET /v1/queues HTTP/1.1\r\nConnection: close\r\n\r\n".to_owned(),
            421,
        ),
        ("GET /v1/queues HTTP/1.0\r\n\r\n".to_owned(), 421),
        (
            format!(
                "GET /v1/queues HTTP/1.1\r\nHost: {own}\r\nHost: evil.com\r\nConnection: close\r\n\r\n"
            ),
            400,
        ),
        (
            format!(
                "GET /v1/queues HTTP/1.1\r\nHost: {own}\r\nHost: {own}\r\nConnection: close\r\n\r\n"
            ),
            400,
        ),
        (
            format!("GET /v1/queues HTTP/1.1\r\nHost: a@{own}\r\nConnection: close\r\n\r\n"),
            400,
        ),
        (
            format!(
                "GET http://evil.com/v1/queues HTTP/1.1\r\nHost: {own}\r\nConnection: close\r\n\r\n"
            ),
            400,
        ),
        (
            "GET http://evil.com/v1/queues HTTP/1.1\r\nHost: evil.com\r\nConnection: close\r\n\r\n"
                .to_owned(),
            421,
        ),
    ] {
        let answer = instance.raw(request.as_bytes()).await?;
        assert_eq!(answer.status, status, "{request:?}: {answer:?}");
        answer.code()?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn public_url_sets_the_allowed_host_and_the_path_prefix() -> Result<()> {
    let instance = Instance::with_tokens_and(|config| {
        config.public_url = Some("https://q.example.com/ops/dueq".parse().expect("a URL"))
    })
    .await?;
    let (bearer, port) = (instance.bearer("operator"), instance.address.port());
    instance.queue("orders").await?;
    let own = format!("127.0.0.1:{port}");
    for (host, path, status) in [
        ("q.example.com", "/ops/dueq/v1/queues/orders", 200),
        ("Q.example.com:443", "/ops/dueq/v1/queues/orders", 200),
        (&*own, "/ops/dueq/v1/queues/orders", 200),
        ("q.example.com", "/v1/queues/orders", 404),
        ("q.example.com", "/ops/dueq/nothing", 404),
        ("q.example.com", "/ops/dueq/healthz", 200),
        ("q.example.com", "/healthz", 200),
        ("10.0.0.9", "/healthz", 200),
        ("x.example.com", "/ops/dueq/v1/queues/orders", 421),
    ] {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{bearer}\r\nConnection: close\r\n\r\n");
        let answer = instance.raw(request.as_bytes()).await?;
        assert_eq!(answer.status, status, "{host} {path}: {answer:?}");
        if status >= 400 {
            answer.code()?;
        }
    }
    Ok(())
}
