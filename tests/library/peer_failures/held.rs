//! A TCP proxy that holds one reply back until it is out of date.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use dueq::metrics::Counter;
use dueq::{Client, Message};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::support::{HOUR, LONG, acking, setup, stats_until, until, within};

/// State of the proxy for replies of the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    /// Replies pass.
    Open,
    /// The next reply will be held back.
    Closing,
    /// One reply is held back.
    Closed,
}

struct Rules {
    sha: Vec<u8>,
    gate: watch::Sender<Gate>,
    /// Number of forwarded reads that contained notices.
    notices: watch::Sender<u64>,
}

pub(crate) struct Holding {
    address: SocketAddr,
    rules: Arc<Rules>,
    task: JoinHandle<()>,
}

impl Holding {
    /// Forwards from its own port to `port`, and can hold back replies of this script.
    pub(crate) async fn start(port: u16, script: &str) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let sha = redis::Script::new(script).get_hash().as_bytes().to_vec();
        let rules = Arc::new(Rules {
            sha,
            gate: watch::Sender::new(Gate::Open),
            notices: watch::Sender::new(0),
        });
        let task = tokio::spawn(accept(listener, port, Arc::clone(&rules)));
        Ok(Self {
            address,
            rules,
            task,
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// Holds back the next reply of the script. Returns when the server has sent it.
    pub(crate) async fn hold(&self) -> Result<()> {
        self.rules.gate.send_replace(Gate::Closing);
        within(
            "a held reply",
            self.rules
                .gate
                .subscribe()
                .wait_for(|gate| *gate == Gate::Closed),
        )
        .await??;
        Ok(())
    }

    /// Forwards the held reply.
    pub(crate) fn let_go(&self) {
        self.rules.gate.send_replace(Gate::Open);
    }

    /// Number of notices forwarded so far.
    pub(crate) fn notices(&self) -> u64 {
        *self.rules.notices.borrow()
    }

    /// Returns when the proxy has forwarded more notices than this.
    pub(crate) async fn more_notices_than(&self, count: u64) -> Result<()> {
        within(
            "a notice",
            self.rules
                .notices
                .subscribe()
                .wait_for(|seen| *seen > count),
        )
        .await??;
        Ok(())
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, port: u16, rules: Arc<Rules>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let rules = Arc::clone(&rules);
        connections.spawn(async move {
            if let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await {
                // Each side only sees a closed connection, so ignore the error.
                let _ = carry(client, server, &rules).await;
            }
        });
    }
}

async fn carry(mut client: TcpStream, mut server: TcpStream, rules: &Rules) -> Result<()> {
    let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        let (request, length) = tokio::select! {
            read = client.read(&mut up) => (true, read?),
            read = server.read(&mut down) => (false, read?),
        };
        if length == 0 {
            return Ok(());
        }
        if request {
            server.write_all(&up[..length]).await?;
            if contains(&up[..length], &rules.sha) && *rules.gate.borrow() == Gate::Closing {
                let length = server.read(&mut down).await?;
                rules.gate.send_replace(Gate::Closed);
                rules
                    .gate
                    .subscribe()
                    .wait_for(|gate| *gate == Gate::Open)
                    .await?;
                client.write_all(&down[..length]).await?;
            }
        } else {
            client.write_all(&down[..length]).await?;
            if contains(&down[..length], b"smessage") {
                rules.notices.send_modify(|count| *count += 1);
            }
        }
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

const CLAIM: &str = include_str!("../../../lua/dist/claim.lua");

/// A claim's reply is in flight while the store is emptied and a new queue is created. The late
/// reply has the old incarnation, which must not count as a second change of the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_reply_of_the_old_queue_reports_no_new_change() -> Result<()> {
    let setup = setup().await?;
    setup.queue.push("").id("far").due(HOUR).await?;
    // The server now has the script; otherwise the held reply could be a NOSCRIPT error.
    assert!(setup.queue.claim(1, LONG).await?.is_empty());
    let proxy = Holding::start(setup.server.port(), CLAIM).await?;
    let queue = Client::connect(&proxy.url()).await?.queue("orders")?;
    let (worker, mut seen) = acking(queue.worker());
    stats_until(&setup.queue, "a live worker", |stats| stats.nodes == 1).await?;
    let (held, pushed) = tokio::join!(
        proxy.hold(),
        setup.queue.push_message(Message::new("").id("old"))
    );
    held?;
    pushed?;
    setup.command::<()>(&["FLUSHALL"]).await?;
    setup.queue.push("").id("new").due(HOUR).await?;
    let emptied = || queue.metrics().count(Counter::StoreEmptied);
    until(
        "an event that reports the emptied store",
        async || Ok(emptied()),
        |count| *count == 1,
    )
    .await?;
    proxy.let_go();
    setup
        .queue
        .push("")
        .id("last")
        .due(Duration::from_millis(50))
        .await?;
    while seen.next().await? != "last" {}
    // The node beats in the new queue after the late reply.
    let beats = async || {
        setup
            .command::<u64>(&["HGET", "dueq:{orders}:meta", "last_beat"])
            .await
    };
    for _ in 0..2 {
        let before = beats().await?;
        until("another beat", beats, |seen| *seen != before).await?;
    }
    assert_eq!(emptied(), 1);
    worker.stop().await
}
