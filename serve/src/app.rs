//! What all handlers share.

use std::fs;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use dueq::Client;
use tokio_util::task::TaskTracker;

use crate::audit::Audit;
use crate::auth::{FailedLogins, Gate, Hosts, QueuePattern, RateLimit, signing_key};
use crate::body::Bodies;
use crate::claims::Claims;
use crate::config::Config;
use crate::dashboard::Overview;
use crate::dashboard::Undo;
use crate::events::Streams;
use crate::metrics::Meters;
use crate::operations::Operations;
use crate::poll::Poller;
use crate::routes::{Doctor, RedisProbe, Searches};
use crate::server::Error;
use crate::server::Life;

/// What all handlers share: the state of the router.
pub(crate) type Shared = Arc<App>;

pub(crate) struct App {
    pub(crate) client: Client,
    pub(crate) hosts: Hosts,
    pub(crate) gate: Gate,
    pub(crate) rate_limit: RateLimit,
    pub(crate) failed_logins: FailedLogins,
    pub(crate) audit: Audit,
    /// The actions of operators: they go on when their caller disconnects.
    pub(crate) actions: TaskTracker,
    pub(crate) bodies: Bodies,
    pub(crate) life: Life,
    pub(crate) is_read_only: bool,
    /// The OpenAPI document.
    pub(crate) document: OnceLock<String>,
    pub(crate) meters: Meters,
    pub(crate) streams: Streams,
    pub(crate) doctor: Doctor,
    pub(crate) searches: Searches,
    pub(crate) claims: Claims,
    pub(crate) poller: Poller,
    pub(crate) overview: Overview,
    pub(crate) operations: Operations,
    pub(crate) redis: RedisProbe,
    pub(crate) undo: Undo,
    pub(crate) started: Instant,
    queues: Vec<QueuePattern>,
}

impl App {
    pub(crate) fn new(client: Client, config: &Config, hosts: Hosts) -> Result<Self, Error> {
        let key = config.signing_key.as_deref().map(read_key).transpose()?;
        Ok(Self {
            poller: Poller::new(client.clone(), &config.queues),
            overview: Overview::new(client.clone()),
            claims: Claims::new(client.clone()),
            client,
            hosts,
            gate: Gate::open(config.access.clone(), config.proxy.clone(), key)?,
            rate_limit: RateLimit::new(config.rate_limit),
            failed_logins: FailedLogins::new(config.rate_limit),
            actions: TaskTracker::new(),
            audit: Audit::open(config.audit_log.as_deref())?,
            bodies: Bodies::new(config.max_body_bytes),
            life: Life::default(),
            is_read_only: config.is_read_only,
            document: OnceLock::new(),
            meters: Meters::default(),
            streams: Streams::default(),
            doctor: Doctor::default(),
            searches: Searches::default(),
            operations: Operations::default(),
            redis: RedisProbe::default(),
            undo: Undo::default(),
            started: Instant::now(),
            queues: config.queues.clone(),
        })
    }

    /// The patterns of the served queues; none for all.
    pub(crate) fn served(&self) -> &[QueuePattern] {
        &self.queues
    }

    /// Whether the server serves this queue.
    pub(crate) fn serves(&self, queue: &str) -> bool {
        self.queues.is_empty() || self.queues.iter().any(|pattern| pattern.matches(queue))
    }
}

fn read_key(path: &Path) -> Result<[u8; 32], Error> {
    let text = fs::read_to_string(path)
        .map_err(|error| Error::io(format!("cannot read {}", path.display()), error))?;
    signing_key(&text).map_err(|error| Error::Config(format!("{}: {error}", path.display())))
}
