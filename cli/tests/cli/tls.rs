//! A server with TLS that asks for a client certificate.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Result, bail};
use dueq_testkit::Server;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::{DUEQ, text};

fn with(folder: &Path, url: &str, flags: &[(&str, &str)]) -> Result<Output> {
    let mut command = Command::new(DUEQ);
    command
        .args(["push", "q", "x", "--redis", url])
        .env("RUST_LOG", "error");
    for (flag, file) in flags {
        command.arg(flag).arg(folder.join(file));
    }
    Ok(command.output()?)
}

#[test]
fn certificates_come_from_options_or_environment() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("dueq-test-cli-tls-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let tested = in_folder(&folder);
    fs::remove_dir_all(&folder)?;
    tested
}

fn in_folder(folder: &Path) -> Result<()> {
    let mut ca = CertificateParams::new([])?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate()?;
    fs::write(folder.join("ca"), ca.self_signed(&ca_key)?.pem())?;
    let issuer = Issuer::new(ca, ca_key);
    for (name, of) in [("server", "localhost"), ("client", "worker")] {
        let key = KeyPair::generate()?;
        let mut certificate = CertificateParams::new([of.to_owned()])?;
        certificate.distinguished_name.push(DnType::CommonName, of); // or OpenSSL takes it for the issuer's own
        fs::write(
            folder.join(name),
            certificate.signed_by(&key, &issuer)?.pem(),
        )?;
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem())?;
    }

    let port = TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port()
        .to_string();
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (ca, certificate, key) = (path("ca"), path("server"), path("server.key"));
    let files = [
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
    ];
    let server = match Server::start(
        &[
            &["--tls-port", &port, "--tls-auth-clients", "yes"],
            &files[..],
        ]
        .concat(),
    ) {
        Ok(server) => server,
        Err(error)
            if error.to_string().contains("Bad directive")
                || error.to_string().contains("tls-port")
                || error.to_string().contains("TLS support") =>
        {
            writeln!(
                std::io::stderr(),
                "SKIPPED: {} was built without TLS",
                dueq_testkit::program()?.display()
            )?;
            return Ok(());
        }
        Err(error) => bail!(error),
    };
    let url = format!("rediss://localhost:{port}/");
    let all = [
        ("--cacert", "ca"),
        ("--cert", "client"),
        ("--key", "client.key"),
    ];
    let output = with(folder, &url, &all)?;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for (flags, code, why) in [
        (&all[..1], 1, "localhost"), // the server wants a certificate
        (&all[1..], 1, "--cacert"),  // this machine does not trust it
        (&all[..2], 2, "--cert needs --key"),
        (&[("--cacert", "absent")], 1, "cannot read"),
        (&[("--cacert", "client.key")], 2, "PEM"),
    ] {
        let output = with(folder, &url, flags)?;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {said}");
        assert!(said.contains(why), "{flags:?}: {said}");
    }
    let output = with(folder, &server.url(), &all[..1])?;
    assert!(
        text(&output.stderr).contains("not rediss://"),
        "{}",
        text(&output.stderr)
    );

    let mut command = Command::new(DUEQ);
    command.args(["push", "q", "x", "--redis", &url]);
    let output = command
        .env("RUST_LOG", "error")
        .env("DUEQ_CACERT", path("ca"))
        .env("DUEQ_CERT", path("client"))
        .env("DUEQ_KEY", path("client.key"))
        .output()?;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    Ok(())
}
