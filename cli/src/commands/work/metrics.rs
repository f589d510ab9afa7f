//! `--metrics`: the address, and the server of the pages.

use std::net::{Ipv4Addr, SocketAddr};

use dueq_serve::{Error, Probes};
use tokio_util::sync::CancellationToken;

use crate::log::Style;
use crate::output::Usage;
use crate::{Common, output};

/// Reads `ADDRESS:PORT`, or a port of loopback.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| {
        "write a port, such as 9464, or an address and a port: 0.0.0.0:9464".to_owned()
    })
}

/// Listens there, and says where. Without an address there are no pages.
pub(super) async fn listen(
    common: &Common,
    address: Option<SocketAddr>,
    stop: &CancellationToken,
) -> anyhow::Result<Option<Probes>> {
    let Some(address) = address else {
        return Ok(None);
    };
    let probes = Probes::listen(address, stop.clone())
        .await
        .map_err(|error| match error {
            Error::Config(text) => anyhow::Error::from(Usage(text)),
            error => error.into(),
        })?;
    if tracing::enabled!(target: "dueq", tracing::Level::WARN) {
        let url = format!("http://{}/metrics", probes.address());
        output::note(&match common.log {
            Style::Text => format!("dueq: metrics at {url}"),
            Style::Json => output::json(
                &serde_json::json!({ "level": "INFO", "message": "metrics", "url": url }),
            ),
        });
    }
    Ok(Some(probes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_alone_is_on_loopback() {
        for (text, expected) in [
            ("9464", Some("127.0.0.1:9464")),
            ("0.0.0.0:9464", Some("0.0.0.0:9464")),
            ("[::1]:0", Some("[::1]:0")),
            ("localhost:9464", None),
            ("70000", None),
            ("", None),
        ] {
            let read = address(text).ok().map(|address| address.to_string());
            assert_eq!(read.as_deref(), expected, "{text}");
        }
    }
}
