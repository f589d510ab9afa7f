//! Request heads that hide a second request, or that never end.

use std::net::SocketAddr;

use anyhow::Result;
use tokio::io::AsyncWriteExt;

use crate::assert_refused;
use crate::instance::{Answer, Instance, to_end};

/// The number of responses that the server sent.
fn responses(text: &str) -> usize {
    text.matches("HTTP/1.1 ").count()
}

/// A request that pauses the queue, with these header lines; its body hides another request.
fn pausing(own: SocketAddr, lines: &str) -> String {
    let pause = format!("PUT /v1/queues/orders/pause HTTP/1.1\r\nHost: {own}\r\n");
    format!("{pause}{lines}\r\n\r\n0\r\n\r\n{pause}\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn request_with_length_and_chunks_is_refused() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, own) = (instance.queue("orders").await?, instance.address);
    let chunked = "Transfer-Encoding: chunked";
    for (one, other) in [
        ("Content-Length: 5", chunked),
        (chunked, "Content-Length: 5"),
    ] {
        let request = pausing(own, &format!("{one}\r\n{other}"));
        let text = instance.raw_text(request.as_bytes()).await?;
        assert_eq!(responses(&text), 1, "{text}");
        let answer = Answer::parse(&text)?;
        assert_refused!(&answer, 400, "bad_request", "{one}");
        assert_eq!(answer.header("connection"), Some("close"));
    }
    assert!(!queue.stats().await?.paused);
    assert!(instance.audit()?.is_empty());
    let metrics = instance.call("GET /metrics").await?.body;
    let counted = "dueq_serve_problems_total{code=\"bad_request\"} 2";
    assert!(metrics.contains(counted), "{metrics}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_request_heads_are_refused() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, own) = (instance.queue("orders").await?, instance.address);
    for lines in [
        "Content-Length: 0\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5, 5",
        "Content-Length: -1",
        "Content-Length: +5",
        "Content-Length: 0x5",
        "Content-Length: 99999999999999999999999",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding : chunked",
        "X: y\r\n folded",
        "X\u{0}: y",
        "X: a\u{0}b",
        "X: a\nY: b",
        "X: a\rY: b",
    ] {
        let request = pausing(own, lines);
        let text = instance.raw_text(request.as_bytes()).await?;
        assert_eq!(responses(&text), 1, "{lines:?}: {text}");
        assert_refused!(Answer::parse(&text)?, 400, "bad_request", "{lines:?}");
    }
    assert!(!queue.stats().await?.paused);
    assert!(instance.audit()?.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn request_target_other_than_a_path_is_refused() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, own) = (instance.queue("orders").await?, instance.address);
    for (line, status) in [
        ("CONNECT /v1/queues/orders/pause".to_owned(), 405),
        (format!("CONNECT {own}"), 404),
        ("CONNECT evil.example.com:443".to_owned(), 400),
        ("OPTIONS *".to_owned(), 404),
        ("PUT *".to_owned(), 404),
        ("PUT v1/queues/orders/pause".to_owned(), 400),
        ("PUT evil.example.com".to_owned(), 400),
        (
            "PUT http://evil.example.com/v1/queues/orders/pause".to_owned(),
            400,
        ),
        (format!("PUT http://a@{own}/v1/queues/orders/pause"), 400),
        ("PUT /v1/queues/orders/pause HTTP/1.1 x".to_owned(), 400),
        ("PUT /v1/queues/orders/pause\t".to_owned(), 400),
    ] {
        let answer = instance.call(&line).await?;
        assert_eq!(answer.status, status, "{line}: {answer:?}");
        answer.code()?;
    }
    assert!(!queue.stats().await?.paused);
    let same = format!("PUT http://{own}/v1/queues/orders/pause");
    assert_eq!(instance.call(&same).await?.status, 200);
    assert!(queue.stats().await?.paused);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn non_http_bytes_get_an_answer_at_once() -> Result<()> {
    let instance = Instance::open().await?;
    // These bytes contain no empty line: a server that waits for one answers after 10 s, or never.
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"\0\0\0",
        b"GET\x1b[2J",
    ] {
        let mut stream = instance.connect().await?;
        stream.write_all(bytes).await?;
        let text = to_end(&mut stream).await?;
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert_refused!(Answer::parse(&text)?, 400, "bad_request", "{bytes:?}");
    }
    let http2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    assert_refused!(instance.raw(http2.as_bytes()).await?, 400, "bad_request");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn oversize_head_is_refused() -> Result<()> {
    let instance = Instance::open().await?;
    let own = instance.address;
    let value = "x".repeat(17 << 10);
    let many = "X: y\r\n".repeat(200);
    for request in [
        format!("GET /v1/queues HTTP/1.1\r\nHost: {own}\r\nX: {value}\r\n\r\n"),
        format!("GET /{value} HTTP/1.1\r\nHost: {own}\r\n\r\n"),
        format!("GET /v1/queues HTTP/1.1\r\nHost: {own}\r\n{many}\r\n"),
        // A head without an end.
        format!("GET /v1/queues HTTP/1.1\r\nHost: {own}\r\nX: {value}"),
    ] {
        assert_refused!(
            instance.raw(request.as_bytes()).await?,
            431,
            "head_too_large"
        );
    }
    let fits = "x".repeat(14 << 10);
    let header = format!("X: {fits}");
    assert_eq!(
        instance.ask("GET /v1/queues", &[&header], "").await?.status,
        200
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_follows_the_responses_to_earlier_requests() -> Result<()> {
    let instance = Instance::open().await?;
    let own = instance.address;
    let good = format!("GET /v1/queues HTTP/1.1\r\nHost: {own}\r\n\r\n");
    let put = format!(
        "PUT /v1/queues/orders/messages/1 HTTP/1.1\r\nHost: {own}\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{{\"payload\": \"\"}}"
    );
    let bad = pausing(own, "Content-Length: 5\r\nTransfer-Encoding: chunked");
    let all = format!("{good}{put}{good}{bad}{good}");
    // Sent at once, and in parts whose ends fall anywhere in heads and bodies.
    for size in [all.len(), 7] {
        let mut stream = instance.connect().await?;
        for part in all.as_bytes().chunks(size) {
            let _ = stream.write_all(part).await; // the server may have closed it already
            tokio::task::yield_now().await;
        }
        let text = to_end(&mut stream).await?;
        let statuses: Vec<_> = text
            .split("HTTP/1.1 ")
            .skip(1)
            .map(|text| &text[..3])
            .collect();
        let pushed = if size == 7 { "200" } else { "201" };
        assert_eq!(statuses, ["200", pushed, "200", "400"], "{text}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn request_with_chunks_is_the_last_of_its_connection() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, own) = (instance.queue("orders").await?, instance.address);
    let chunked = |chunks: &str| {
        format!(
            "PUT /v1/queues/orders/pause HTTP/1.1\r\nHost: {own}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"
        )
    };
    let text = instance
        .raw_text(chunked("0\r\n\r\n").repeat(2).as_bytes())
        .await?;
    assert_eq!(responses(&text), 1, "{text}");
    assert_eq!(Answer::parse(&text)?.status, 200);
    queue.resume().await?;
    // Requests with malformed chunks.
    for chunks in [
        "-1\r\n\r\n",
        "0x2\r\n{}\r\n0\r\n\r\n",
        "2\r\n{}0\r\n\r\n",
        "2\n{}\n0\n\n",
        "fffffffffffffffff\r\n",
        "\r\n",
    ] {
        let text = instance.raw_text(chunked(chunks).as_bytes()).await?;
        if !text.is_empty() {
            assert_refused!(Answer::parse(&text)?, 400, "bad_request", "{chunks:?}");
        }
        assert!(responses(&text) <= 1, "{text}");
    }
    assert!(!queue.stats().await?.paused);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_with_a_slow_request_head_is_closed() -> Result<()> {
    let instance = Instance::open().await?;
    let silent = async {
        let mut stream = instance.connect().await?;
        to_end(&mut stream).await
    };
    let slow = async {
        let mut stream = instance.connect().await?;
        // One byte a second does not restart the time limit.
        let mut second = tokio::time::interval(std::time::Duration::from_secs(1));
        for byte in format!("GET /v1/queues HTTP/1.1\r\nHost: {}\r\n", instance.address).bytes() {
            second.tick().await;
            if stream.write_all(&[byte]).await.is_err() {
                return Ok(String::new());
            }
        }
        anyhow::bail!("the connection took the whole head")
    };
    let (silent, slow) = tokio::join!(silent, slow);
    assert_eq!((silent?, slow?), (String::new(), String::new()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_serves_many_requests_in_turn() -> Result<()> {
    let instance = Instance::open().await?;
    let own = instance.address;
    let request = format!("GET /v1/queues HTTP/1.1\r\nHost: {own}\r\n\r\n");
    let last = format!("GET /v1/queues HTTP/1.1\r\nHost: {own}\r\nConnection: close\r\n\r\n");
    let text = instance
        .raw_text(format!("{request}{request}{last}").as_bytes())
        .await?;
    assert_eq!(responses(&text), 3, "{text}");
    Ok(())
}
