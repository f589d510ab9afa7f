//! Checks that no `Debug`, `Display`, error or error cause of a public type contains a password or
//! certificate.

use std::error::Error as _;
use std::fmt::Debug;

use anyhow::Result;
use dueq::{Client, ClientOptions, ErrorKind};
use dueq_testkit::Server;

use crate::support::{LONG, acking};

const SECRET: &str = "hunter2hunter2";

fn silent(what: &str, value: &dyn Debug) {
    for shown in [format!("{value:?}"), format!("{value:#?}")] {
        assert!(!shown.contains(SECRET), "{what}: {shown}");
    }
}

/// Checks the texts of an error and all its causes.
fn silent_error(error: &dueq::Error) {
    silent("error", error);
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        assert!(!error.to_string().contains(SECRET), "{error}");
        silent("cause", &error);
        cause = error.source();
    }
    assert!(
        error
            .source()
            .is_none_or(|source| !source.to_string().contains(SECRET))
    );
}

#[tokio::test]
async fn types_with_a_connection_hide_its_password() -> Result<()> {
    let server = Server::start(&["--requirepass", SECRET])?;
    let client =
        Client::connect(&format!("redis://:{SECRET}@127.0.0.1:{}/0", server.port())).await?;
    let queue = client.queue("orders")?;
    queue.push("x").id("one").await?;
    let delivery = loop {
        if let Some(delivery) = queue.claim(1, LONG).await?.pop() {
            break delivery;
        }
    };
    silent("client", &client);
    silent("queue", &queue);
    silent("worker", &queue.worker());
    silent("delivery", &delivery);
    silent(
        "page",
        &queue.list(dueq::MessageState::Leased, None, 10).await?,
    );
    silent("checkup", &client.examine().await?);
    silent("checkup", &queue.examine(false).await?);
    let (worker, _) = acking(queue.worker());
    worker.stop().await?;
    Ok(())
}

#[tokio::test]
async fn no_error_contains_a_password() -> Result<()> {
    let server = Server::start(&["--requirepass", "another"])?;
    let port = server.port();
    for (url, kind) in [
        (
            format!("redis://:{SECRET}@127.0.0.1:{port}/"),
            ErrorKind::Denied,
        ),
        (
            format!("redis://{SECRET}:{SECRET}@127.0.0.1:{port}/"),
            ErrorKind::Denied,
        ),
        (
            format!("redis://:{SECRET}@127.0.0.1:1/"),
            ErrorKind::Unavailable,
        ),
        (
            format!("redis://:{SECRET}@127.0.0.1:{port}/nine"),
            ErrorKind::InvalidInput,
        ),
        (
            format!("redis://:{SECRET}@127.0.0.1:99999/"),
            ErrorKind::InvalidInput,
        ),
        (
            format!("redis+unix:///absent?pass={SECRET}"),
            ErrorKind::Unavailable,
        ),
        (
            format!("redis+sentinel://:{SECRET}@127.0.0.1:{port}/"),
            ErrorKind::InvalidInput,
        ),
        (
            format!("redis+sentinel://:{SECRET}@127.0.0.1/s?sentinel_passwort={SECRET}"),
            ErrorKind::InvalidInput,
        ),
        (SECRET.to_owned(), ErrorKind::InvalidInput),
    ] {
        let error = Client::connect(&url)
            .await
            .expect_err("no server that takes it");
        assert_eq!(error.kind(), kind, "{error}");
        silent_error(&error);
    }
    Ok(())
}

#[tokio::test]
async fn certificates_stay_hidden_and_a_url_cannot_disable_tls() -> Result<()> {
    let options = ClientOptions::new()
        .ca_certificates(SECRET)
        .client_certificate(SECRET, SECRET);
    silent("options", &options);
    silent_error(
        &Client::connect_with("rediss://127.0.0.1:1/", &options)
            .await
            .expect_err("no certificates"),
    );
    for url in [
        "rediss://127.0.0.1:1/#insecure",
        "rediss+sentinel://127.0.0.1:1/orders/0#insecure",
    ] {
        let error = Client::connect(url)
            .await
            .expect_err("the URL would disable verification");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains("#insecure"), "{error}");
    }
    Ok(())
}
