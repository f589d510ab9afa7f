//! Servers that are absent, refuse the login, or do not reply.

use std::time::Duration;

use anyhow::Result;
use dueq::{Applied, Client, Error, ErrorKind, Message};
use dueq_testkit::{Server, Stopwatch};
use tokio::net::TcpListener;

use crate::support::proxy::Proxy;
use crate::support::{HOUR, command, connection, seen, setup, within};

/// Every printed form of an error, with its causes.
fn all_text(error: &Error) -> String {
    let mut text = format!("{error} {error:?} {error:#?}");
    let mut cause = std::error::Error::source(error);
    while let Some(one) = cause {
        text.push_str(&format!(" {one} {one:?}"));
        cause = one.source();
    }
    text
}

async fn refused(url: &str, kind: ErrorKind, limit: Duration) -> Result<String> {
    let start = Stopwatch::start();
    let error = within("an error", Client::connect(url))
        .await?
        .expect_err("refused");
    let took = start.elapsed();
    assert_eq!(
        (error.kind(), error.was_applied()),
        (kind, Applied::No),
        "{error}"
    );
    assert!(took < limit, "{error}: after {took:?}");
    assert!(
        !all_text(&error).contains("hunter2"),
        "the error contains the password: {}",
        all_text(&error)
    );
    let text = error.to_string();
    assert!(!text.contains('\n'), "more than a line: {text}");
    Ok(text)
}

#[tokio::test]
async fn refused_connection_names_the_address_without_the_password() -> Result<()> {
    let port = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port();
    let url = format!("redis://alice:hunter2@127.0.0.1:{port}/");
    let text = refused(&url, ErrorKind::Unavailable, Duration::from_secs(10)).await?;
    assert!(
        text.contains(&format!("cannot reach redis at 127.0.0.1:{port}")),
        "{text}"
    );
    let text = refused(
        "redis://:hunter2@no-such-host.invalid/",
        ErrorKind::Unavailable,
        Duration::from_secs(30),
    )
    .await?;
    assert!(text.contains("no-such-host.invalid:6379"), "{text}");
    Ok(())
}

#[tokio::test]
async fn wrong_and_missing_passwords_give_different_errors() -> Result<()> {
    let server = Server::start(&["--requirepass", "right"])?;
    let at = format!("127.0.0.1:{}", server.port());
    let quick = Duration::from_secs(10);
    let text = refused(&format!("redis://:hunter2@{at}/"), ErrorKind::Denied, quick).await?;
    assert!(text.contains(&at), "{text}");
    refused(
        &format!("redis://unknown:hunter2@{at}/"),
        ErrorKind::Denied,
        quick,
    )
    .await?;
    let text = refused(&format!("redis://{at}/"), ErrorKind::Denied, quick).await?;
    assert!(text.contains("redis://USER:PASSWORD@HOST/"), "{text}");
    let client = Client::connect(&format!("redis://:right@{at}/3")).await?;
    client.queue("orders")?.push("").await?;
    Ok(())
}

#[tokio::test]
async fn error_names_the_missing_rights_of_a_user() -> Result<()> {
    let server = Server::start(&[])?;
    let mut admin = connection(&server.url()).await?;
    let rule = [
        "ACL",
        "SETUSER",
        "reader",
        "on",
        ">hunter2",
        "~*",
        "+@read",
        "+@connection",
        "+info",
        "+time",
    ];
    command::<()>(&mut admin, &rule).await?;
    let client = Client::connect(&format!(
        "redis://reader:hunter2@127.0.0.1:{}/",
        server.port()
    ))
    .await?;
    let queue = client.queue("orders")?;
    let error = queue.push("").await.expect_err("no right");
    assert_eq!(
        (error.kind(), error.was_applied()),
        (ErrorKind::Denied, Applied::No),
        "{error}"
    );
    assert!(
        error.to_string().to_lowercase().contains("evalsha"),
        "{error}"
    );
    let worker = within(
        "the refusal",
        queue
            .worker()
            .run(|_: dueq::Delivery| async {}, std::future::pending::<()>()),
    )
    .await?;
    assert_eq!(worker.expect_err("no right").kind(), ErrorKind::Denied);
    Ok(())
}

