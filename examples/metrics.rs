//! A worker that serves its metrics to Prometheus.
//!
//! `scripts/with-server cargo run --example metrics -- --listen 127.0.0.1:9090`, then `curl
//! http://127.0.0.1:9090/metrics`. Without `--listen` it handles a hundred messages, prints its
//! metrics, and removes its queue.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use dueq::{Client, Delivery, Histogram, Queue, Retry};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

#[derive(Parser)]
struct Options {
    /// Serve the metrics at this address until Ctrl-C
    #[arg(long)]
    listen: Option<SocketAddr>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let queue = Client::connect(&url).await?.queue("metrics")?;

    for number in 0..100 {
        let push = queue.push("").id(format!("order:{number}"));
        push.delay(Duration::from_millis(10 * number)).await?;
    }
    let (done, mut left) = mpsc::unbounded_channel();
    let handler = move |delivery: Delivery| {
        let done = done.clone();
        async move {
            // Every tenth message fails once.
            if delivery.id().ends_with('7') && delivery.attempt() == 1 {
                anyhow::bail!("not today");
            }
            let _ = done.send(());
            Ok(())
        }
    };
    let retry = Retry::fixed(Duration::from_millis(50));
    let worker = queue.worker().retry(retry).spawn(handler);
    if let Some(address) = options.listen {
        let serving = tokio::spawn(serve(TcpListener::bind(address).await?, queue.clone()));
        tokio::signal::ctrl_c().await?;
        serving.abort();
        worker.shutdown().await?;
    } else {
        for _ in 0..100 {
            left.recv().await;
        }
        worker.shutdown().await?;
        print!("{}", page(&queue));
        queue.delete().await?;
    }
    Ok(())
}

/// Answers every request with the metrics.
async fn serve(listener: TcpListener, queue: Queue) -> Result<()> {
    loop {
        let (mut client, _) = listener.accept().await?;
        let page = page(&queue);
        tokio::spawn(async move {
            // Every request gets the same response.
            let _ = client.read(&mut [0; 4096]).await;
            let kind = "Content-Type: text/plain; version=0.0.4\r\nConnection: close";
            let answer = format!(
                "HTTP/1.1 200 OK\r\n{kind}\r\nContent-Length: {}\r\n\r\n{page}",
                page.len()
            );
            let _ = client.write_all(answer.as_bytes()).await;
        });
    }
}

/// The metrics in Prometheus's text format, version 0.0.4. A queue's name may contain quotes and
/// backslashes.
fn page(queue: &Queue) -> String {
    let (metrics, mut page) = (queue.metrics(), String::new());
    let name = queue.name().replace('\\', "\\\\").replace('"', "\\\"");
    for (count, value) in metrics.counts() {
        let (metric, help) = (format!("dueq_{}_total", count.name()), count.help());
        let _ = write!(
            page,
            "# HELP {metric} {help}\n# TYPE {metric} counter\n{metric}{{queue=\"{name}\"}} {value}\n"
        );
    }
    let _ = writeln!(
        page,
        "# HELP dueq_handlers_running Handlers that are running now.\n# TYPE dueq_handlers_running gauge"
    );
    let _ = writeln!(
        page,
        "dueq_handlers_running{{queue=\"{name}\"}} {}",
        metrics.handlers_running
    );
    histogram(
        &mut page,
        "dueq_lateness_seconds",
        "From due to the handler's start.",
        &name,
        &metrics.lateness,
    );
    histogram(
        &mut page,
        "dueq_handling_seconds",
        "How long handlers ran.",
        &name,
        &metrics.handling,
    );
    page
}

fn histogram(page: &mut String, metric: &str, help: &str, name: &str, histogram: &Histogram) {
    let _ = writeln!(page, "# HELP {metric} {help}\n# TYPE {metric} histogram");
    for bucket in histogram.buckets() {
        let le = bucket.le_us as f64 / 1e6;
        let _ = writeln!(
            page,
            "{metric}_bucket{{queue=\"{name}\",le=\"{le}\"}} {}",
            bucket.count
        );
    }
    let (count, sum) = (histogram.count(), histogram.sum_us() as f64 / 1e6);
    let _ = writeln!(
        page,
        "{metric}_bucket{{queue=\"{name}\",le=\"+Inf\"}} {count}"
    );
    let _ = writeln!(
        page,
        "{metric}_sum{{queue=\"{name}\"}} {sum}\n{metric}_count{{queue=\"{name}\"}} {count}"
    );
}
