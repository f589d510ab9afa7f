//! A proxy that forwards a call and drops its reply, to test how the client reacts.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::Result;

/// A proxy from its own port to a server on this machine; it ends on drop.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    rules: Arc<Rules>,
}

#[derive(Debug, Default)]
struct Rules {
    cut: Mutex<Option<Cut>>,
    cuts: AtomicU64,
    over: AtomicBool,
}

/// A rule that says which replies are lost.
#[derive(Debug)]
struct Cut {
    /// Bytes that the request must contain, such as the hash of a script.
    request: Vec<u8>,
    /// Whether the rule has already dropped a reply.
    done: bool,
    /// Whether the rule drops every later reply, too.
    is_always: bool,
    /// The reply to later requests with these bytes; the proxy then does not forward them.
    refusal: Option<String>,
}

/// What the proxy does with one request.
enum Fate {
    Pass,
    Lose,
    Refuse(String),
}

impl Proxy {
    /// Starts a proxy for the server on this port.
    pub fn start(port: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let (address, rules) = (listener.local_addr()?, Arc::new(Rules::default()));
        let shared = Arc::clone(&rules);
        thread::spawn(move || {
            for client in listener.incoming() {
                if shared.over.load(Ordering::SeqCst) {
                    return;
                }
                // Ignore errors: each side only sees that the connection is closed.
                if let Ok(client) = client {
                    let _ = carry(client, port, &shared);
                }
            }
        });
        Ok(Self { address, rules })
    }

    /// The URL `redis://127.0.0.1:PORT/`.
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// Forwards the next request that contains these bytes, and then closes its connection instead
    /// of sending the reply.
    pub fn cut_reply_of(&self, request: impl AsRef<[u8]>) {
        *self.rules.cut() = Some(Cut {
            request: request.as_ref().to_vec(),
            done: false,
            is_always: false,
            refusal: None,
        });
    }

    /// Like [`Proxy::cut_reply_of`], for every such request from now on.
    pub fn cut_every_reply_of(&self, request: impl AsRef<[u8]>) {
        *self.rules.cut() = Some(Cut {
            request: request.as_ref().to_vec(),
            done: false,
            is_always: true,
            refusal: None,
        });
    }

    /// Removes all rules: forwards every request and reply from now on.
    pub fn pass_all(&self) {
        *self.rules.cut() = None;
    }

    /// Like [`Proxy::cut_reply_of`]. Later requests with these bytes are not forwarded, but
    /// answered with this error.
    pub fn cut_reply_then_refuse(&self, request: impl AsRef<[u8]>, error: &str) {
        let refusal = Some(format!("-{error}\r\n"));
        *self.rules.cut() = Some(Cut {
            request: request.as_ref().to_vec(),
            done: false,
            is_always: false,
            refusal,
        });
    }

    /// The number of replies that were lost so far.
    pub fn cuts(&self) -> u64 {
        self.rules.cuts.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.rules.over.store(true, Ordering::SeqCst);
        // Connect once, so that the accepting thread wakes and ends.
        let _ = TcpStream::connect(self.address);
    }
}

impl Rules {
    fn cut(&self) -> MutexGuard<'_, Option<Cut>> {
        self.cut.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fate(&self, request: &[u8]) -> Fate {
        let mut cut = self.cut();
        let Some(cut) = cut.as_mut() else {
            return Fate::Pass;
        };
        if !request
            .windows(cut.request.len())
            .any(|window| window == cut.request)
        {
            return Fate::Pass;
        }
        if !cut.done || cut.is_always {
            cut.done = true;
            return Fate::Lose;
        }
        cut.refusal.clone().map_or(Fate::Pass, Fate::Refuse)
    }
}

/// Starts one thread for each direction of a connection.
fn carry(client: TcpStream, port: u16, rules: &Arc<Rules>) -> std::io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", port))?;
    let losing = Arc::new(AtomicBool::new(false));
    let (up, down) = ((client.try_clone()?, server.try_clone()?), (server, client));
    let (rules_up, losing_up) = (Arc::clone(rules), Arc::clone(&losing));
    thread::spawn(move || {
        let (mut client, mut server) = up;
        let _ = requests(&mut client, &mut server, &rules_up, &losing_up);
        let _ = (
            client.shutdown(Shutdown::Both),
            server.shutdown(Shutdown::Both),
        );
    });
    let rules = Arc::clone(rules);
    thread::spawn(move || {
        let (mut server, mut client) = down;
        let _ = replies(&mut server, &mut client, &rules, &losing);
        let _ = (
            client.shutdown(Shutdown::Both),
            server.shutdown(Shutdown::Both),
        );
    });
    Ok(())
}

fn requests(
    client: &mut TcpStream,
    server: &mut TcpStream,
    rules: &Rules,
    losing: &AtomicBool,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 65_536];
    loop {
        let length = client.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        match rules.fate(&buffer[..length]) {
            Fate::Refuse(error) => client.write_all(error.as_bytes())?,
            fate => {
                losing.fetch_or(matches!(fate, Fate::Lose), Ordering::SeqCst);
                server.write_all(&buffer[..length])?;
            }
        }
    }
}

fn replies(
    server: &mut TcpStream,
    client: &mut TcpStream,
    rules: &Rules,
    losing: &AtomicBool,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 65_536];
    loop {
        let length = server.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        if losing.load(Ordering::SeqCst) {
            rules.cuts.fetch_add(1, Ordering::SeqCst);
            return Ok(());
        }
        client.write_all(&buffer[..length])?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Server;

    #[test]
    fn call_whose_reply_is_cut_acts_and_later_ones_fail() -> Result<()> {
        let server = Server::start(&[])?;
        let proxy = Proxy::start(server.port())?;
        let port = proxy.address.port();
        assert_eq!(crate::command(port, &["INCR", "count"])?, ":1\r\n");
        proxy.cut_reply_then_refuse("INCR", "NOPERM no more");
        assert_eq!(
            crate::command(port, &["INCR", "count"])?,
            "",
            "the reply is lost"
        );
        assert_eq!(
            crate::command(port, &["INCR", "count"])?,
            "-NOPERM no more\r\n"
        );
        assert_eq!(
            (proxy.cuts(), server.command(&["GET", "count"])?),
            (1, "2".to_owned())
        );
        proxy.cut_reply_of("INCR");
        assert_eq!(crate::command(port, &["INCR", "count"])?, "");
        assert_eq!(crate::command(port, &["INCR", "count"])?, ":4\r\n");
        proxy.cut_every_reply_of("INCR");
        for _ in 0..2 {
            assert_eq!(crate::command(port, &["INCR", "count"])?, "");
        }
        proxy.pass_all();
        assert_eq!(crate::command(port, &["INCR", "count"])?, ":7\r\n");
        Ok(())
    }
}
