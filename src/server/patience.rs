//! Decides how long, and after which pauses, a failed call is repeated. Also has the time limits of
//! calls.

use std::pin::pin;
use std::time::{Duration, Instant};

use redis::RedisError;

use crate::error::{Applied, Error, ErrorKind};
use crate::model::retry::Retry;
use crate::telemetry::events;

/// Whether a call whose reply was lost may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Yes: calling twice has the effect of calling once.
    Harmless,
    /// No: the call is sent again only if it certainly was not applied.
    Unsafe,
}

/// The repetitions of one call.
pub(crate) struct Patience {
    end: Instant,
    /// How many times the call was repeated.
    repetitions: u32,
    retry: Retry,
    /// Whether an earlier try of the call may have been applied.
    unknown: bool,
    /// The error because of which the call is about to be repeated.
    reason: Option<Error>,
}

impl Patience {
    pub(crate) fn new() -> Self {
        Self::since(Instant::now())
    }

    /// For a caller that has already waited since `start`.
    pub(crate) fn since(start: Instant) -> Self {
        Self {
            end: start + PATIENCE,
            repetitions: 0,
            retry: reconnect_delays(),
            unknown: false,
            reason: None,
        }
    }

    /// Whether a call that ended with this error may be sent again.
    pub(crate) fn allows(&mut self, error: &Error, repeat: Repeat) -> bool {
        let harmless = error.was_applied() == Applied::No || repeat == Repeat::Harmless;
        let allowed = harmless
            && matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable)
            && !error.is_remapped()
            && Instant::now() < self.end;
        self.unknown |= allowed && error.was_applied() != Applied::No;
        if allowed {
            self.reason = Some(error.clone());
        }
        allowed
    }

    /// The error to report for a call that ended with this error and is not sent again. It says
    /// `Applied::Unknown` if an earlier try may have been applied.
    pub(crate) fn last(&self, error: Error) -> Error {
        if self.unknown {
            error.of_repeated()
        } else {
            error
        }
    }

    /// Waits before the next try. The first repetition of a call is reported as an event.
    pub(crate) async fn pause(&mut self) {
        self.repetitions += 1;
        if let Some(reason) = self.reason.take().filter(|_| self.repetitions == 1) {
            events::call_repeated(&reason);
        }
        tokio::time::sleep(self.retry.delay(self.repetitions, fastrand::f64())).await;
    }
}

/// Repeats a harmless call for up to 10 s while the server cannot be reached.
pub(crate) async fn patiently<T, F>(call: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut patience = Patience::new();
    loop {
        match call().await {
            Err(error) if patience.allows(&error, Repeat::Harmless) => patience.pause().await,
            result => return result.map_err(|error| patience.last(error)),
        }
    }
}

/// The pauses before a connection or a call is tried again: from 10 ms, doubling up to 500 ms, so
/// that work resumes within a second of the server's return.
pub(crate) fn reconnect_delays() -> Retry {
    Retry::exponential(Duration::from_millis(10), Duration::from_millis(500)).unwrap_or_default()
}

/// Runs `work` for up to `limit` of the time in which this process runs. When the machine stood still,
/// for example because it was moved or suspended, its whole pause counts as one second: the reply
/// may already wait in the socket, and the server may have paused as well.
pub(crate) async fn limited<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, RedisError> {
    let mut work = pin!(work);
    let mut left = limit;
    while !left.is_zero() {
        let slice = left.min(Duration::from_secs(1));
        if let Ok(answer) = tokio::time::timeout(slice, &mut work).await {
            return answer;
        }
        left -= slice;
    }
    Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into())
}

/// How long opening a connection may take.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// How long one command may take before its connection is closed. A shorter limit would harm:
/// servers do stall for seconds, on a slow disk or in a fork, and each claim that times out may
/// leave granted messages without a handler.
pub(crate) const RESPONSE_LIMIT: Duration = Duration::from_secs(5);

/// After how long without traffic the operating system probes a connection. Firewalls and load
/// balancers forget idle connections after four minutes or more.
pub(crate) const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);

/// How long the operating system waits for the answer to each probe.
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// How long a call is repeated before its error is reported.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The time limit of a partial read, which names the parts that did not reply instead of repeating
/// its calls.
pub(crate) const REACH_LIMIT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pause_of_the_machine_ends_no_call() {
        let silent = std::future::pending::<Result<(), RedisError>>();
        let mut call = pin!(limited(RESPONSE_LIMIT, silent));
        let mut ended = async || poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
        assert!(ended().await.is_pending());
        // Each of these is longer than the limit, and counts as one second.
        for _ in 0..4 {
            tokio::time::advance(RESPONSE_LIMIT * 2).await;
            assert!(ended().await.is_pending());
        }
        tokio::time::advance(RESPONSE_LIMIT * 2).await;
        let Poll::Ready(Err(error)) = ended().await else {
            panic!("five seconds have passed");
        };
        assert!(error.is_timeout(), "{error}");
    }

    #[test]
    fn a_call_refused_for_its_map_is_not_repeated() {
        let error = Error::new(ErrorKind::Unavailable, Applied::No, "another map");
        assert!(Patience::new().allows(&error, Repeat::Harmless));
        let error = error.with_code("REMAPPED");
        assert!(!Patience::new().allows(&error, Repeat::Harmless));
    }

    #[test]
    fn last_error_says_unknown_if_an_earlier_try_may_have_acted() {
        let refused = || Error::new(ErrorKind::Full, Applied::No, "refused");
        let mut patience = Patience::new();
        assert!(patience.allows(
            &Error::new(ErrorKind::Unavailable, Applied::No, "loading"),
            Repeat::Harmless
        ));
        assert_eq!(patience.last(refused()).was_applied(), Applied::No);

        let lost = Error::new(ErrorKind::Timeout, Applied::Unknown, "lost");
        assert!(!patience.allows(&lost, Repeat::Unsafe));
        assert_eq!(
            patience.last(refused()).was_applied(),
            Applied::No,
            "the lost one was not repeated"
        );
        assert!(patience.allows(&lost, Repeat::Harmless));
        let told = patience.last(refused());
        assert_eq!(
            (told.was_applied(), told.kind()),
            (Applied::Unknown, ErrorKind::Full)
        );
        assert!(told.to_string().starts_with("refused"), "{told}");
    }
}
