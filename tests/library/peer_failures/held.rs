//! A TCP proxy that delays one reply until it is stale.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::support::within;

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
