//! The stop of the server: it loses no request.

use anyhow::Result;
use tokio::io::AsyncWriteExt;

use crate::assert_refused;
use crate::captured::Captured;
use crate::instance::{Answer, Instance, to_end};

#[tokio::test(flavor = "multi_thread")]
async fn stop_finishes_running_requests_and_refuses_new_ones() -> Result<()> {
    let mut instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    let mut stream = instance.connect().await?;
    let head = format!(
        "PUT /v1/queues/orders/pause HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Expect: 100-continue\r\nContent-Length: 2\r\n\r\n",
        instance.address
    );
    stream.write_all(head.as_bytes()).await?;
    // The server asks for the body, so the request runs.
    let expected = b"HTTP/1.1 100 Continue\r\n\r\n";
    let mut interim = vec![0; expected.len()];
    tokio::io::AsyncReadExt::read_exact(&mut stream, &mut interim).await?;
    assert_eq!(interim, expected);
    assert_eq!(instance.call("GET /readyz").await?.status, 200);
    instance.stop.cancel();
    loop {
        let ready = instance.call("GET /readyz").await?;
        if ready.status == 503 {
            assert_refused!(ready, 503, "stopping");
            break;
        }
        assert_eq!(ready.status, 200, "{ready:?}");
    }
    assert_refused!(instance.call("GET /v1/queues").await?, 503, "stopping");
    stream.write_all(b"{}").await?;
    let answer = Answer::parse(&to_end(&mut stream).await?)?;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(queue.stats().await?.paused);
    instance.stopped().await?;
    assert!(instance.connect().await.is_err(), "nobody listens any more");
    Ok(())
}

#[tokio::test]
async fn idle_connections_do_not_delay_the_stop() -> Result<()> {
    let log = Captured::start();
    let mut instance = Instance::open().await?;
    let mut idle = instance.connect().await?;
    let request = format!(
        "GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n",
        instance.address
    );
    idle.write_all(request.as_bytes()).await?;
    let mut first = [0];
    tokio::io::AsyncReadExt::read_exact(&mut idle, &mut first).await?;
    instance.stop.cancel();
    instance.stopped().await?;
    assert!(!log.text().contains("dueq_serve.cut_off"));
    Ok(())
}
