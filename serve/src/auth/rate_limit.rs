//! How many requests a caller may send.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::problem::{Code, Problem};

/// How many callers are remembered. A caller who sent nothing for a second need not be.
const MAX_REMEMBERED: usize = 10_000;

/// A token bucket for each caller: `per_second` requests at once, and as many in each second.
pub(crate) struct RateLimit {
    per_second: Option<u32>,
    buckets: Mutex<HashMap<String, Bucket>>,
}

struct Bucket {
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
        let refill = |bucket: &Bucket| {
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
        let bucket = buckets.entry(caller.to_owned()).or_insert(Bucket {
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
