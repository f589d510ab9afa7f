//! `dueq keys`, and the producers that it prints.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result};

fn keys(args: &[&str]) -> Result<Output> {
    // The URL leads to no server: the command makes no call.
    let mut command = Command::new(env!("CARGO_BIN_EXE_dueq"));
    command
        .arg("keys")
        .args(args)
        .env("REDIS_URL", "redis://127.0.0.1:1/")
        .stdin(Stdio::null());
    command.output().context("dueq keys")
}

#[test]
fn keys_are_printed_ready_to_paste() -> Result<()> {
    let output = keys(&["orders"])?;
    let names = "scheduled ready leases claims messages attrs dead recent nodes meta";
    let expected: String = names
        .split(' ')
        .map(|name| format!("'dueq:{{orders}}:{name}' "))
        .collect();
    assert_eq!(
        String::from_utf8(output.stdout)?.trim_end(),
        expected.trim_end()
    );
    Ok(())
}

#[test]
fn bad_queue_name_and_unknown_language_are_wrong_usage() -> Result<()> {
    let refused = keys(&["a/b", "--lang", "sh"])?;
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(2), 0));
    assert!(String::from_utf8(refused.stderr)?.contains("queue name"));
    assert_eq!(keys(&["a", "--lang", "cobol"])?.status.code(), Some(2));
    let node = keys(&["a", "--lang", "node"])?.stdout;
    for other in ["javascript", "typescript"] {
        assert_eq!(keys(&["a", "--lang", other])?.stdout, node, "{other}");
    }
    Ok(())
}

/// Checks the syntax by the language's own program, where this machine has it. The tests of
/// examples/clients run the files.
#[test]
fn printed_producer_is_valid_in_its_language() -> Result<()> {
    let name = r#"it's "so" \ $HOME `x` größe"#;
    let python = "import ast, sys; ast.parse(sys.stdin.buffer.read())";
    for (lang, checker) in [
        ("sh", &["sh", "-n"][..]),
        ("python", &["python3", "-c", python]),
        ("node", &["node", "--check", "-"]),
        ("go", &["gofmt", "-l", "-e"]),
    ] {
        let printed = keys(&[name, "--lang", lang])?;
        assert!(printed.status.success(), "{lang}: {printed:?}");
        let child = Command::new(checker[0])
            .args(&checker[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            // Written directly: the test harness shows macro output only of failed tests.
            writeln!(
                std::io::stderr(),
                "SKIPPED: the producer in {lang} is not read: there is no {}",
                checker[0]
            )?;
            continue;
        };
        child
            .stdin
            .take()
            .context("its input")?
            .write_all(&printed.stdout)?;
        let checked = child.wait_with_output()?;
        assert!(
            checked.status.success() && checked.stdout.is_empty(),
            "{lang}: {checked:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn printed_producer_pushes_into_its_queue() -> Result<()> {
    if Command::new("redis-cli").arg("--version").output().is_err() {
        writeln!(
            std::io::stderr(),
            "SKIPPED: the printed producer in sh is not run: there is no redis-cli"
        )?;
        return Ok(());
    }
    let name = r#"it's "so" \ $HOME `x` größe"#;
    let server = dueq_testkit::Server::start(&[])?;
    let client = dueq::Client::connect(&server.url()).await?;
    client.load_functions().await?;
    let script = String::from_utf8(keys(&[name, "--lang", "sh"])?.stdout)?;
    let pushed = Command::new("sh")
        .args(["-c", &script, "push.sh", "order:42", "3600000", "rate it"])
        .env("REDIS_URL", server.url())
        .output()?;
    assert_eq!(String::from_utf8(pushed.stdout)?, "created order:42\n");
    let stored = client
        .queue(name)?
        .get("order:42")
        .await?
        .context("the message")?;
    assert_eq!(stored.payload, b"rate it");
    Ok(())
}
