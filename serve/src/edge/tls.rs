//! The TLS certificate of a [`Server`](crate::Server).

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::edge::Error;
use crate::edge::auth::{Stamp, stamp};

/// The files of the certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by those of its issuers (PEM).
    pub certificate: PathBuf,
    /// The key of the certificate (PEM).
    pub key: PathBuf,
}

/// The certificate for new connections. Its files are read again when they have changed.
pub(crate) struct Tls {
    files: TlsFiles,
    state: Mutex<State>,
}

struct State {
    /// The stamps of the two files, taken before the files were read.
    stamps: [Option<Stamp>; 2],
    /// The configuration with the last certificate that could be read.
    config: Arc<ServerConfig>,
    /// Why the files cannot be used now: one may be half-written, or the two may not match yet.
    failure: Option<String>,
}

impl Tls {
    pub(crate) fn open(files: &TlsFiles) -> Result<Self, Error> {
        let stamps = stamps(files);
        let config = Arc::new(read(files).map_err(Error::Config)?);
        Ok(Self {
            files: files.clone(),
            state: Mutex::new(State {
                stamps,
                config,
                failure: None,
            }),
        })
    }

    /// Reads the files again, even if they seem unchanged. If that fails, the old certificate stays
    /// in use.
    pub(crate) fn reload(&self) {
        self.look(true);
    }

    /// The acceptor for a new connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.look(false))
    }

    fn look(&self, is_forced: bool) -> Arc<ServerConfig> {
        let stamps = stamps(&self.files);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if stamps == state.stamps && state.failure.is_none() && !is_forced {
            return Arc::clone(&state.config);
        }
        state.stamps = stamps;
        match read(&self.files) {
            Ok(config) => (state.config, state.failure) = (Arc::new(config), None),
            Err(error) => {
                if state.failure.as_ref() != Some(&error) {
                    tracing::error!(name: "dueq_serve.tls_unreadable", ?error, "the old certificate stays in use, and the next connection reads the files again");
                }
                state.failure = Some(error);
            }
        }
        Arc::clone(&state.config)
    }
}

fn stamps(files: &TlsFiles) -> [Option<Stamp>; 2] {
    [stamp(&files.certificate), stamp(&files.key)]
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
    // Use a crypto provider of our own: the process may have installed another one, or none.
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
