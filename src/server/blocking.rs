//! The blocking pop from wake-up lists, on a dedicated connection.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tokio::task::JoinSet;

use crate::error::{Applied, Error};
use crate::server::connect::pool::Server;
use crate::server::failure;
use crate::server::link::ServerLink;
use crate::server::route::Route;

/// How long Redis blocks before it replies that no token came.
const WAIT_SECONDS: u32 = 2;
/// How long the client waits for that reply. Redis checks its timeout ten times a second, and by
/// its wall clock, which may be set.
const WAIT_LIMIT: Duration = Duration::from_secs(4);

/// A connection for one blocking pop at a time, opened when it is needed.
pub(crate) struct BlockingPop {
    route: Route,
    connection: Option<(MultiplexedConnection, Arc<Server>)>,
}

impl BlockingPop {
    /// Makes a pop from lists that this route leads to.
    pub(crate) fn new(route: Route) -> Self {
        Self {
            route,
            connection: None,
        }
    }

    /// Waits for a token in one of the lists for about 2 s; returns the index of its list. Redis
    /// checks the lists in their order. An error or a dropped future closes the connection, and may
    /// lose a token.
    pub(crate) async fn token(&mut self, lists: &[String]) -> Result<Option<usize>, Error> {
        let link = self.route.link().await?;
        let popped = self.token_at(&link, lists).await;
        if let Err(error) = &popped {
            self.route.learn(&link, error).await;
        }
        popped
    }

    async fn token_at(
        &mut self,
        link: &ServerLink,
        lists: &[String],
    ) -> Result<Option<usize>, Error> {
        let (mut connection, server) = self.take_connection(link).await?;
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

    /// For each list, the error if no pop from it can succeed; `None` if a pop can.
    pub(crate) async fn refusals(&mut self, lists: &[String]) -> Result<Vec<Option<Error>>, Error> {
        let link = self.route.link().await?;
        let (connection, server) = self.take_connection(&link).await?;
        let mut probes = JoinSet::new();
        for (index, list) in lists.iter().enumerate() {
            for (probe, is_pop) in probes_of(list).into_iter().zip([true, false]) {
                let mut connection = connection.clone();
                probes.spawn(async move {
                    let answer = probe.query_async::<Value>(&mut connection).await;
                    (index, is_pop, answer)
                });
            }
        }
        let address = &server.address;
        let mut refusals = vec![None; lists.len()];
        let probing = async {
            // The tasks of the probes neither panic nor are cancelled.
            while let Some(Ok((index, is_pop, answer))) = probes.join_next().await {
                let Err(error) = answer else {
                    continue;
                };
                let error = failure::of_call(address, error);
                if error.code().is_none() {
                    return Err(error);
                }
                // A user may have the right to pop but not the right to ask for the length.
                let is_refusal = match error.code() {
                    Some("NOPERM") => is_pop,
                    code => matches!(code, Some("WRONGTYPE" | "MOVED")),
                };
                if is_refusal {
                    refusals[index] = Some(error);
                }
            }
            Ok(())
        };
        let probing = async {
            tokio::time::timeout(WAIT_LIMIT, probing)
                .await
                .map_err(|_| failure::silent(address, WAIT_LIMIT))?
        };
        server.unless_superseded(Applied::No, probing).await?;
        self.connection = Some((connection, server));
        Ok(refusals)
    }

    async fn take_connection(
        &mut self,
        link: &ServerLink,
    ) -> Result<(MultiplexedConnection, Arc<Server>), Error> {
        let open = self
            .connection
            .take()
            .filter(|(_, server)| link.connector().is_current(server));
        match open {
            Some(open) => Ok(open),
            None => link.connector().dedicated().await,
        }
    }
}

/// Commands that fail if no pop from this list can succeed. They take nothing from the list.
fn probes_of(list: &str) -> [Cmd; 2] {
    // Redis checks the user's rights first, and then rejects the invalid timeout.
    let mut rights = redis::cmd("BLPOP");
    rights.arg(list).arg(-1);
    let mut type_of = redis::cmd("LLEN");
    type_of.arg(list);
    [rights, type_of]
}
