//! TLS of the server.

use std::fs;
use std::sync::Arc;

use anyhow::Result;
use dueq_serve::TlsFiles;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::instance::{Answer, Instance};

/// Sends a request over TLS, trusting only this certificate, and returns the answer.
async fn ask(instance: &Instance, trusted: &CertificateDer<'static>, path: &str) -> Result<Answer> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone())?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost")?;
    let stream = instance.connect().await?;
    let mut stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await?;
    let port = instance.address.port();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Answer::parse(&text)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_complete_new_certificate_is_served() -> Result<()> {
    let certify = |folder: &std::path::Path| -> Result<CertificateDer<'static>> {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()])?;
        fs::write(folder.join("cert.pem"), cert.pem())?;
        fs::write(folder.join("key.pem"), signing_key.serialize_pem())?;
        Ok(cert.der().clone())
    };
    let mut first = None;
    let instance = Instance::start(|config, folder| {
        first = Some(certify(folder)?);
        config.tls = Some(TlsFiles {
            certificate: folder.join("cert.pem"),
            key: folder.join("key.pem"),
        });
        Ok(Vec::new())
    })
    .await?;
    let first = first.expect("a certificate");
    let answer = ask(&instance, &first, "/v1/queues").await?;
    assert_eq!(answer.status, 200);
    let strict = answer.header("strict-transport-security");
    assert_eq!(strict, Some("max-age=31536000"));
    // A client that speaks plain HTTP gets no answer.
    let plain = format!(
        "GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n",
        instance.address
    );
    assert!(
        !instance
            .raw_text(plain.as_bytes())
            .await?
            .contains("HTTP/1.1")
    );
    let second = certify(&instance.folder)?;
    assert_eq!(ask(&instance, &second, "/v1/queues").await?.status, 200);
    assert!(
        ask(&instance, &first, "/v1/queues").await.is_err(),
        "the old one is served"
    );
    // A broken file, or a key of another certificate, changes nothing.
    let key = fs::read(instance.folder.join("key.pem"))?;
    let other = rcgen::KeyPair::generate()?.serialize_pem();
    for broken in ["x", &other] {
        fs::write(instance.folder.join("key.pem"), broken)?;
        assert_eq!(ask(&instance, &second, "/v1/queues").await?.status, 200);
        instance.control.reload();
        assert_eq!(ask(&instance, &second, "/v1/queues").await?.status, 200);
    }
    fs::write(instance.folder.join("key.pem"), key)?;
    assert_eq!(ask(&instance, &second, "/v1/queues").await?.status, 200);
    Ok(())
}
