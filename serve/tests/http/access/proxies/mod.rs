//! Servers behind nginx and Caddy, configured by the guide's example files.

mod front;

use anyhow::{Context, Result};
use dueq_serve::{Role, TrustedProxy};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use crate::assert_refused;
use crate::instance::{Instance, JSON};
use front::{Front, Program};

const LINES: &str = "Content-Type: application/x-ndjson";

/// Checks everything that must work behind every proxy.
async fn check(program: Program, path: &str) -> Result<()> {
    let Some((instance, front)) = Front::of_tokens(program, path).await? else {
        return Ok(());
    };
    ids_with_a_slash_pass(&front, &instance).await?;
    events_come_at_once(&front, &instance).await?;
    lines_are_pushed_while_they_arrive(&front, &instance).await?;
    uploads_are_answered_before_their_end(&front, &instance).await
}

async fn ids_with_a_slash_pass(front: &Front, instance: &Instance) -> Result<()> {
    let bearer = instance.bearer("operator");
    let at = "/v1/queues/orders/messages";
    let put = [
        "-X",
        "PUT",
        "-H",
        &bearer,
        "-H",
        JSON,
        "-d",
        "{\"payload\": \"x\", \"delay\": \"1h\"}",
    ];
    let stored = front.curl(&format!("{at}/~b3JkZXIvNDI"), &put).await?;
    assert_eq!(stored.status, 201, "{stored:?}");
    // The address in the answer begins with the public URL.
    let location = stored.header("location").context("an address")?.to_owned();
    assert!(location.ends_with("/messages/~b3JkZXIvNDI"), "{location}");
    for spelling in ["~b3JkZXIvNDI", "order%2F42", "order%2f42"] {
        let read = front
            .curl(&format!("{at}/{spelling}"), &["-H", &bearer])
            .await?;
        assert_eq!(
            (read.status, &read.json()?["id"]),
            (200, &"order/42".into()),
            "{spelling}"
        );
    }
    // Ids of dots, in an encoding that proxies and clients do not resolve as a path.
    for spelling in ["~Li4", "~Lg"] {
        let stored = front.curl(&format!("{at}/{spelling}"), &put).await?;
        assert_eq!(stored.status, 201, "{stored:?}");
    }
    let stored = instance.client.queue("orders")?.get("..").await?;
    assert!(stored.is_some());
    assert_refused!(
        front.curl("/v1/queues/orders", &[]).await?,
        401,
        "unauthenticated"
    );
    Ok(())
}

async fn events_come_at_once(front: &Front, instance: &Instance) -> Result<()> {
    let queue = instance.queue("followed").await?;
    let bearer = instance.bearer("viewer");
    let mut curl = front.start("/v1/events?queues=followed", &["-N", "-H", &bearer])?;
    let mut lines = BufReader::new(curl.stdout.take().context("a pipe")?).lines();
    let mut event = async || -> Result<String> {
        while let Some(line) = lines.next_line().await? {
            if let Some(data) = line.strip_prefix("data: ") {
                return Ok(data.to_owned());
            }
        }
        anyhow::bail!("the stream ended")
    };
    let first = event().await?;
    assert!(first.contains("\"scheduled\":1"), "{first}");
    queue
        .push("x")
        .delay(std::time::Duration::from_secs(60))
        .await?;
    // If the proxy buffered the stream, this event would not arrive: the stream has only a few
    // hundred bytes.
    while !event().await?.contains("\"scheduled\":2") {}
    curl.kill().await?;
    Ok(())
}

async fn lines_are_pushed_while_they_arrive(front: &Front, instance: &Instance) -> Result<()> {
    let bearer = instance.bearer("producer");
    let queue = instance.queue("lines").await?;
    let arguments = ["-X", "POST", "-T", "-", "-H", &bearer, "-H", LINES];
    let mut curl = front.start("/v1/queues/lines/messages", &arguments)?;
    let mut body = curl.stdin.take().context("a pipe")?;
    let line = format!(
        "{{\"payload\": \"{}\", \"delay\": \"1h\"}}\n",
        "x".repeat(1_000)
    );
    for sent in 1..=3_u64 {
        body.write_all(line.repeat(100).as_bytes()).await?;
        // The proxy must pass on these lines before the next ones exist.
        while queue.stats().await?.pushed < 1 + 100 * sent - 50 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
    body.write_all(line.repeat(20_000).as_bytes()).await?;
    drop(body);
    let answer = front::answer(&curl.wait_with_output().await?)?;
    assert_eq!(
        (answer.status, &answer.json()?["created"]),
        (200, &20_300.into()),
        "{answer:?}"
    );
    Ok(())
}

async fn uploads_are_answered_before_their_end(front: &Front, instance: &Instance) -> Result<()> {
    let bearer = instance.bearer("viewer");
    let arguments = ["-X", "POST", "-T", "-", "-H", &bearer, "-H", LINES];
    let mut curl = front.start("/v1/queues/lines/messages", &arguments)?;
    let mut body = curl.stdin.take().context("a pipe")?;
    let writing = async move {
        let _ = body
            .write_all("{\"payload\": \"x\"}\n".repeat(1 << 20).as_bytes())
            .await;
    };
    let (output, ()) = tokio::join!(curl.wait_with_output(), writing);
    assert_refused!(front::answer(&output?)?, 403, "forbidden");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_streams_and_uploads_work_behind_nginx() -> Result<()> {
    check(Program::Nginx, "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_streams_and_uploads_work_behind_caddy() -> Result<()> {
    check(Program::Caddy, "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn public_url_with_a_path_works_behind_both_proxies() -> Result<()> {
    for program in [Program::Nginx, Program::Caddy] {
        let Some((instance, front)) = Front::of_tokens(program, "/ops").await? else {
            continue;
        };
        ids_with_a_slash_pass(&front, &instance).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_nginx_can_set_the_header_with_the_user() -> Result<()> {
    let trust = |config: &mut dueq_serve::Config| {
        let (networks, roles) = (
            ["127.0.0.1/32".to_owned()],
            [("sre".to_owned(), Role::Operator)],
        );
        let groups = Some("x-forwarded-groups");
        let proxy = TrustedProxy::new(&networks, "x-forwarded-user", groups, &roles);
        config.proxy = proxy.ok();
    };
    let Some((instance, front)) = Front::of_users(trust).await? else {
        return Ok(());
    };
    instance.queue("orders").await?;
    let forged = [
        "-H",
        "X-Forwarded-User: root",
        "-H",
        "X-Forwarded-Groups: sre",
    ];
    let ann = ["-u", "ann:secret"];
    let pause = ["-X", "PUT"];
    let ask = async |arguments: &[&str]| front.curl("/v1/queues/orders/pause", arguments).await;
    assert_eq!(ask(&[&pause[..], &forged].concat()).await?.status, 401);
    let answer = ask(&[&pause[..], &ann, &forged].concat()).await?;
    assert_eq!(answer.status, 200, "{answer:?}");
    let lines = instance.audit()?;
    let named = lines.iter().filter_map(|line| line["principal"].as_str());
    assert_eq!(named.collect::<Vec<_>>(), ["ann"]);
    Ok(())
}
