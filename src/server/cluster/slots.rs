//! The addresses of a cluster's servers, and redirections: where a server sends a call for a slot
//! that it does not serve.

use std::error::Error as _;
use std::fmt;

use redis::{ConnectionAddr, ConnectionInfo, RedisError};

use crate::error::Error;

/// The address at which a server of a cluster listens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    /// The address in the parts of a URL; `None` for a Unix socket.
    pub(crate) fn of(info: &ConnectionInfo) -> Option<Self> {
        let (ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }) =
            info.addr()
        else {
            return None;
        };
        let (host, port) = (host.clone(), *port);
        Some(Self { host, port })
    }

    /// Reads `HOST:PORT`. A server that does not know its own host leaves it empty; then it is the
    /// host that was asked.
    fn read(text: &str, asked: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let host = match host {
            "" => &asked.host,
            // The server is configured to announce a host name, and has none.
            "?" => return None,
            _ => host,
        };
        Some(Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// A redirection: where a server sends a call that it does not serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// Another server serves this slot from now on.
    Moved(u16, Address),
    /// Another server, which is getting the slot, serves this call. The next call comes here again.
    Ask(Address),
}

impl Redirect {
    /// The redirection in an error of a call to `asked`, if it is one. Such a call was not applied.
    pub(crate) fn in_error(error: &Error, asked: &Address) -> Option<Self> {
        let code = error.code()?;
        let cause = error.source()?.downcast_ref::<RedisError>()?;
        let mut words = cause.detail()?.split(' ');
        let slot = words.next()?.parse().ok()?;
        let to = Address::read(words.next()?, asked)?;
        match code {
            "MOVED" => Some(Self::Moved(slot, to)),
            "ASK" => Some(Self::Ask(to)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::failure;

    fn here() -> Address {
        Address {
            host: "here".to_owned(),
            port: 1,
        }
    }

    fn at(host: &str, port: u16) -> Address {
        Address {
            host: host.to_owned(),
            port,
        }
    }

    #[test]
    fn redirections_are_read_with_their_address() {
        let error = |code: &str, detail: &str| {
            let error = redis::make_extension_error(code.into(), Some(detail.into()));
            failure::of_call("here:1", error)
        };
        let read = |code, detail| Redirect::in_error(&error(code, detail), &here());
        let moved = Redirect::Moved(7, at("there", 2));
        assert_eq!(read("MOVED", "7 there:2"), Some(moved));
        let ask = Redirect::Ask(at("::1", 2));
        assert_eq!(read("ASK", "7 ::1:2"), Some(ask));
        let same_host = Redirect::Moved(7, at("here", 2));
        assert_eq!(read("MOVED", "7 :2"), Some(same_host));
        for (code, detail) in [
            ("MOVED", ""),
            ("MOVED", "7"),
            ("MOVED", "7 x"),
            ("ERR", "7 x:2"),
        ] {
            assert_eq!(read(code, detail), None, "{code} {detail}");
        }
    }
}
