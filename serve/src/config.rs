//! The configuration of a router or a server.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::auth::{Access, PublicUrl, QueuePattern, TrustedProxy};
use crate::error::Error;
use crate::tls::TlsFiles;

/// How the queue is served. `Config::default()` is for people on this machine.
///
/// ```
/// use dueq_serve::{Access, Config};
///
/// let config = Config {
///     access: Access::Tokens("/etc/dueq/tokens.toml".into()),
///     is_read_only: true,
///     ..Config::default()
/// };
/// ```
#[derive(Debug, Clone)]
pub struct Config {
    /// Who has access, besides the users that `proxy` names.
    pub access: Access,
    /// A proxy whose headers name the user.
    pub proxy: Option<TrustedProxy>,
    /// The URL that callers use, if it is not the address of the server. Its path is the prefix of
    /// all paths of a server of its own; a router is mounted under its prefix by its service.
    pub public_url: Option<PublicUrl>,
    /// Whether only reads are answered.
    pub is_read_only: bool,
    /// The queues that are served; none for all.
    pub queues: Vec<QueuePattern>,
    /// The file of the audit log; standard error without one.
    pub audit_log: Option<PathBuf>,
    /// The key that signs sessions and claims, in base64, unless it is in the tokens file. All
    /// instances need the same.
    pub signing_key: Option<PathBuf>,
    /// How many requests each caller may send a second.
    pub rate_limit: Option<u32>,
    /// How many bytes of bodies, deliveries and long payloads are in memory at most, as they are
    /// sent: what is decoded from a JSON body comes on top.
    pub max_body_bytes: usize,
    /// The address of a server of its own.
    pub listen: SocketAddr,
    /// The certificate of a server of its own; plain HTTP without one.
    pub tls: Option<TlsFiles>,
    /// How many connections a server of its own has at most. Further ones wait.
    pub max_connections: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            access: Access::Loopback,
            proxy: None,
            public_url: None,
            is_read_only: false,
            queues: Vec::new(),
            audit_log: None,
            signing_key: None,
            rate_limit: None,
            max_body_bytes: 256 << 20,
            listen: SocketAddr::from(([127, 0, 0, 1], 8377)),
            tls: None,
            max_connections: 1_024,
        }
    }
}

impl Config {
    /// Refuses a configuration with which a server of its own would let anybody in, or cannot start.
    /// [`Server::bind`](crate::Server::bind) does the same.
    ///
    /// # Errors
    /// [`Error::Config`], which says what is missing.
    pub fn check(&self) -> Result<(), Error> {
        let refused = |text: String| Err(Error::Config(text));
        if self.rate_limit == Some(0) || self.max_connections == 0 {
            return refused(
                "the rate limit and the number of connections must be at least 1".to_owned(),
            );
        }
        if self.access == Access::Everybody {
            return refused("a server of its own needs tokens or a trusted proxy".to_owned());
        }
        let is_open = self.access == Access::Loopback && self.proxy.is_none();
        if is_open && !self.listen.ip().to_canonical().is_loopback() {
            return refused(format!(
                "other machines can reach {}, and without tokens everybody would be an operator: add \
                 --tokens FILE (`dueq serve token NAME --role viewer --tokens FILE` makes one), or \
                 --trust-proxy CIDR with --user-header",
                self.listen
            ));
        }
        Ok(())
    }
}
