//! How many requests a caller may send, and how many wrong tokens.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::ConnectInfo;
use axum::http::request::Parts;

use crate::edge::problem::{Code, Problem};

/// How many callers are remembered. A caller who sent nothing for a second need not be.
const MAX_REMEMBERED: usize = 10_000;

/// A token bucket for each caller: `per_second` requests at once, and as many in each second.
pub(crate) struct RateLimit {
    per_second: Option<u32>,
    buckets: Mutex<HashMap<String, TokenBucket>>,
}

struct TokenBucket {
    /// How many requests may come at once, as of `at`.
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

    /// How many requests a caller may send a second; `None` for any number.
    pub(crate) fn per_second(&self) -> Option<u32> {
        self.per_second
    }

    /// Counts a request of this caller, or refuses it.
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
            // A caller with a full bucket need not be remembered.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_caller_has_its_own_rate() {
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
    fn remembered_callers_are_bounded() {
        let (limit, start) = (RateLimit::new(Some(1)), Instant::now());
        for number in 0..30_000 {
            let now = start + Duration::from_millis(number);
            assert!(limit.check(&number.to_string(), now).is_ok());
        }
        let remembered = limit.buckets.lock().expect("not poisoned").len();
        assert!(remembered <= MAX_REMEMBERED, "{remembered}");
    }
}
