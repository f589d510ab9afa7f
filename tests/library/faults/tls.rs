//! `rediss://` connections to a server with its own certificate.

use std::fs;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use dueq::{Client, ClientOptions, Delivery, ErrorKind};
use dueq_testkit::cluster::Cluster;
use dueq_testkit::{Failover, Server};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::support::child::{Process, Role};
use crate::support::{acking, seen};

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
        .push(DnType::CommonName, "worker"); // OpenSSL must not take it for the issuer
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

/// A producer and a worker continue while the password of their user changes on all these servers.
async fn go_on(url: &str, servers: &[Server]) -> Result<()> {
    let all = |words: &[&str]| {
        servers.iter().try_for_each(|server| {
            let reply = server.command(words)?;
            ensure!(!reply.starts_with('-'), "{words:?}: {reply}");
            anyhow::Ok(())
        })
    };
    all(&["ACL", "SETUSER", "me", "on", ">0", "~*", "&*", "+@all"])?;
    let password = Arc::new(Mutex::new("0".to_owned()));
    let options = ClientOptions::new().password_from({
        let password = Arc::clone(&password);
        move || {
            Ok(password
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone())
        }
    });
    let client = Client::connect_with(&url.replace("://", "://me@"), &options).await?;
    let queue = client.queue("orders")?;
    let (sender, mut handled) = seen();
    let handler = move |delivery: Delivery| {
        let _ = sender.send(delivery.id().to_string());
        async {}
    };
    let worker = client.worker().queue(&queue, handler).spawn()?;
    for renewal in 1..4 {
        queue.push("").id(format!("{renewal}")).await?;
        while handled.next().await? != renewal.to_string() {}
        let (old, new) = (format!("<{}", renewal - 1), format!(">{renewal}"));
        all(&["ACL", "SETUSER", "me", &new])?;
        *password.lock().unwrap_or_else(PoisonError::into_inner) = renewal.to_string();
        all(&["ACL", "SETUSER", "me", &old])?;
        all(&["CLIENT", "KILL", "USER", "me"])?;
    }
    Ok(worker.shutdown().await?)
}

#[tokio::test]
async fn cluster_connections_use_a_renewed_password() -> Result<()> {
    let cluster = Cluster::start(3).await?;
    go_on(&cluster.url(), &cluster.masters).await
}

#[tokio::test]
async fn sentinel_connections_use_a_renewed_password() -> Result<()> {
    let failover = Failover::start(1, &[])?;
    go_on(&failover.url(), &failover.servers).await
}

#[tokio::test]
async fn password_in_both_url_and_options_is_refused() -> Result<()> {
    let options = ClientOptions::new().password_from(|| Err("the vault is sealed".to_owned()));
    for (url, why) in [
        (
            "redis://me:secret@127.0.0.1:1/",
            "leave out that of the URL",
        ),
        ("redis://me@127.0.0.1:1/", "the vault is sealed"),
    ] {
        let error = Client::connect_with(url, &options).await.expect_err(why);
        ensure!(error.to_string().contains(why), "{error}");
        ensure!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
    Ok(())
}
