//! `dueq healthcheck`, and what SIGHUP does to `dueq serve`.

use std::process::Command;

use anyhow::{Context, Result};
use dueq_testkit::Server;

use crate::serving::serve::Serve;
use crate::work::service::Systemd;
use crate::{DUEQ, Said, command, dueq};

fn healthcheck(args: &[&str]) -> Result<(Option<i32>, String)> {
    let output = Command::new(DUEQ).arg("healthcheck").args(args).output()?;
    Ok((output.code(), output.out() + &output.err()))
}

#[test]
fn healthcheck_exits_with_0_for_200_and_else_with_the_reason() -> Result<()> {
    let mut server = Server::start(&[])?;
    let serve = Serve::start(&server, &[])?;
    let url = |path: &str| format!("http://{}{path}", serve.address());
    assert_eq!(
        healthcheck(&[&url("/healthz")])?,
        (Some(0), format!("healthy: {}\n", url("/healthz")))
    );
    assert_eq!(healthcheck(&[&url("/readyz"), "--json"])?.0, Some(0));
    server.kill()?;
    // The server asks Redis again after a second.
    while healthcheck(&[&url("/readyz")])?.0 == Some(0) {}
    assert_eq!(healthcheck(&[&url("/healthz")])?.0, Some(0));
    for (url, code, reason) in [
        (url("/readyz"), 1, "answers 503"),
        (url("/nothing"), 1, "answers 404"),
        (
            "http://127.0.0.1:1/healthz".to_owned(),
            1,
            "does not answer",
        ),
        ("127.0.0.1:8377".to_owned(), 2, "needs a URL"),
    ] {
        let (found, said) = healthcheck(&[&url])?;
        assert_eq!(found, Some(code), "{url}: {said}");
        assert!(said.contains(reason), "{url}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    Ok(())
}

#[test]
fn healthcheck_needs_ca_certificates_for_https_only() -> Result<()> {
    let server = Server::start(&[])?;
    let serve = Serve::start(&server, &[])?;
    let address = serve.address();
    for (url, code, text) in [
        (format!("http://{address}/healthz"), 0, "healthy"),
        (format!("https://{address}/healthz"), 1, "CA certificate"),
    ] {
        let output = Command::new(DUEQ)
            .args(["healthcheck", &url])
            .env("SSL_CERT_FILE", "/absent")
            .env("SSL_CERT_DIR", "/absent")
            .output()?;
        let said = output.out() + &output.err();
        assert_eq!(output.code(), Some(code), "{url}: {said}");
        assert!(said.contains(text), "{url}: {said}");
    }
    Ok(())
}

#[test]
fn healthcheck_prints_no_password_of_its_url() -> Result<()> {
    let server = Server::start(&[])?;
    let serve = Serve::start(&server, &[])?;
    for (address, args) in [
        (serve.address(), &[][..]),
        (serve.address(), &["--json"]),
        ("127.0.0.1:1", &[]),
    ] {
        let url = format!("http://somebody:secret@{address}/healthz");
        let said = healthcheck(&[&[&*url], args].concat())?.1;
        assert!(said.contains(address), "{said}");
        assert!(
            !said.contains("secret") && !said.contains("somebody"),
            "{said}"
        );
    }
    Ok(())
}

#[test]
fn hang_up_of_serve_reports_files_that_it_cannot_read() -> Result<()> {
    let server = Server::start(&[])?;
    let systemd = Systemd::listen("serve")?;
    let tokens = systemd.path("dueq.tokens");
    let tokens = tokens.to_str().context("UTF-8")?;
    let token = [
        "serve", "token", "ops", "--role", "viewer", "--tokens", tokens,
    ];
    let token = dueq(&server, &token)?.out();
    // The credential that a unit of systemd gets replaces --tokens.
    let serve = Serve::start_by(
        command(&server)
            .args(["serve", "--json", "--listen", "127.0.0.1:0"])
            .env("CREDENTIALS_DIRECTORY", systemd.path(""))
            .env("NOTIFY_SOCKET", systemd.path("notify")),
    )?;
    assert_eq!(systemd.heard()?, "READY=1");
    systemd.write("dueq.tokens", "token =")?;
    serve.signal("-HUP")?;
    systemd.hears_reload()?;
    let bearer = format!("Authorization: Bearer {}\r\n", token.trim());
    let answer = serve.ask("GET /v1/queues", &bearer)?;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (code, said) = serve.end("-TERM")?;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("dueq.tokens: line 1: "), "{said}");
    assert!(said.contains("stay in force"), "{said}");
    Ok(())
}
