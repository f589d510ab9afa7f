//! The options of a connection beside its URL.

use std::fmt;

/// How to connect, beside the URL: [`Client::connect_with`](crate::Client::connect_with).
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use dueq::{Client, ClientOptions};
///
/// let options = ClientOptions::new()
///     .ca_certificates(std::fs::read("ca.pem")?)
///     .client_certificate(std::fs::read("client.pem")?, std::fs::read("client.key")?);
/// let client = Client::connect_with("rediss://redis.internal/", &options).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct ClientOptions {
    pub(crate) ca_certificates: Option<Vec<u8>>,
    pub(crate) client_certificate: Option<(Vec<u8>, Vec<u8>)>,
    pub(crate) accept_unfit: bool,
}

impl ClientOptions {
    /// As [`Client::connect`](crate::Client::connect) connects.
    pub fn new() -> Self {
        Self::default()
    }

    /// The CA certificates, in PEM, that may have signed the server's certificate, instead of those
    /// that this machine trusts. Only with `rediss://`.
    #[must_use]
    pub fn ca_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca_certificates = Some(pem.into());
        self
    }

    /// The certificate that the server asks for, and its key, both in PEM. Only with `rediss://`.
    #[must_use]
    pub fn client_certificate(
        mut self,
        certificate_pem: impl Into<Vec<u8>>,
        key_pem: impl Into<Vec<u8>>,
    ) -> Self {
        self.client_certificate = Some((certificate_pem.into(), key_pem.into()));
        self
    }

    /// Connects also to a server that is too old or evicts keys: for programs that diagnose it. A
    /// queue there may lose messages while every call succeeds.
    #[must_use]
    pub fn accept_unfit(mut self) -> Self {
        self.accept_unfit = true;
        self
    }

    /// Whether an option needs TLS.
    pub(crate) fn want_tls(&self) -> bool {
        self.ca_certificates.is_some() || self.client_certificate.is_some()
    }
}

/// Without the contents of the certificates.
impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientOptions")
            .field("ca_certificates", &self.ca_certificates.is_some())
            .field("client_certificate", &self.client_certificate.is_some())
            .field("accept_unfit", &self.accept_unfit)
            .finish()
    }
}
