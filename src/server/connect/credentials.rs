//! The certificates and the password of new connections. For each new connection files are read and
//! the source of passwords is asked, because both may be renewed while the program runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, timeout_at};

use crate::error::Error;
use crate::server::connect::options::ClientOptions;
use crate::telemetry::events;

/// How long new connections wait for the source of passwords while the last password may still
/// work: the source may hang in the same outage in which all connections are opened again.
const SOURCE_LIMIT: Duration = Duration::from_secs(1);

/// Certificates or a key in PEM.
#[derive(Clone)]
pub(crate) enum Pem {
    Given(Vec<u8>),
    File(PathBuf),
}

/// A function that returns the password for a new connection, or why there is none.
pub(crate) type PasswordSource = Arc<dyn Fn() -> Result<String, String> + Send + Sync>;

/// The certificates, key and password that prove who connects and whom to trust.
#[derive(Default)]
pub(crate) struct Credentials {
    ca: Option<Pem>,
    client: Option<[Pem; 2]>,
    password: Option<PasswordSource>,
    last: Mutex<Last>,
}

/// The contents of the credentials for a new connection.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct Secrets {
    pub(crate) ca: Option<Vec<u8>>,
    /// The client's certificate and its key.
    pub(crate) client: Option<[Vec<u8>; 2]>,
    pub(crate) password: Option<String>,
}

/// The last contents that could be used.
#[derive(Default)]
struct Last {
    ca: Kept<Vec<u8>>,
    client: Kept<[Vec<u8>; 2]>,
    password: Kept<String>,
    /// The unanswered question to the source of passwords, and when it was asked.
    asking: Option<(Instant, JoinHandle<Result<String, String>>)>,
    secrets: Arc<Secrets>,
}

impl Last {
    /// The password that the source returns now. `None` if the source takes longer than the limit
    /// and there is a last good password; a later call takes the late answer.
    async fn asked(&mut self, source: &PasswordSource) -> Option<Result<String, String>> {
        let (since, question) = self.asking.get_or_insert_with(|| {
            let source = Arc::clone(source);
            (Instant::now(), spawn_blocking(move || source()))
        });
        let answer = match self.password.good {
            Some(_) => timeout_at(*since + SOURCE_LIMIT, question).await.ok()?,
            None => question.await,
        };
        self.asking = None;
        Some(answer.unwrap_or_else(|_| Err("its source has panicked".to_owned())))
    }
}

impl Credentials {
    pub(crate) fn new(options: &ClientOptions) -> Self {
        Self {
            ca: options.ca_certificates.clone(),
            client: options.client_certificate.clone(),
            password: options.password.clone(),
            last: Mutex::default(),
        }
    }

    pub(crate) fn has_password(&self) -> bool {
        self.password.is_some()
    }

    /// Whether any of these credentials needs TLS.
    pub(crate) fn want_tls(&self) -> bool {
        self.ca.is_some() || self.client.is_some()
    }

    /// The secrets as they are now. Without `with_password` the source of passwords is not asked.
    /// The `Arc` stays the same until a secret changes. New contents that cannot be used are
    /// reported, and the last good ones stay in use: files may be half-written.
    ///
    /// # Errors
    /// `InvalidInput` if there were never usable contents.
    pub(crate) async fn current(&self, with_password: bool) -> Result<Arc<Secrets>, Error> {
        let mut last = self.last.lock().await;
        let mut new = Secrets::default();
        if let Some(ca) = &self.ca {
            new.ca = Some(last.ca.or_last(ca.read(), |pem| check_ca(ca, pem))?);
        }
        if let Some([certificate, key]) = &self.client {
            let read = || Ok([certificate.read()?, key.read()?]);
            let check = |pems: &_| check_pair([certificate, key], pems);
            new.client = Some(last.client.or_last(read(), check)?);
        }
        let asked = match &self.password {
            Some(source) if with_password => last.asked(source).await,
            _ => None,
        };
        new.password = match asked {
            Some(asked) => {
                let asked = asked.map_err(|reason| format!("no password for redis: {reason}"));
                Some(last.password.or_last(asked, |_| Ok(()))?)
            }
            None => last.password.good.clone(),
        };
        if *last.secrets != new {
            last.secrets = Arc::new(new);
        }
        Ok(Arc::clone(&last.secrets))
    }
}

/// A value whose last good version stays in use while a new one cannot be used.
struct Kept<T> {
    good: Option<T>,
    /// Why the newest version cannot be used; each reason is reported once.
    reported: Option<String>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self {
            good: None,
            reported: None,
        }
    }
}

impl<T: Clone + PartialEq> Kept<T> {
    /// Returns the new value if it passes the check, otherwise the last good one.
    fn or_last(
        &mut self,
        read: Result<T, String>,
        check: impl Fn(&T) -> Result<(), String>,
    ) -> Result<T, Error> {
        let checked = read.and_then(|new| {
            if self.good.as_ref() != Some(&new) {
                check(&new)?;
            }
            Ok(new)
        });
        match (checked, &self.good) {
            (Ok(new), _) => {
                self.reported = None;
                Ok(self.good.insert(new).clone())
            }
            (Err(reason), Some(good)) => {
                if self.reported.as_ref() != Some(&reason) {
                    events::credentials_unusable(&reason);
                    self.reported = Some(reason);
                }
                Ok(good.clone())
            }
            (Err(reason), None) => Err(Error::invalid(reason)),
        }
    }
}

