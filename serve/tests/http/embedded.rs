//! The router mounted in another service.

use std::net::SocketAddr;

use anyhow::Result;
use axum::Router;
use dueq::Client;
use dueq_serve::{Access, Config, router};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use crate::instance::{Answer, to_end};

/// Mounts the router below `/dueq`, sends a request with this `Host`, and returns the answer.
async fn ask(config: Config, has_peer: bool, path: &str, host: &str) -> Result<Answer> {
    let redis = dueq_testkit::Server::start(&[])?;
    let client = Client::connect(&redis.url()).await?;
    client.queue("orders")?.push("x").await?;
    let app = Router::new().nest_service("/dueq", router(client, config)?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let serving = tokio::spawn(async move {
        if has_peer {
            let service = app.into_make_service_with_connect_info::<SocketAddr>();
            axum::serve(listener, service).await
        } else {
            axum::serve(listener, app).await
        }
    });
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let answer = Answer::parse(&to_end(&mut stream).await?)?;
    serving.abort();
    Ok(answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn mounted_router_with_access_everybody_asks_for_no_token() -> Result<()> {
    let config = || Config {
        access: Access::Everybody,
        ..Config::default()
    };
    let answer = ask(config(), false, "/dueq/v1/queues/orders", "any.example.com").await?;
    assert_eq!(
        (answer.status, answer.json()?["queue"].as_str()),
        (200, Some("orders"))
    );
    let answer = ask(config(), false, "/dueq/nothing", "any.example.com").await?;
    assert_eq!(answer.code()?, "not_found");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn mounted_loopback_router_needs_the_peer_address() -> Result<()> {
    let path = "/dueq/v1/queues/orders";
    let answer = ask(Config::default(), false, path, "localhost:1").await?;
    assert_eq!(answer.code()?, "unauthenticated");
    let answer = ask(Config::default(), true, path, "evil.example.com").await?;
    assert_eq!(answer.code()?, "wrong_host");
    let answer = ask(Config::default(), true, path, "localhost:1").await?;
    assert_eq!(answer.status, 200, "{answer:?}");
    Ok(())
}
