//! The blocking pop from a wake-up list, on a dedicated connection.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;

use crate::error::{Applied, Error};
use crate::server::connector::Connector;
use crate::server::failure;
use crate::server::pool::Server;

/// How long Redis blocks before it replies that no token came.
const WAIT_SECONDS: u32 = 2;
/// How long to wait for that reply. Redis's timeout follows its wall clock, which may be set, and
/// is checked ten times a second.
const WAIT_LIMIT: Duration = Duration::from_secs(4);

/// A connection for one blocking pop at a time, opened when it is needed.
pub(crate) struct BlockingPop {
    connector: Arc<Connector>,
    wake: String,
    connection: Option<(MultiplexedConnection, Arc<Server>)>,
}

impl BlockingPop {
    pub(crate) fn new(connector: Arc<Connector>, wake: String) -> Self {
        Self {
            connector,
            wake,
            connection: None,
        }
    }

    /// Waits for a token for about 2 s; returns whether one came. An error, or dropping the future,
    /// closes the connection, and a token may be lost with it.
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
