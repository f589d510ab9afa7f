//! TLS of a server of its own.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::Error;

/// The files of a server's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and those of its issuers (PEM).
    pub certificate: PathBuf,
    /// The key of the certificate (PEM).
    pub key: PathBuf,
}

/// The certificate as it was read last.
pub(crate) struct Tls {
    files: TlsFiles,
    current: Mutex<Arc<ServerConfig>>,
}

impl Tls {
    pub(crate) fn open(files: &TlsFiles) -> Result<Self, Error> {
        let config = read(files).map_err(Error::Config)?;
        Ok(Self {
            files: files.clone(),
            current: Mutex::new(Arc::new(config)),
        })
    }

    /// Reads the files again: the certificate was renewed. If that fails, the old one stays.
    pub(crate) fn reload(&self) {
        match read(&self.files) {
            Ok(config) => *self.lock() = Arc::new(config),
            Err(error) => {
                tracing::error!(name: "dueq_serve.tls_unreadable", ?error, "the old certificate stays in use");
            }
        }
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.lock()))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Arc<ServerConfig>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(files: &TlsFiles) -> Result<ServerConfig, String> {
    let unread = |path: &Path, error: &dyn std::fmt::Display| {
        format!("{}: cannot read a PEM file: {error}", path.display())
    };
    let (certificate, key) = (&files.certificate, &files.key);
    let chain: Vec<_> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|error| unread(certificate, &error))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unread(key, &error))?;
    // Its own provider: the process may have another one, or none.
    let provider = Arc::new(ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| format!("{} and {}: {error}", certificate.display(), key.display()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
