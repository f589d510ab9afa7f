//! Finds out whether a connection is dead although its server is alive: a firewall forgot the
//! connection, or its replies were lost on the way.

use std::pin::Pin;
use std::time::{Duration, Instant};

use redis::{AsyncConnectionConfig, RedisError, Value};
use tokio::time::{sleep, sleep_until, timeout};

use crate::error::{Applied, Error};
use crate::server::connect::pool::Server;
use crate::server::failure;

/// After this long without an answer, a call asks the server on a new connection. If its lane has
/// recently given up a connection, it waits longer. Also the pause between two such questions.
pub(crate) const DOUBT_AFTER: Duration = Duration::from_millis(500);

/// How long the call still waits after the new connection has its answer: a server that stood still
/// answers both at about the same time.
const GRACE: Duration = Duration::from_millis(250);

/// The shortest and the longest time limit of a question. Between them, the limit is four times as
/// long as a connection took to open.
const LIMITS: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(1)];

impl Server {
    /// Completes when the server has answered on a new connection while the caller's own call is
    /// still unanswered. The server is asked after `after`, and the earlier call gets some more
    /// time. The caller drops this future when it has its answer.
    pub(crate) async fn answers_elsewhere(&self, after: Duration) {
        let since = Instant::now();
        sleep(after).await;
        // Boxed: keeps the futures of callers small and shallow, as rustc limits their depth.
        let asking: Pin<Box<dyn Future<Output = ()> + Send + '_>> = Box::pin(self.ask(since));
        asking.await;
        sleep(GRACE).await;
    }

    /// Asks until the server has answered on a connection that was begun after `since`.
    async fn ask(&self, since: Instant) {
        // Only one task asks at a time, so that a server that stands still is not flooded with
        // connections.
        let mut answered = self.answered.lock().await;
        while answered.is_none_or(|asked| asked < since) {
            let asked = Instant::now();
            if self.answers_anew().await {
                *answered = Some(asked);
            } else {
                sleep_until((asked + DOUBT_AFTER).into()).await;
            }
        }
    }

    /// Awaits a connection; returns an error as soon as another server is the master, or as a
    /// connection that was begun later is open.
    pub(crate) async fn unless_stuck<T>(
        &self,
        opening: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let opening = Box::pin(async {
            tokio::select! {
                biased;
                opened = opening => opened,
                () = self.answers_elsewhere(DOUBT_AFTER) => {
                    Err(failure::of_connecting(&self.address, only_elsewhere()))
                }
            }
        });
        self.unless_superseded(Applied::No, opening).await
    }

    /// Whether the server answers on a new connection and runs scripts that write. CLIENT PAUSE and
    /// a running script delay or refuse only those.
    async fn answers_anew(&self) -> bool {
        let Ok(client) = self.target.client().await else {
            return false;
        };
        let [least, most] = LIMITS;
        let limit = (self.opening_time() * 4).clamp(least, most);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(most))
            .set_response_timeout(Some(most));
        let mut unknown = redis::cmd("EVALSHA");
        unknown.arg("0".repeat(40)).arg(0);
        let asking = async {
            let opening = client.get_multiplexed_async_connection_with_config(&config);
            unknown.query_async::<Value>(&mut opening.await?).await
        };
        match timeout(limit, asking).await {
            Ok(Err(refusal)) => matches!(refusal.code(), Some("NOSCRIPT" | "NOPERM")),
            Ok(Ok(_)) => true,
            Err(_) => false,
        }
    }
}

/// The error of a call on a connection that is dead.
pub(crate) fn only_elsewhere() -> RedisError {
    let text = "no answer, while the server answers on a new connection";
    std::io::Error::new(std::io::ErrorKind::ConnectionAborted, text).into()
}
