//! Wrong tokens: logged, and limited per peer.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::ConnectInfo;
use axum::http::request::Parts;

use crate::auth::RateLimit;
use crate::problem::{Code, Problem};

/// How many wrong tokens an address may send a second, without `--rate-limit`.
const PER_SECOND: u32 = 100;
/// The log has one line in this time.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// The failed logins of all peers. A right token is never limited by them: many callers can share
/// the address of a proxy.
pub(crate) struct FailedLogins {
    limit: RateLimit,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    at: Option<Instant>,
    /// How many failed since the last line.
    failed: u64,
}

impl FailedLogins {
    pub(crate) fn new(per_second: Option<u32>) -> Self {
        Self {
            limit: RateLimit::new(Some(per_second.unwrap_or(PER_SECOND).min(PER_SECOND))),
            log: Mutex::default(),
        }
    }

    /// The answer to a request whose token was refused: after too many, that it must wait.
    pub(crate) fn counted(&self, parts: &Parts, refused: Problem) -> Problem {
        if refused.code != Code::Unauthenticated {
            return refused;
        }
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        let peer = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.0.ip().to_string());
        let now = Instant::now();
        self.log(&peer, now);
        self.limit.check(&peer, now).err().unwrap_or(refused)
    }

    fn log(&self, peer: &str, now: Instant) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.failed += 1;
        if log.at.is_none_or(|at| now - at >= LOG_EVERY) {
            let failed = log.failed;
            tracing::warn!(name: "dueq_serve.login_failed", peer, failed, "a token is wrong or was removed: `failed` counts those since the last such line");
            *log = Log {
                at: Some(now),
                failed: 0,
            };
        }
    }
}
