//! Limits of requests and connections.

use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::assert_refused;
use crate::captured::Captured;
use crate::instance::{Instance, LIMIT};

#[tokio::test(flavor = "multi_thread")]
async fn each_caller_has_its_own_rate_limit() -> Result<()> {
    let instance = Instance::with_tokens_and(|config| config.rate_limit = Some(1)).await?;
    let mut refused = 0;
    for _ in 0..20 {
        let answer = instance.ask_as("viewer", "GET /openapi.json", "").await?;
        if answer.status == 429 {
            assert_refused!(&answer, 429, "rate_limited");
            refused += 1;
        }
    }
    assert!(refused > 0, "20 requests within a second");
    assert_eq!(
        instance.status_as("operator", "GET /openapi.json").await?,
        200
    );
    // Requests without a known caller count against no caller, and health has no limit.
    for _ in 0..20 {
        assert_eq!(instance.call("GET /v1/queues").await?.status, 401);
        assert_eq!(instance.call("GET /healthz").await?.status, 200);
    }
    Ok(())
}

#[tokio::test]
async fn wrong_tokens_are_logged_and_limited_per_peer() -> Result<()> {
    let log = Captured::start();
    let instance = Instance::with_tokens_and(|config| config.rate_limit = Some(5)).await?;
    let wrong = ["Authorization: Bearer dueq_wrong"];
    let json = ["Content-Type: application/json"];
    let mut statuses = Vec::new();
    for _ in 0..20 {
        let bearer = instance.ask("GET /v1/queues", &wrong, "").await?;
        let login = instance
            .ask("POST /v1/session", &json, r#"{"token":"dueq_wrong"}"#)
            .await?;
        statuses.extend([bearer.status, login.status]);
    }
    assert!(statuses[..2] == [401, 401], "{statuses:?}");
    let refused = statuses.iter().filter(|status| **status == 429).count();
    assert!(refused > 10, "{statuses:?}");
    // A caller with a right token has its own limit, also at this address.
    let right = instance.ask_as("viewer", "GET /v1/queues", "").await?;
    assert_eq!(right.status, 200);
    let log = log.text();
    let lines: Vec<_> = log
        .lines()
        .filter(|line| line.starts_with("dueq_serve.login_failed"))
        .collect();
    assert!((1..4).contains(&lines.len()), "{lines:?}");
    assert!(
        lines[0].contains("127.0.0.1") && !log.contains("dueq_wrong"),
        "{log}"
    );
    Ok(())
}

/// Sends a request whose body is not complete, and waits until the server reads it.
async fn request(instance: &Instance) -> Result<TcpStream> {
    let mut stream = instance.connect().await?;
    let head = format!(
        "PUT /v1/queues/orders/messages/1 HTTP/1.1\r\nHost: {}\r\nExpect: 100-continue\r\n\
         Content-Type: application/json\r\nContent-Length: 9\r\n\r\n",
        instance.address
    );
    stream.write_all(head.as_bytes()).await?;
    stream.read_exact(&mut [0; 25]).await?; // 100 Continue
    Ok(stream)
}

/// Whether the server closes the connection within this time.
async fn is_closed(stream: &mut TcpStream, within: Duration) -> bool {
    let mut bytes = [0; 4_096];
    let read = tokio::time::timeout(within, stream.read(&mut bytes));
    read.await
        .is_ok_and(|read| read.map_or(true, |length| length == 0))
}

#[tokio::test]
async fn silent_connection_is_closed_to_admit_a_new_one() -> Result<()> {
    let log = Captured::start();
    let instance = Instance::start(|config, _| {
        config.max_connections = 4;
        Ok(Vec::new())
    })
    .await?;
    let mut request = request(&instance).await?;
    // One connection with half a head, one with half a login, and one that is idle after a request.
    let mut silent = vec![instance.connect().await?, instance.connect().await?];
    silent[0].write_all(b"GET /healthz HTTP/1.1\r\n").await?;
    let login = format!(
        "POST /v1/session HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Content-Length: 99\r\n\r\n",
        instance.address
    );
    silent[1].write_all(login.as_bytes()).await?;
    let mut idle = instance.connect().await?;
    let whole = format!(
        "GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n",
        instance.address
    );
    idle.write_all(whole.as_bytes()).await?;
    assert!(idle.read(&mut [0; 4_096]).await? > 0);
    silent.push(idle);
    for round in 0..20 {
        assert_eq!(instance.call("GET /healthz").await?.status, 200);
        silent.push(instance.connect().await?);
        if round == 4 {
            for stream in &mut silent[..3] {
                assert!(is_closed(stream, LIMIT).await);
            }
        }
    }
    // The new connections did not wait for timeouts of the silent ones.
    let rooms = log.text().matches("dueq_serve.made_room").count();
    assert!(rooms >= 17, "{rooms}");
    // The connection with a request is still open.
    request.write_all(br#"{"payload""#).await?;
    let mut answer = [0; 12];
    request.read_exact(&mut answer).await?;
    assert_eq!(&answer, b"HTTP/1.1 400", "the body is cut");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_waits_while_all_others_have_requests() -> Result<()> {
    let instance = Instance::start(|config, _| {
        config.max_connections = 2;
        Ok(Vec::new())
    })
    .await?;
    let (first, mut second) = (request(&instance).await?, request(&instance).await?);
    let waiting = instance.call("GET /healthz");
    let mut waiting = std::pin::pin!(waiting);
    let early = tokio::time::timeout(Duration::from_millis(300), &mut waiting).await;
    assert!(early.is_err(), "the third connection was served: {early:?}");
    drop(first);
    assert_eq!(waiting.await?.status, 200);
    assert!(!is_closed(&mut second, Duration::from_millis(200)).await);
    Ok(())
}
