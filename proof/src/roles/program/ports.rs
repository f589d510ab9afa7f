//! The ports by which a program reaches its servers: each server has one of its own.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use tokio::net::TcpListener;

/// All servers are on this machine.
const HOST: &str = "127.0.0.1";

#[derive(Default)]
pub(super) struct Ports(Mutex<HashMap<u16, u16>>);

impl Ports {
    /// A text in which each address of a server is the one that leads to it. `open` gets the
    /// listener and the address of a server that was unknown. The length stays the same.
    pub(super) fn lead(&self, text: &[u8], open: impl Fn(TcpListener, String)) -> Result<Vec<u8>> {
        let (mut led, mut rest) = (Vec::with_capacity(text.len()), text);
        let size = HOST.len();
        while let Some(at) = rest.windows(size).position(|part| part == HOST.as_bytes()) {
            led.extend(&rest[..at + size]);
            rest = &rest[at + size..];
            // CLUSTER SLOTS has the port as a number of its own.
            let gap = match rest {
                [b'\r', b'\n', b':', ..] => 3,
                [b':', ..] => 1,
                _ => continue,
            };
            let digits = rest[gap..].iter().take_while(|byte| byte.is_ascii_digit());
            let (address, others) = rest.split_at(gap + digits.count());
            let port = std::str::from_utf8(&address[gap..])?.parse()?;
            led.extend(&address[..gap]);
            led.extend(self.to(port, &open)?.to_string().into_bytes());
            rest = others;
        }
        led.extend(rest);
        Ok(led)
    }

    /// The port that leads to this one. It has as many digits, so that no length in a reply changes.
    fn to(&self, server: u16, open: impl Fn(TcpListener, String)) -> Result<u16> {
        let mut ports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(port) = ports.get(&server) {
            return Ok(*port);
        }
        loop {
            let listener = std::net::TcpListener::bind((HOST, 0))?;
            let port = listener.local_addr()?.port();
            if port.to_string().len() == server.to_string().len() {
                listener.set_nonblocking(true)?;
                open(TcpListener::from_std(listener)?, format!("{HOST}:{server}"));
                ports.insert(server, port);
                return Ok(port);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_server_has_one_port_in_every_text() -> Result<()> {
        let (ports, opened) = (Ports::default(), Mutex::new(Vec::new()));
        let lead = |text: &str| {
            let led = ports.lead(text.as_bytes(), |listener, server| {
                let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
                opened.push((listener, server));
            });
            anyhow::Ok(String::from_utf8(led?)?)
        };
        let url = lead("redis+cluster://u:p@127.0.0.1:40001,127.0.0.1:40002")?;
        let (first, others) = url.rsplit_once(',').unwrap_or_default();
        let one = first.rsplit_once(':').unwrap_or_default().1;
        let other = others.rsplit_once(':').unwrap_or_default().1;
        for text in [
            "redis+cluster://u:p@127.0.0.1:PORT1,127.0.0.1:PORT2",
            // CLUSTER SLOTS: a number that is no port stays, even if it is equal to one.
            "*3\r\n:0\r\n:40001\r\n*3\r\n$9\r\n127.0.0.1\r\n:PORT2\r\n$2\r\nid\r\n",
            "-MOVED 7 127.0.0.1:PORT1\r\n",
            "-ASK 7 127.0.0.1:PORT2\r\n",
            "127.0.0.1",
        ] {
            let told = text.replace("PORT1", "40001").replace("PORT2", "40002");
            let expected = text.replace("PORT1", one).replace("PORT2", other);
            assert_eq!(lead(&told)?, expected);
        }
        let opened = opened.into_inner().unwrap_or_else(PoisonError::into_inner);
        let opened = opened.into_iter().map(|(listener, server)| {
            let port = listener.local_addr()?.port().to_string();
            anyhow::Ok((port, server))
        });
        let expected = [(one, "127.0.0.1:40001"), (other, "127.0.0.1:40002")];
        let expected = expected.map(|(port, server)| (port.to_owned(), server.to_owned()));
        assert_eq!(opened.collect::<Result<Vec<_>>>()?, expected);
        Ok(())
    }
}
