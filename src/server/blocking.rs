//! The blocking pop from wake-up lists, on a dedicated connection.

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
    connection: Option<(MultiplexedConnection, Arc<Server>)>,
}

impl BlockingPop {
    pub(crate) fn new(connector: Arc<Connector>) -> Self {
        Self {
            connector,
            connection: None,
        }
    }

    /// Waits for a token in one of the lists for about 2 s; returns the index of its list. Redis
    /// looks at the lists in their order. An error, or dropping the future, closes the connection,
    /// and a token may be lost with it.
    pub(crate) async fn token(&mut self, lists: &[String]) -> Result<Option<usize>, Error> {
        let (mut connection, server) = self.take_connection().await?;
        let mut blpop = redis::cmd("BLPOP");
        blpop.arg(lists).arg(WAIT_SECONDS);
        let address = &server.address;
        let answer = async {
            tokio::time::timeout(
                WAIT_LIMIT,
                blpop.query_async::<Option<(String, Value)>>(&mut connection),
            )
            .await
            .map_err(|_| failure::silent(address, WAIT_LIMIT))?
            .map_err(|error| failure::of_call(address, error))
        };
        let answer = server.unless_superseded(Applied::Unknown, answer).await?;
        self.connection = Some((connection, server));
        Ok(answer.and_then(|(list, _)| lists.iter().position(|known| *known == list)))
    }

    /// Why the server refuses to read each of these lists; `None` for those that it reads.
    pub(crate) async fn refusals(&mut self, lists: &[String]) -> Result<Vec<Option<Error>>, Error> {
        let (mut connection, server) = self.take_connection().await?;
        let address = &server.address;
        let mut refusals = Vec::with_capacity(lists.len());
        for list in lists {
            let mut llen = redis::cmd("LLEN");
            llen.arg(list);
            let answer =
                tokio::time::timeout(WAIT_LIMIT, llen.query_async::<Value>(&mut connection))
                    .await
                    .map_err(|_| failure::silent(address, WAIT_LIMIT))?
                    .map_err(|error| failure::of_call(address, error));
            match answer {
                Err(error) if error.code().is_none() => return Err(error),
                answer => refusals.push(answer.err()),
            }
        }
        self.connection = Some((connection, server));
        Ok(refusals)
    }

    async fn take_connection(&mut self) -> Result<(MultiplexedConnection, Arc<Server>), Error> {
        let open = self
            .connection
            .take()
            .filter(|(_, server)| self.connector.is_current(server));
        match open {
            Some(open) => Ok(open),
            None => self.connector.dedicated().await,
        }
    }
}
