//! The shares that a worker gives to its queues; and a server of HTTP, like `dueq serve`, in a
//! process whose recorder sees every script call.

use std::io::Write;
use std::net::SocketAddr;

use anyhow::{Result, anyhow};
use dueq::{Client, Share};
use dueq_serve::{Access, Config, Server};

use super::{Options, Stop};
use crate::broken::Program;
use crate::history::{self, Event};
use crate::queues::Planned;

/// How many messages throttle a queue. Fewer in the queue with the most traffic. None in the queue
/// with a reserve: while it is closed, other queues get its handlers, and the checker could not
/// judge the reserve.
pub(super) fn throttles(planned: &Planned) -> u64 {
    match planned {
        Planned { reserve: 1.., .. } => 0,
        Planned { traffic: 40.., .. } => 4,
        _ => 40,
    }
}

pub(super) fn share(planned: &Planned) -> Share {
    let share = Share::weight(planned.weight).reserve(planned.reserve);
    match planned.max {
        Some(max) => share.max(max),
        None => share,
    }
}

/// The event that tells the checker the shares of this process's queues.
pub(super) fn serves(options: &Options, planned: &[Planned]) -> Event {
    let concurrency = options.concurrency;
    let handlers = |number| u32::try_from(number).unwrap_or(u32::MAX);
    let queues = planned.iter().map(|planned| history::Share {
        queue: planned.name.to_owned(),
        weight: planned.weight,
        reserve: handlers(planned.reserve),
        max: handlers(planned.max.unwrap_or(concurrency)),
    });
    Event::Serves {
        concurrency: handlers(concurrency),
        lease_ms: options.lease_ms,
        queues: queues.collect(),
    }
}

pub(super) async fn serve(options: &Options, client: Client, mut stop: Stop) -> Result<()> {
    let public_url = options.public_url.as_ref().map(|url| url.parse());
    // A server without a configured key makes a random one.
    let forgets_key = options.broken == Some(Program::KeysDiffer);
    let config = Config {
        access: Access::Loopback,
        public_url: public_url
            .transpose()
            .map_err(|error: String| anyhow!(error))?,
        signing_key: options.signing_key.clone().filter(|_| !forgets_key),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        ..Config::default()
    };
    let server = Server::bind(client, config).await?;
    writeln!(std::io::stdout(), "listens {}", server.address().port())?;
    writeln!(std::io::stdout(), "ready")?;
    server.run(super::stopped(&mut stop)).await;
    Ok(())
}
