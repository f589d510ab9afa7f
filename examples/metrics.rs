//! A worker that serves its metrics to Prometheus, and the counts of the queue's schedules.
//!
//! `scripts/with-server cargo run --example metrics -- --listen 127.0.0.1:9090`, then `curl
//! http://127.0.0.1:9090/metrics`. Without `--listen` it handles a hundred messages and the ticks of
//! some schedules, prints its metrics, and removes its queue.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use dueq::metrics::PrometheusText;
use dueq::schedules::{Schedule, ScheduleInfo};
use dueq::{Client, Delivery, Queue, Retry};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc};

#[derive(Parser)]
struct Options {
    /// Serve the metrics at this address until Ctrl-C
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// How many schedules have a label of their own; the others share one
    #[arg(long, value_name = "N", default_value_t = 100)]
    schedules: usize,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let queue = Client::connect(&url).await?.queue("metrics")?;

    let set = ["a", "b", "c"].map(|name| {
        let tick = Schedule::every(Duration::from_millis(50)).name(name);
        tick.limit(2)
    });
    queue.schedules("example").apply(set).await?;
    for number in 0..100 {
        let push = queue.push("").id(format!("order:{number}"));
        push.delay(Duration::from_millis(10 * number)).await?;
    }
    let (done, mut left) = mpsc::unbounded_channel();
    let handler = move |delivery: Delivery| {
        let done = done.clone();
        async move {
            // Every tenth message fails once.
            let is_tick = delivery.tick().is_some();
            if !is_tick && delivery.id().ends_with('7') && delivery.attempt() == 1 {
                anyhow::bail!("not today");
            }
            let _ = done.send(());
            Ok(())
        }
    };
    let retry = Retry::fixed(Duration::from_millis(50));
    let worker = queue.worker().retry(retry).spawn(handler)?;
    let mut labels = Labels::new(options.schedules);
    if let Some(address) = options.listen {
        let listener = TcpListener::bind(address).await?;
        let serving = tokio::spawn(serve(listener, queue.clone(), labels));
        tokio::signal::ctrl_c().await?;
        serving.abort();
        worker.shutdown().await?;
    } else {
        for _ in 0..106 {
            left.recv().await;
        }
        worker.shutdown().await?;
        print!("{}", page(&queue, &mut labels).await);
        queue.delete().await?;
    }
    Ok(())
}

/// Answers every request with the metrics.
async fn serve(listener: TcpListener, queue: Queue, labels: Labels) -> Result<()> {
    let labels = Arc::new(Mutex::new(labels));
    loop {
        let (mut client, _) = listener.accept().await?;
        let (queue, labels) = (queue.clone(), Arc::clone(&labels));
        tokio::spawn(async move {
            // Every request gets the same response.
            let _ = client.read(&mut [0; 4096]).await;
            let page = page(&queue, &mut *labels.lock().await).await;
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{page}",
                PrometheusText::MEDIA_TYPE,
                page.len()
            );
            let _ = client.write_all(answer.as_bytes()).await;
        });
    }
}

/// The metrics in Prometheus' text format.
async fn page(queue: &Queue, labels: &mut Labels) -> String {
    let mut page = PrometheusText::default();
    page.queues([(queue.name(), queue.metrics())]);
    // Without the server the page still has what this process counts.
    match all_schedules(queue).await {
        Ok(all) => schedules(&mut page, queue.name(), labels, &all),
        Err(error) => eprintln!("cannot read the schedules: {error}"),
    }
    page.into_string()
}

/// Which schedules have a label of their own: the first ones that were seen, up to a limit. Each
/// label costs Prometheus five series, and a queue may have 10,000 schedules.
struct Labels {
    most: usize,
    own: BTreeSet<String>,
}

impl Labels {
    /// Of all other schedules. It is the name of none.
    const REST: &str = "(rest)";

    fn new(most: usize) -> Self {
        Self {
            most,
            own: BTreeSet::new(),
        }
    }

    /// A schedule keeps its label while it exists: otherwise its counts would move between labels.
    fn keep(&mut self, all: &[ScheduleInfo]) {
        let names: BTreeSet<_> = all.iter().map(|info| &*info.name).collect();
        self.own.retain(|name| names.contains(&**name));
        for name in names {
            if self.own.len() < self.most {
                self.own.insert(name.to_owned());
            }
        }
    }

    fn of<'a>(&self, info: &'a ScheduleInfo) -> &'a str {
        match self.own.contains(&info.name) {
            true => &info.name,
            false => Self::REST,
        }
    }
}

async fn all_schedules(queue: &Queue) -> Result<Vec<ScheduleInfo>, dueq::Error> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let page = queue.list_schedules(cursor.as_ref(), 1_000).await?;
        all.extend(page.schedules);
        cursor = page.next;
        if cursor.is_none() {
            return Ok(all);
        }
    }
}

/// The fires of each schedule by what became of them, and its ticks by hand. A change of a schedule
/// begins its counts again, which Prometheus takes as a restart.
fn schedules(page: &mut PrometheusText, queue: &str, labels: &mut Labels, all: &[ScheduleInfo]) {
    labels.keep(all);
    let (mut fires, mut triggered) = (BTreeMap::new(), BTreeMap::new());
    for info in all {
        let label = labels.of(info);
        for (became, count) in [
            ("made", info.made),
            ("missed", info.missed),
            ("overlapped", info.overlapped),
            ("paused", info.paused),
        ] {
            *fires.entry((label, became)).or_insert(0) += count;
        }
        *triggered.entry(label).or_insert(0) += info.triggered;
    }
    let name = "dueq_schedule_fires_total";
    page.metric(name, "counter", "Fires, by what became of them.");
    for ((schedule, became), count) in fires {
        let labels = [("queue", queue), ("schedule", schedule), ("became", became)];
        page.sample(name, &labels, count as f64);
    }
    let name = "dueq_schedule_triggered_total";
    page.metric(name, "counter", "Ticks made by hand.");
    for (schedule, count) in triggered {
        let labels = [("queue", queue), ("schedule", schedule)];
        page.sample(name, &labels, count as f64);
    }
}
