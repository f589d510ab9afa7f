//! The edge of the server: connections, identity and rights of callers, bodies, problems, the audit
//! log. It knows no route.

pub(crate) mod accept;
pub(crate) mod audit;
pub(crate) mod auth;
pub(crate) mod body;
pub(crate) mod config;
mod error;
pub(crate) mod everywhere;
mod meters;
pub(crate) mod path;
pub(crate) mod problem;
pub(crate) mod shown;
pub(crate) mod tls;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use error::Error;
pub(crate) use meters::{Gauge, Meters, One};

use crate::edge::audit::Audit;
use crate::edge::auth::{FailedLogins, Gate, Hosts, NamePattern, RateLimit, signing_key};
use crate::edge::body::Bodies;
use crate::edge::config::Config;

/// The state that every request uses, on any route.
pub(crate) struct Edge {
    pub(crate) hosts: Hosts,
    pub(crate) gate: Gate,
    pub(crate) rate_limit: RateLimit,
    pub(crate) failed_logins: FailedLogins,
    pub(crate) audit: Audit,
    /// The running actions of operators. An action goes on when its caller disconnects.
    pub(crate) actions: TaskTracker,
    pub(crate) bodies: Bodies,
    pub(crate) life: Life,
    pub(crate) is_read_only: bool,
    pub(crate) meters: Meters,
    queues: Vec<NamePattern>,
}

impl Edge {
    pub(crate) fn open(config: &Config, hosts: Hosts) -> Result<Self, Error> {
        let key = config.signing_key.as_deref().map(read_key).transpose()?;
        Ok(Self {
            hosts,
            gate: Gate::open(config.access.clone(), config.proxy.clone(), key)?,
            rate_limit: RateLimit::new(config.rate_limit),
            failed_logins: FailedLogins::new(config.rate_limit),
            audit: Audit::open(config.audit_log.as_deref())?,
            actions: TaskTracker::new(),
            bodies: Bodies::new(config.max_body_bytes),
            life: Life::default(),
            is_read_only: config.is_read_only,
            meters: Meters::default(),
            queues: config.queues.clone(),
        })
    }

    /// The patterns of the queues that the server serves; empty for all.
    pub(crate) fn served(&self) -> &[NamePattern] {
        &self.queues
    }

    /// Whether the server serves a queue of this name.
    pub(crate) fn serves(&self, queue: &str) -> bool {
        self.queues.is_empty() || self.queues.iter().any(|pattern| pattern.matches(queue))
    }
}

fn read_key(path: &Path) -> Result<[u8; 32], Error> {
    let text = fs::read_to_string(path)
        .map_err(|error| Error::io(format!("cannot read {}", path.display()), error))?;
    signing_key(&text).map_err(|error| Error::Config(format!("{}: {error}", path.display())))
}

/// The phases of a server: it runs; then it only finishes requests; then it ends.
#[derive(Debug, Default)]
pub(crate) struct Life {
    is_stopping: AtomicBool,
    stopping: CancellationToken,
}

impl Life {
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Makes the server answer "not ready", and then ends everything that waits for the stop.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.stopping.cancel();
    }

    /// Cancelled at the stop: a long poll then ends without a result.
    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }
}
