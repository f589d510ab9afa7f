//! `rediss://` connections to a server with its own certificate.

use std::fs;
use std::io::Write;
use std::time::Duration;

use anyhow::{Result, bail};
use dueq::{Client, ClientOptions, ErrorKind};
use dueq_testkit::Server;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::support::acking;
use crate::support::child::{Process, Role};

#[tokio::test]
async fn only_a_trusted_certificate_is_accepted() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("dueq-test-tls-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let tested = with_certificates(&folder).await;
    fs::remove_dir_all(&folder)?;
    tested
}

async fn with_certificates(folder: &std::path::Path) -> Result<()> {
    let mut ca = CertificateParams::new([])?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let (ca_key, key) = (KeyPair::generate()?, KeyPair::generate()?);
    let ca_pem = ca.self_signed(&ca_key)?.pem();
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let issuer = Issuer::new(ca, ca_key);
    let pem = CertificateParams::new(names)?
        .signed_by(&key, &issuer)?
        .pem();
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    fs::write(path("ca"), ca_pem)?;
    fs::write(path("certificate"), pem)?;
    fs::write(path("key"), key.serialize_pem())?;

    let reserved = dueq_testkit::Port::reserve()?;
    let port = reserved.number().to_string();
    let files = [
        "--tls-cert-file",
        &path("certificate"),
        "--tls-key-file",
        &path("key"),
        "--tls-ca-cert-file",
        &path("ca"),
    ];
    let arguments = [
        &["--tls-port", &port, "--tls-auth-clients", "no"],
        &files[..],
    ]
    .concat();
    let server = match Server::start(&arguments) {
        Ok(server) => server,
        // Redis 7.0 to 8 and Valkey print these words if they were built without TLS.
        Err(error)
            if error.to_string().contains("Bad directive")
                || error.to_string().contains("tls-port")
                || error.to_string().contains("TLS support") =>
        {
            // The harness would capture the output of a macro, so write to stderr directly.
            writeln!(
                std::io::stderr(),
                "SKIPPED: {} was built without TLS",
                dueq_testkit::program()?.display()
            )?;
            return Ok(());
        }
        Err(error) => bail!(error),
    };
    for host in ["localhost", "127.0.0.1"] {
        let url = format!("rediss://{host}:{port}/");
        // The process reads the trusted certificates from its environment.
        let mut process = Process::start(Role::Once, &url, &[("SSL_CERT_FILE", &path("ca"))])?;
        assert_eq!(process.says().await?, "done");
        let error = Client::connect(&url).await.expect_err("an unknown issuer");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(
            error.to_string().contains(&format!("{host}:{port}")),
            "{error}"
        );
        let trusting = ClientOptions::new().ca_certificates(fs::read(path("ca"))?);
        works(&url, &trusting).await?;
        let error = Client::connect_with(&url, &ClientOptions::new().ca_certificates("x"))
            .await
            .expect_err("no PEM");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }

    // From here on the server requires a client certificate.
    server.command(&["CONFIG", "SET", "tls-auth-clients", "yes"])?;
    let (url, key) = (format!("rediss://localhost:{port}/"), KeyPair::generate()?);
    let mut certificate = CertificateParams::new([])?;
    certificate
        .distinguished_name
        .push(DnType::CommonName, "worker"); // otherwise OpenSSL takes it for the issuer
    let certificate = certificate.signed_by(&key, &issuer)?.pem();
    let trusting = ClientOptions::new().ca_certificates(fs::read(path("ca"))?);
    let error = Client::connect_with(&url, &trusting)
        .await
        .expect_err("no certificate");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let known = trusting.client_certificate(certificate.clone(), key.serialize_pem());
    assert!(!format!("{known:?}").contains("BEGIN"), "{known:?}");
    works(&url, &known).await?;
    let error = Client::connect_with(&server.url(), &known)
        .await
        .expect_err("no TLS");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    let unread = ClientOptions::new().client_certificate(certificate, "no key");
    let error = Client::connect_with(&url, &unread)
        .await
        .expect_err("no PEM");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    Ok(())
}

/// A worker needs every kind of connection: pool, wake-up list and notices.
async fn works(url: &str, options: &ClientOptions) -> Result<()> {
    let queue = Client::connect_with(url, options).await?.queue("orders")?;
    let (worker, mut handled) = acking(queue.worker());
    queue
        .push("x")
        .id("x")
        .due(Duration::from_millis(20))
        .await?;
    assert_eq!(handled.next().await?, "x");
    worker.stop().await
}
