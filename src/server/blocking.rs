//! Blocking on a wake-up list, on a connection that does nothing else.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;

use crate::error::{Applied, Error};
use crate::server::connector::Connector;
use crate::server::failure;
use crate::server::pool::Server;

/// How long Redis keeps a waiting node before it answers that nothing came.
const WAIT_SECONDS: u32 = 2;
/// How long we wait for that answer: Redis's own timeout follows its wall clock, which may be set, and ten ticks a second.
const WAIT_LIMIT: Duration = Duration::from_secs(4);

/// A connection for one blocking wait at a time, opened when it is needed.
pub(crate) struct Waiting {
    connector: Arc<Connector>,
    wake: String,
    connection: Option<(MultiplexedConnection, Arc<Server>)>,
}

impl Waiting {
    pub(crate) fn new(connector: Arc<Connector>, wake: String) -> Self {
        Self {
            connector,
            wake,
            connection: None,
        }
    }

    /// Waits for a token for about two seconds; whether one came. After an error, or dropped, the connection is closed, and a
    /// token may be lost with it.
    pub(crate) async fn token(&mut self) -> Result<bool, Error> {
        let (mut connection, server) = match self
            .connection
            .take()
            .filter(|(_, server)| self.connector.is_current(server))
        {
            Some(line) => line,
            None => self.connector.dedicated().await?,
        };
        let mut blpop = redis::cmd("BLPOP");
        blpop.arg(&self.wake).arg(WAIT_SECONDS);
        let address = &server.address;
        let answer = async {
            tokio::time::timeout(WAIT_LIMIT, blpop.query_async::<Value>(&mut connection))
                .await
                .map_err(|_| failure::silent(address, WAIT_LIMIT))?
                .map_err(|error| failure::of_call(address, error))
        };
        let answer = server.unless_superseded(Applied::Unknown, answer).await?;
        self.connection = Some((connection, server));
        Ok(answer != Value::Nil)
    }
}