#[tokio::test]
async fn invalid_url_is_rejected_without_repeating_it() -> Result<()> {
    for url in [
        "",
        "hunter2",
        "http://:hunter2@host/",
        "redis://:hunter2@host:port/",
        "redis://:hunter2@host/x",
    ] {
        let text = refused(url, ErrorKind::InvalidInput, Duration::from_secs(10)).await?;
        assert!(text.contains("redis://[USER:PASSWORD@]HOST"), "{text}");
    }
    Ok(())
}

#[tokio::test]
async fn server_of_another_protocol_is_an_error_not_a_hang() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("redis://:hunter2@{}/", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = tokio::io::AsyncWriteExt::write_all(
                &mut stream,
                b"HTTP/1.1 400 Bad Request\r\n\r\n",
            )
            .await;
        }
    });
    let error = within("an error", Client::connect(&url))
        .await?
        .expect_err("not redis");
    assert!(!all_text(&error).contains("hunter2"));
    Ok(())
}

#[tokio::test]
async fn server_that_accepts_but_never_answers_times_out() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let at = listener.local_addr()?;
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            open.push(stream);
        }
    });
    let text = refused(
        &format!("redis://:hunter2@{at}/"),
        ErrorKind::Timeout,
        Duration::from_secs(40),
    )
    .await?;
    assert!(text.contains(&at.to_string()), "{text}");
    Ok(())
}

/// The server falls silent during each call. Every call ends with an error whose outcome is
/// unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_ends_after_the_server_falls_silent() -> Result<()> {
    let setup = setup().await?;
    let proxy = Proxy::start(setup.server.port()).await?;
    let queue = Client::connect(&proxy.url()).await?.queue("orders")?;
    let delivery = crate::support::push_and_claim(&queue, Message::new("").id("held")).await?;
    proxy.fall_silent();
    let (sender, mut errors) = seen();
    let start = Stopwatch::start();
    macro_rules! ends {
        ($name:literal, $call:expr) => {{
            let (queue, delivery, sender) = (queue.clone(), delivery.clone(), sender.clone());
            tokio::spawn(async move {
                let result = $call(&queue, &delivery).await;
                let _ = sender.send(($name, result.map(drop)));
            });
        }};
    }
    ends!("push", async |queue: &dueq::Queue, _: &dueq::Delivery| {
        queue.push("").due(HOUR).await
    });
    ends!("cancel", async |queue: &dueq::Queue, _: &dueq::Delivery| {
        queue.cancel("x").await
    });
    ends!(
        "reschedule",
        async |queue: &dueq::Queue, _: &dueq::Delivery| queue.reschedule("x", HOUR).await
    );
    ends!("stats", async |queue: &dueq::Queue, _: &dueq::Delivery| {
        queue.stats().await
    });
    ends!("claim", async |queue: &dueq::Queue, _: &dueq::Delivery| {
        queue.claim(1, HOUR).await
    });
    ends!("ack", async |_: &dueq::Queue, delivery: &dueq::Delivery| {
        delivery.ack().await
    });
    ends!(
        "extend",
        async |_: &dueq::Queue, delivery: &dueq::Delivery| delivery.extend(HOUR).await
    );
    for (name, result) in errors.take(7).await? {
        let error = result.expect_err(name);
        assert!(
            matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable),
            "{name}: {error}"
        );
        assert!(
            error.is_retryable() && error.to_string().contains("127.0.0.1"),
            "{name}: {error}"
        );
    }
    let took = start.elapsed();
    assert!(took < Duration::from_secs(40), "{took:?}");
    assert_eq!(setup.queue.stats().await?.scheduled, 0);
    Ok(())
}

/// Callers in a queue wait for one time limit in total, not for one per batch before theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_in_a_queue_share_one_time_limit() -> Result<()> {
    let setup = setup().await?;
    let proxy = Proxy::start(setup.server.port()).await?;
    let queue = Client::connect(&proxy.url()).await?.queue("orders")?;
    queue.push("").due(HOUR).await?;
    proxy.fall_silent();
    let start = Stopwatch::start();
    let results = within(
        "all results",
        queue.push_many((0..1_500).map(|_| Message::new("").due(HOUR))),
    )
    .await?;
    let took = start.elapsed();
    assert!(results.iter().all(Result::is_err));
    assert!(took < Duration::from_secs(45), "{took:?}");
    Ok(())
}