impl Pem {
    fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::Given(pem) => Ok(pem.clone()),
            Self::File(path) => std::fs::read(path)
                .map_err(|error| format!("cannot read {}: {error}", path.display())),
        }
    }

    /// The name of the source for errors: its file, or `given`.
    #[cfg(feature = "tls")]
    fn name(&self, given: &str) -> String {
        match self {
            Self::Given(_) => given.to_owned(),
            Self::File(path) => path.display().to_string(),
        }
    }
}

/// Refuses an empty list of authorities, which rustls would accept and then trust no server.
#[cfg(feature = "tls")]
fn check_ca(source: &Pem, pem: &[u8]) -> Result<(), String> {
    use rustls::RootCertStore;
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let name = source.name("what was given as the CA's certificates");
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("{name} is no PEM: {error}"))?;
        let added = roots.add(certificate);
        added.map_err(|error| format!("{name} holds a wrong certificate: {error}"))?;
    }
    match roots.is_empty() {
        true => Err(format!("{name} holds no CA certificate in PEM")),
        false => Ok(()),
    }
}

/// Checks a certificate and its key, also that they belong together: while they are renewed, one
/// file may be the old one.
#[cfg(feature = "tls")]
fn check_pair(sources: [&Pem; 2], pems: &[Vec<u8>; 2]) -> Result<(), String> {
    use rustls::crypto::{CryptoProvider, ring};
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
    let [certificate, key] = sources;
    let certificate = certificate.name("the client certificate that was given");
    let key = key.name("the key that was given");
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&pems[0])
        .collect::<Result<_, _>>()
        .map_err(|error| format!("{certificate} is no certificate in PEM: {error}"))?;
    let secret = PrivateKeyDer::from_pem_slice(&pems[1])
        .map_err(|error| format!("{key} is no key in PEM: {error}"))?;
    let provider = CryptoProvider::get_default()
        .map_or_else(|| Arc::new(ring::default_provider()), Arc::clone);
    rustls::sign::CertifiedKey::from_der(chain, secret, &provider)
        .map(drop)
        .map_err(|error| format!("{certificate} and {key} do not belong together: {error}"))
}

#[cfg(not(feature = "tls"))]
fn check_ca(_: &Pem, _: &[u8]) -> Result<(), String> {
    Ok(())
}

#[cfg(not(feature = "tls"))]
fn check_pair(_: [&Pem; 2], _: &[Vec<u8>; 2]) -> Result<(), String> {
    Ok(())
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use std::fs;
    use std::path::Path;

    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use super::*;
    use crate::error::ErrorKind;

    async fn now(credentials: &Credentials) -> Arc<Secrets> {
        credentials.current(true).await.expect("secrets")
    }

    /// Makes a certificate and its key.
    fn pair() -> [String; 2] {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        [cert.pem(), signing_key.serialize_pem()]
    }

    fn write(folder: &Path, name: &str, text: &str) {
        fs::write(folder.join(name), text).expect("a file");
    }

    #[tokio::test]
    async fn last_good_credentials_are_used_until_new_ones_are_complete() {
        let folder = std::env::temp_dir().join(format!("dueq-credentials-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let [first, second] = [pair(), pair()];
        let options = ClientOptions::new()
            .ca_certificates_file(folder.join("ca"))
            .client_certificate_files(folder.join("cert"), folder.join("key"))
            .password_file(folder.join("password"));
        let credentials = Credentials::new(&options);
        let error = credentials.current(true).await.err().expect("no files");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        for (name, text) in [("ca", &first[0]), ("cert", &first[0]), ("key", &first[1])] {
            write(&folder, name, text);
        }
        write(&folder, "password", "one\n");
        let before = now(&credentials).await;
        assert_eq!(before.password.as_deref(), Some("one"));
        // Each row is a state in which a renewal is not complete.
        for (name, text) in [
            ("cert", ""),
            ("cert", "-----BEGIN CERTIFICATE-----\nMII"),
            ("cert", &second[0]),
            ("key", &second[1][..40]),
            ("ca", ""),
            ("password", "\n"),
        ] {
            write(&folder, name, text);
            assert!(
                Arc::ptr_eq(&now(&credentials).await, &before),
                "{name}: {text}"
            );
        }
        fs::remove_file(folder.join("password")).expect("a file");
        assert!(Arc::ptr_eq(&now(&credentials).await, &before));
        // Each file is used once it is renewed, whatever the state of the others.
        write(&folder, "key", &second[1]);
        let client = second.map(String::into_bytes);
        assert!(now(&credentials).await.client.as_ref() == Some(&client));
        write(&folder, "password", "two");
        let after = now(&credentials).await;
        assert_eq!(after.password.as_deref(), Some("two"));
        assert_eq!(after.ca, before.ca);
        fs::remove_dir_all(folder).expect("the folder");
    }
}
