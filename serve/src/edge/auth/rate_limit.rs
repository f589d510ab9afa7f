//! Limits the requests of each caller, and the wrong tokens of each address.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::ConnectInfo;
use axum::http::request::Parts;

use crate::edge::problem::{Code, Problem};

/// The most callers that are remembered. A caller who sent nothing for a second can be forgotten.
const MAX_REMEMBERED: usize = 10_000;

/// A token bucket for each caller: it holds `per_second` requests, and is refilled at `per_second`.
pub(crate) struct RateLimit {
    per_second: Option<u32>,
    buckets: Mutex<HashMap<String, TokenBucket>>,
}

struct TokenBucket {
    /// The number of requests in the bucket at the time `at`.
    left: f64,
    at: Instant,
}

impl RateLimit {
    pub(crate) fn new(per_second: Option<u32>) -> Self {
        Self {
            per_second,
            buckets: Mutex::default(),
        }
    }

    /// The most requests of one caller per second; `None` without a limit.
    pub(crate) fn per_second(&self) -> Option<u32> {
        self.per_second
    }

    /// Counts a request of this caller; refuses it if the bucket is empty.
    pub(crate) fn check(&self, caller: &str, now: Instant) -> Result<(), Problem> {
        let Some(per_second) = self.per_second else {
            return Ok(());
        };
        let rate = f64::from(per_second);
        let refill = |bucket: &TokenBucket| {
            let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
            (bucket.left + passed * rate).min(rate)
        };
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MAX_REMEMBERED && !buckets.contains_key(caller) {
            // A full bucket can be forgotten: a new one is full too.
            buckets.retain(|_, bucket| refill(bucket) < rate);
            if buckets.len() >= MAX_REMEMBERED {
                buckets.clear();
            }
        }
        let bucket = buckets.entry(caller.to_owned()).or_insert(TokenBucket {
            left: rate,
            at: now,
        });
        let left = refill(bucket);
        bucket.at = now;
        if left >= 1.0 {
            bucket.left = left - 1.0;
            return Ok(());
        }
        bucket.left = left;
        let wait = Duration::from_secs_f64((1.0 - left) / rate);
        let detail = format!(
            "more than {per_second} requests a second; wait {} ms",
            wait.as_millis() + 1
        );
        Err(Problem::new(Code::RateLimited, detail).retry_after_s(wait.as_secs() + 1))
    }
}

/// The most wrong tokens that an address may send per second, without `--rate-limit`.
const PER_SECOND: u32 = 100;
/// The log has at most one line in this time.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Counts the failed logins of each address. They never delay a caller with a right token: many
/// callers can share the address of a proxy.
pub(crate) struct FailedLogins {
    limit: RateLimit,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    at: Option<Instant>,
    /// The number of failed logins since the last line of the log.
    failed: u64,
}

impl FailedLogins {
    pub(crate) fn new(per_second: Option<u32>) -> Self {
        Self {
            limit: RateLimit::new(Some(per_second.unwrap_or(PER_SECOND).min(PER_SECOND))),
            log: Mutex::default(),
        }
    }

    /// Counts a refused token, and returns the answer: `refused`, or after too many of them, that
    /// the caller must wait.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_caller_has_its_own_bucket() {
        let (limit, start) = (RateLimit::new(Some(10)), Instant::now());
        let allowed = |caller: &str, after_ms: u64| {
            let now = start + Duration::from_millis(after_ms);
            (0..100)
                .filter(|_| limit.check(caller, now).is_ok())
                .count()
        };
        assert_eq!((allowed("a", 0), allowed("b", 0)), (10, 10));
        assert_eq!(
            (allowed("a", 50), allowed("a", 500), allowed("a", 60_000)),
            (0, 5, 10)
        );
        assert!(RateLimit::new(None).check("a", start).is_ok());
    }

    #[test]
    fn number_of_remembered_callers_is_bounded() {
        let (limit, start) = (RateLimit::new(Some(1)), Instant::now());
        for number in 0..30_000 {
            let now = start + Duration::from_millis(number);
            assert!(limit.check(&number.to_string(), now).is_ok());
        }
        let remembered = limit.buckets.lock().expect("not poisoned").len();
        assert!(remembered <= MAX_REMEMBERED, "{remembered}");
    }
}
