//! Serves the queues over HTTP, as `dueq serve` does: the recorder of this process sees every call
//! of a script.

use std::io::Write;
use std::net::SocketAddr;

use anyhow::{Result, anyhow};
use dueq::Client;
use dueq_serve::{Access, Config, Server};

use super::{Options, Stop};
use crate::broken::Program;

pub(super) async fn run(options: &Options, client: Client, mut stop: Stop) -> Result<()> {
    let public_url = options.public_url.as_ref().map(|url| url.parse());
    // Without one it draws its own.
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
