//! The state that routes share, and work beside the requests: the poller, claims, operations,
//! streams of events, examinations, searches.

pub(crate) mod claims;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod metrics;
pub(crate) mod operations;
pub(crate) mod poll;
pub(crate) mod search;

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::extract::FromRef;
use dueq::{Client, Queue};

use crate::edge::auth::Hosts;
use crate::edge::body::Bodies;
use crate::edge::config::Config;
use crate::edge::path::QueueName;
use crate::edge::problem::{Code, Problem};
use crate::edge::shown::quoted;
use crate::edge::{Edge, Error};
use crate::work::claims::Claims;
use crate::work::doctor::{Doctor, RedisProbe};
use crate::work::events::Streams;
use crate::work::operations::Operations;
use crate::work::poll::Poller;
use crate::work::search::Searches;

/// The state of the router, which all handlers share.
pub(crate) type Shared = Arc<App>;

pub(crate) struct App {
    pub(crate) edge: Arc<Edge>,
    pub(crate) client: Client,
    pub(crate) claims: Claims,
    pub(crate) doctor: Doctor,
    pub(crate) operations: Operations,
    pub(crate) poller: Poller,
    pub(crate) redis: RedisProbe,
    pub(crate) searches: Searches,
    pub(crate) streams: Streams,
    /// The text of the OpenAPI document.
    pub(crate) document: OnceLock<String>,
    pub(crate) started: Instant,
}

impl App {
    pub(crate) fn new(client: Client, config: &Config, hosts: Hosts) -> Result<Self, Error> {
        let edge = Arc::new(Edge::open(config, hosts)?);
        let poller = Poller::new(client.clone(), edge.served());
        Ok(Self {
            claims: Claims::new(client.clone()),
            doctor: Doctor::new(client.clone()),
            operations: Operations::new(Arc::clone(&edge)),
            redis: RedisProbe::default(),
            searches: Searches::default(),
            streams: Streams::new(Arc::clone(&edge), poller.clone()),
            poller,
            client,
            edge,
            document: OnceLock::new(),
            started: Instant::now(),
        })
    }

    /// The queue with this name; a problem if it does not exist.
    pub(crate) async fn existing(&self, name: &QueueName) -> Result<Queue, Problem> {
        let queue = self.client.queue(name.as_str())?;
        if queue.exists().await? {
            return Ok(queue);
        }
        let detail = format!(
            "there is no queue {}: its first push creates it",
            quoted(name.as_str())
        );
        Err(Problem::new(Code::NoSuchQueue, detail))
    }
}

impl FromRef<Shared> for Bodies {
    fn from_ref(app: &Shared) -> Self {
        app.edge.bodies.clone()
    }
}
