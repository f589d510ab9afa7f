//! The options of a connection besides its URL.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::server::connect::credentials::{PasswordSource, Pem};

/// The options of a connection besides its URL, for
/// [`Client::connect_with`](crate::Client::connect_with).
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use dueq::{Client, ClientOptions};
///
/// let options = ClientOptions::new()
///     .ca_certificates_file("ca.pem")
///     .client_certificate_files("client.pem", "client.key");
/// let client = Client::connect_with("rediss://redis.internal/", &options).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct ClientOptions {
    pub(crate) ca_certificates: Option<Pem>,
    pub(crate) client_certificate: Option<[Pem; 2]>,
    pub(crate) password: Option<PasswordSource>,
    pub(crate) accept_unfit: bool,
}

impl ClientOptions {
    /// Options that connect as [`Client::connect`](crate::Client::connect) does.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the CA certificates, in PEM, that may have signed the server's certificate. They
    /// replace those that this machine trusts. Only with `rediss://`.
    #[must_use]
    pub fn ca_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca_certificates = Some(Pem::Given(pem.into()));
        self
    }

    /// Sets the CA certificates as [`ca_certificates`](ClientOptions::ca_certificates) does, from a
    /// file that is read for each new connection: the file may be renewed at any time. While it
    /// cannot be used, the last good certificates stay in use, and an event says why.
    #[must_use]
    pub fn ca_certificates_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_certificates = Some(Pem::File(path.into()));
        self
    }

    /// Sets the client's certificate, for which the server asks, and its key, both in PEM. Only
    /// with `rediss://`.
    #[must_use]
    pub fn client_certificate(
        mut self,
        certificate_pem: impl Into<Vec<u8>>,
        key_pem: impl Into<Vec<u8>>,
    ) -> Self {
        let (certificate, key) = (certificate_pem.into(), key_pem.into());
        self.client_certificate = Some([Pem::Given(certificate), Pem::Given(key)]);
        self
    }

    /// Sets the client's certificate and key as
    /// [`client_certificate`](ClientOptions::client_certificate) does, from files that are read for
    /// each new connection: the files may be renewed at any time. While they cannot be used, for
    /// example because only one of them is renewed yet, the last good pair stays in use, and an
    /// event says why.
    #[must_use]
    pub fn client_certificate_files(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.client_certificate = Some([Pem::File(certificate.into()), Pem::File(key.into())]);
        self
    }

    /// Sets the password of the URL's user, from a file that is read for each new connection. Line
    /// ends at the end of the file are not part of the password. The URL must not contain a
    /// password.
    #[must_use]
    pub fn password_file(self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        self.password_from(move || {
            let text = std::fs::read_to_string(&path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            match text.trim_end_matches(['\r', '\n']) {
                "" => Err(format!("{} is empty", path.display())),
                password => Ok(password.to_owned()),
            }
        })
    }

    /// Sets the password of the URL's user, from a function that is called for each new connection,
    /// on a thread that may block. After an error the last password stays in use, and an event says
    /// why: the error must not contain the password.
    #[must_use]
    pub fn password_from(
        mut self,
        source: impl Fn() -> Result<String, String> + Send + Sync + 'static,
    ) -> Self {
        self.password = Some(Arc::new(source));
        self
    }

    /// Allows connecting to a server that is too old or evicts keys: for programs that diagnose
    /// such a server. A queue there may lose messages while every call succeeds.
    #[must_use]
    pub fn accept_unfit(mut self) -> Self {
        self.accept_unfit = true;
        self
    }
}

/// Debug output omits the contents of the certificates and the password.
impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientOptions")
            .field("ca_certificates", &self.ca_certificates.is_some())
            .field("client_certificate", &self.client_certificate.is_some())
            .field("password", &self.password.is_some())
            .field("accept_unfit", &self.accept_unfit)
            .finish()
    }
}
