//! Parses messages from JSON.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dueq::{Client, Message};
use dueq_input::Defaults;
use jiff::Timestamp;
use tokio::sync::OnceCell;

use crate::edge::body::code_of;
use crate::edge::problem::{Code, Problem};

/// The longest message in JSON: a payload of 16 MiB fits in base64.
pub(in crate::routes) const MAX_BYTES: usize = 24 << 20;

/// Parses messages. Asks Redis for its clock at most once, and only for a message with business
/// hours.
pub(in crate::routes) struct Reader {
    defaults: Defaults,
    clock: Arc<RedisClock>,
}

/// Redis's clock, read at most once.
#[derive(Default)]
struct RedisClock {
    read: OnceCell<(Instant, u64)>,
    /// Whether a message needed the clock before it was read.
    is_missing: AtomicBool,
}

impl RedisClock {
    fn now_ms(&self) -> Result<u64, String> {
        let Some((at, ms)) = self.read.get() else {
            self.is_missing.store(true, Ordering::Relaxed);
            return Err("the clock of Redis is not read yet".to_owned());
        };
        Ok(ms.saturating_add(ms_of(at.elapsed())))
    }

    async fn read(&self, client: &Client) -> Result<(), dueq::Error> {
        let read = || async {
            let time = client.server_time().await?;
            Ok((Instant::now(), time.now_ms()))
        };
        self.read.get_or_try_init(read).await.map(|_| ())
    }
}

impl Reader {
    pub(in crate::routes) fn new() -> Self {
        let clock = Arc::<RedisClock>::default();
        let of_redis = Arc::clone(&clock);
        let defaults = Defaults::new(
            dueq_input::Wording::Fields,
            Box::new(Timestamp::now),
            Box::new(move || of_redis.now_ms()),
        );
        Self { defaults, clock }
    }

    /// Gives messages without a trace context this one.
    pub(super) fn traced(mut self, trace_parent: Option<String>) -> Self {
        self.defaults.traceparent = trace_parent;
        self
    }

    /// Parses a message. The outer error means that Redis's clock could not be read.
    pub(in crate::routes) async fn read(
        &self,
        client: &Client,
        text: &[u8],
    ) -> Result<Result<Message, dueq_input::Error>, dueq::Error> {
        let message = dueq_input::message(text, &self.defaults);
        if message.is_err() && self.clock.is_missing.swap(false, Ordering::Relaxed) {
            self.clock.read(client).await?;
            return Ok(dueq_input::message(text, &self.defaults));
        }
        Ok(message)
    }

    /// Redis's clock in Unix milliseconds.
    pub(in crate::routes) async fn now_ms(&self, client: &Client) -> Result<u64, Problem> {
        self.clock.read(client).await?;
        let now = self.clock.now_ms();
        now.map_err(|reason| Problem::new(Code::Internal, reason))
    }
}

/// The problem of a text that is not a valid message.
pub(in crate::routes) fn unread(text: &[u8], error: &dueq_input::Error) -> Problem {
    Problem::new(code_of(text), error.to_string())
}

fn ms_of(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
