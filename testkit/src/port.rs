//! Ports for test servers. A port is reserved for one server on this machine until the server is
//! dropped.

use std::net::{TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Result, bail};

/// The range of ports. It lies below the ports that Linux gives to outgoing connections (32,768 and
/// up), so no client can take a port before the server binds it or while the server is down. The
/// ports of cluster buses, 10,000 higher, lie below them, too.
const PORTS: Range<u16> = 10_240..20_240;
const BUS: u16 = 10_000;

/// A TCP port of 127.0.0.1 with its cluster bus port, reserved until this is dropped.
///
/// The reservation is a UDP socket with the same number. Other test processes detect it, and the
/// kernel removes it with this process.
#[derive(Debug)]
pub struct Port(
    u16,
    #[expect(dead_code, reason = "held, not used")] UdpSocket,
);

impl Port {
    /// Reserves a port that no program uses.
    ///
    /// # Errors
    /// Fails if no port is free.
    pub fn reserve() -> Result<Self> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        // Processes that start together begin their search at different ports.
        let begin = std::process::id().wrapping_mul(7_919);
        for _ in PORTS {
            let step = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
            let offset = begin.wrapping_add(step) % u32::from(PORTS.end - PORTS.start);
            let number = PORTS.start + u16::try_from(offset)?;
            let Ok(reservation) = UdpSocket::bind(("127.0.0.1", number)) else {
                continue;
            };
            // Other programs make no reservation, so also try to bind the port.
            let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
            if is_free(number) && is_free(number + BUS) {
                return Ok(Self(number, reservation));
            }
        }
        bail!(
            "all ports from {} to {} are in use",
            PORTS.start,
            PORTS.end - 1
        )
    }

    /// The port number.
    pub fn number(&self) -> u16 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use crate::Server;

    #[test]
    fn reserved_port_is_not_given_to_clients() -> Result<()> {
        let ports = (0..100)
            .map(|_| Port::reserve())
            .collect::<Result<Vec<_>>>()?;
        let numbers: BTreeSet<u16> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), ports.len());
        let range = Path::new("/proc/sys/net/ipv4/ip_local_port_range");
        if let Ok(range) = std::fs::read_to_string(range) {
            let first: u16 = range
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .parse()?;
            assert!(
                numbers.iter().all(|port| port + BUS < first),
                "{numbers:?} and clients' ports from {first}"
            );
        }
        Ok(())
    }

    #[test]
    fn killed_server_keeps_its_port_for_a_restart() -> Result<()> {
        let mut server = Server::start(&[])?;
        server.kill()?;
        let port = server.port();
        assert!(
            UdpSocket::bind(("127.0.0.1", port)).is_err(),
            "another process could reserve {port}"
        );
        server.restart()
    }

    #[test]
    fn cluster_servers_start_on_any_reserved_port() -> Result<()> {
        let cluster = ["--cluster-enabled", "yes"];
        for _ in 0..8 {
            let server = Server::start(&cluster)?;
            assert!(
                server
                    .command(&["CLUSTER", "INFO"])?
                    .contains("cluster_state:")
            );
        }
        Ok(())
    }
}
