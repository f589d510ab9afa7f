//! Consumes queues over HTTP: claims by long polls, repeats a claim at the other server when its
//! answer is lost, handles messages, and settles them by their handles.

mod calls;
mod claims;
mod settling;

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use tokio::task::JoinSet;

use super::{Options, Stop};
use crate::broken::Program;
use crate::history::Http;
use crate::queues::http_queues;
use crate::recorder::Diary;

/// A server of HTTP, on this machine.
#[derive(Debug, Clone)]
pub struct Server {
    name: String,
    port: u16,
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, port) = text.split_once('=').ok_or("write NAME=PORT")?;
        let port = port.parse().map_err(|error| format!("{port}: {error}"))?;
        let name = name.to_owned();
        Ok(Self { name, port })
    }
}

/// The number of concurrent claims of one queue.
const LOOPS: u64 = 2;

pub(super) async fn run(options: &Options, diary: &Diary, stop: Stop) -> Result<()> {
    let own = Arc::new(Own {
        diary: diary.clone(),
        servers: options.servers.clone(),
        name: options.name.clone(),
        broken: options.broken,
        numbers: AtomicU64::new(1),
    });
    let mut loops = JoinSet::new();
    for queue in http_queues(options.queues) {
        for _ in 0..LOOPS {
            let (own, stop) = (Arc::clone(&own), stop.clone());
            loops.spawn(claims::run(own, queue.name, stop));
        }
    }
    while let Some(ended) = loops.join_next().await {
        ended??;
    }
    Ok(())
}

/// State shared by all loops.
struct Own {
    diary: Diary,
    servers: Vec<Server>,
    /// The name of this process.
    name: String,
    broken: Option<Program>,
    numbers: AtomicU64,
}

impl Own {
    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// The number of this process within its place: 3 for `k1.3`.
    fn life(&self) -> u64 {
        let life = self.name.split('.').nth(1);
        life.and_then(|life| life.parse().ok()).unwrap_or(1)
    }

    fn write(&self, event: Http) {
        self.diary.write(&crate::history::Event::Http(event));
    }

    /// The servers in rotation, beginning with a random one.
    fn turn(&self) -> impl Iterator<Item = &Server> {
        let first = fastrand::usize(0..self.servers.len().max(1));
        self.servers.iter().cycle().skip(first)
    }
}
