//! Where to connect, and with which credentials.

use std::sync::Arc;

use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, ConnectionAddr, ConnectionInfo};
#[cfg(feature = "tls")]
use redis::{ClientTlsConfig, TlsCertificates};

use crate::error::Error;
#[cfg(feature = "tls")]
use crate::error::{Applied, ErrorKind};
use crate::server::cluster::slots::Address;
use crate::server::connect::credentials::{Credentials, Secrets};
use crate::server::failure;
use crate::server::patience::{KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, RESPONSE_LIMIT};

/// A server or a Sentinel, and how to connect to it. Every connection that dueq opens is opened by
/// a client of a target.
#[derive(Clone)]
pub(crate) struct Target {
    info: ConnectionInfo,
    credentials: Arc<Credentials>,
    /// Whether this is a server, for which the password of the credentials is meant. Sentinels have
    /// another password.
    is_server: bool,
}

impl Target {
    /// Checks that the credentials and the URL fit together.
    pub(crate) fn new(info: ConnectionInfo, credentials: &Arc<Credentials>) -> Result<Self, Error> {
        if credentials.has_password() && info.redis_settings().password().is_some() {
            return Err(Error::invalid(
                "the URL has a password, and another one is read for each connection: leave out that of the URL",
            ));
        }
        let tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        if tls && !cfg!(feature = "tls") {
            return Err(Error::invalid(
                "a rediss:// URL needs the feature `tls` of the crate dueq",
            ));
        }
        // With `#insecure`, redis-rs would accept any certificate if some crate of the program enabled
        // that.
        if matches!(info.addr(), ConnectionAddr::TcpTls { insecure: true, .. }) {
            return Err(Error::invalid(
                "a URL that ends with #insecure would make TLS accept any certificate: name the server's CA instead (--cacert FILE, \
                 ClientOptions::ca_certificates)",
            ));
        }
        if credentials.want_tls() && !tls {
            return Err(Error::invalid(
                "certificates were given, and the URL is not rediss://: nothing would be encrypted",
            ));
        }
        #[cfg(feature = "tls")]
        if tls {
            // redis-rs uses the process-wide provider, and panics without one if several are compiled
            // in. A provider that the program has installed stays.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        Ok(Self {
            info,
            credentials: Arc::clone(credentials),
            is_server: true,
        })
    }

    /// The target for a Sentinel, with the certificates of this target.
    pub(crate) fn sentinel(&self, info: ConnectionInfo) -> Self {
        Self {
            info,
            credentials: Arc::clone(&self.credentials),
            is_server: false,
        }
    }

    /// User, database and address of the URL, without what the credentials add.
    pub(crate) fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    /// The address of the target; `None` for a Unix socket.
    pub(crate) fn address(&self) -> Option<Address> {
        Address::of(&self.info)
    }

    /// This target at another address.
    pub(crate) fn at(&self, host: String, port: u16) -> Self {
        let addr = match self.info.addr().clone() {
            ConnectionAddr::TcpTls {
                insecure,
                tls_params,
                ..
            } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure,
                tls_params,
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        Self {
            info: self.info.clone().set_addr(addr),
            ..self.clone()
        }
    }

    /// The secrets as they are now: see [`Credentials::current`].
    pub(crate) async fn secrets(&self) -> Result<Arc<Secrets>, Error> {
        self.credentials.current(self.is_server).await
    }

    /// Makes a client for a new connection, with the present secrets.
    pub(crate) async fn client(&self) -> Result<Client, Error> {
        let secrets = self.secrets().await?;
        self.client_with(&secrets)
    }

    /// A client that opens its connections with these secrets.
    pub(crate) fn client_with(&self, secrets: &Secrets) -> Result<Client, Error> {
        let mut info = self.info.clone();
        #[cfg(feature = "tls")]
        if self.credentials.want_tls() {
            info = with_certificates(info, secrets)?;
        }
        if let Some(password) = secrets.password.as_ref().filter(|_| self.is_server) {
            let settings = info.redis_settings().clone();
            info = info.set_redis_settings(settings.set_password(password));
        }
        // Set last, because adding certificates makes a client with default settings.
        Client::open(info.set_tcp_settings(tcp_settings()))
            .map_err(|error| failure::of_connecting(&self.info.addr().to_string(), error))
    }
}

#[cfg(test)]
impl From<ConnectionInfo> for Target {
    fn from(info: ConnectionInfo) -> Self {
        Self::new(info, &Arc::default()).expect("a target")
    }
}

/// TCP settings: keep-alive probes keep idle connections known to firewalls, and end those whose
/// other side has vanished. Data that is not delivered within the limit of a call is never
/// delivered, because the call was repeated.
fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE);
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    return TcpSettings::default()
        .set_keepalive(keepalive.with_interval(KEEPALIVE_INTERVAL))
        .set_user_timeout(RESPONSE_LIMIT);
    #[cfg(not(any(target_os = "android", target_os = "fuchsia", target_os = "linux")))]
    TcpSettings::default().set_keepalive(keepalive)
}

#[cfg(feature = "tls")]
fn with_certificates(info: ConnectionInfo, secrets: &Secrets) -> Result<ConnectionInfo, Error> {
    let client = secrets.client.clone();
    let certificates = TlsCertificates {
        client_tls: client.map(|[client_cert, client_key]| ClientTlsConfig {
            client_cert,
            client_key,
        }),
        root_cert: secrets.ca.clone(),
    };
    let client = Client::build_with_tls(info, certificates).map_err(|error| {
        let message = format!("the certificates, or the key, cannot be read as PEM: {error}");
        Error::with_source(ErrorKind::InvalidInput, Applied::No, message, error)
    })?;
    Ok(client.get_connection_info().clone())
}
