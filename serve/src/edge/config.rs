//! The configuration of a router or a server.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::edge::Error;
use crate::edge::auth::{Access, NamePattern, PublicUrl, TrustedProxy};
use crate::edge::tls::TlsFiles;

/// How the queues are served over HTTP. `Config::default()` is for people on this machine.
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
    /// Who has access, in addition to the users that `proxy` names.
    pub access: Access,
    /// A proxy whose headers name the user.
    pub proxy: Option<TrustedProxy>,
    /// The URL by which callers reach the server, if it is not the listening address. A
    /// [`Server`](crate::Server) serves all paths below the URL's path; a router is mounted there
    /// by its service.
    pub public_url: Option<PublicUrl>,
    /// Whether the server refuses all changes.
    pub is_read_only: bool,
    /// The queues that are served; empty for all.
    pub queues: Vec<NamePattern>,
    /// The file of the audit log; `None` for standard error.
    pub audit_log: Option<PathBuf>,
    /// The file with the key that signs sessions and claims, in base64, unless the tokens file has
    /// the key. All instances need the same key.
    pub signing_key: Option<PathBuf>,
    /// The most requests of each caller per second; `None` without a limit.
    pub rate_limit: Option<u32>,
    /// The most bytes of request bodies, deliveries and long payloads in memory, counted as they
    /// are on the wire. Values decoded from a JSON body come on top.
    pub max_body_bytes: usize,
    /// The address on which a [`Server`](crate::Server) listens.
    pub listen: SocketAddr,
    /// The certificate of a [`Server`](crate::Server); `None` for plain HTTP.
    pub tls: Option<TlsFiles>,
    /// The most connections of a [`Server`](crate::Server). Beyond that, a new connection replaces
    /// one that has no request, or waits.
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
    /// Refuses a configuration with which a [`Server`](crate::Server) would give everybody access,
    /// or could not start. [`Server::bind`](crate::Server::bind) makes this check too.
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

    /// Risks of the configuration that an operator should know when a [`Server`](crate::Server)
    /// starts.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.access == Access::Loopback && self.proxy.is_none() {
            warnings.push(
                "no tokens: everybody who reaches this address is an operator, so do not put a proxy in \
                 front; --tokens FILE makes callers prove who they are"
                    .to_owned(),
            );
        }
        let has_tls =
            self.tls.is_some() || self.public_url.as_ref().is_some_and(PublicUrl::is_https);
        let is_local = self.listen.ip().to_canonical().is_loopback();
        if matches!(self.access, Access::Tokens(_)) && !has_tls && !is_local {
            warnings.push(format!(
                "no TLS: others can read the tokens on the way to {}; add --tls-cert and --tls-key, or \
                 listen on loopback behind a proxy that has TLS",
                self.listen
            ));
        }
        let tokens = match &self.access {
            Access::Tokens(path) => Some(path),
            Access::Loopback | Access::Everybody => None,
        };
        let key = self.tls.as_ref().map(|files| &files.key);
        let secrets = [tokens, self.signing_key.as_ref(), key];
        warnings.extend(secrets.into_iter().flatten().filter_map(exposed));
        warnings
    }
}

/// A warning if other users of the machine may read or change a file with a secret. Its group may
/// read it: an administrator gives a group access on purpose, and Kubernetes does by `fsGroup`.
fn exposed(path: &PathBuf) -> Option<String> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    (mode & 0o027 != 0).then(|| {
        format!(
            "{} holds a secret, and has mode {mode:04o}: chmod 600 it, or in Kubernetes mount it with \
             defaultMode 0440",
            path.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_risk_of_the_configuration_is_one_warning() {
        let folder = std::env::temp_dir().join(format!("dueq-warnings-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let tokens = folder.join("tokens.toml");
        std::fs::write(&tokens, "").expect("a file");
        let mode = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&tokens, mode).expect("a mode");
        };
        let open = Config::default();
        assert!(open.warnings()[0].starts_with("no tokens"), "{open:?}");
        let config = |listen: &str, url: Option<&str>| Config {
            access: Access::Tokens(tokens.clone()),
            listen: listen.parse().expect("an address"),
            public_url: url.map(|url| url.parse().expect("a URL")),
            ..Config::default()
        };
        mode(0o640);
        for (listen, url, expected) in [
            ("0.0.0.0:80", None, 1),
            ("0.0.0.0:80", Some("http://queues.example.com"), 1),
            ("0.0.0.0:80", Some("https://queues.example.com"), 0),
            ("127.0.0.1:80", None, 0),
        ] {
            let warnings = config(listen, url).warnings();
            assert_eq!(warnings.len(), expected, "{warnings:?}");
            assert!(warnings.iter().all(|text| text.starts_with("no TLS")));
        }
        for (bits, is_exposed) in [(0o600, false), (0o440, false), (0o644, true), (0o620, true)] {
            mode(bits);
            let both = Config {
                signing_key: Some(tokens.clone()),
                ..config("127.0.0.1:80", None)
            };
            let warnings = both.warnings();
            assert_eq!(
                warnings.len(),
                if is_exposed { 2 } else { 0 },
                "{bits:o}: {warnings:?}"
            );
        }
        std::fs::remove_dir_all(folder).expect("the folder");
    }
}
