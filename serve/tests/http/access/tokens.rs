//! Changes of the tokens file while the server runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use anyhow::{Context, Result};
use dueq_serve::{Access, NamePattern, Role, add_token};

use crate::assert_refused;
use crate::captured::Captured;
use crate::instance::Instance;

/// The text of the tokens file without the token of this name.
fn without(text: &str, name: &str) -> String {
    let mut tables = text.split("[[token]]");
    let mut rest = tables.next().unwrap_or_default().to_owned();
    for table in tables.filter(|table| !table.contains(&format!("name = \"{name}\""))) {
        rest.push_str("[[token]]");
        rest.push_str(table);
    }
    rest
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_token_loses_access_within_a_second() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let path = instance.folder.join("tokens.toml");
    assert_eq!(instance.status_as("viewer", "GET /v1/queues").await?, 200);
    fs::write(&path, without(&fs::read_to_string(&path)?, "viewer"))?;
    tokio::time::sleep(Duration::from_millis(1_001)).await;
    assert_refused!(
        instance.ask_as("viewer", "GET /v1/queues", "").await?,
        401,
        "unauthenticated"
    );
    assert_eq!(instance.status_as("operator", "GET /v1/queues").await?, 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_reads_the_tokens_at_once() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let path = instance.folder.join("tokens.toml");
    let token = add_token(&path, "late", &[Role::Viewer], &[NamePattern::all()])?;
    instance.control.reload();
    let bearer = format!("Authorization: Bearer {token}");
    assert_eq!(
        instance.ask("GET /v1/queues", &[&bearer], "").await?.status,
        200
    );
    Ok(())
}

/// How often the log has the error, and its last line.
fn reported(log: &Captured) -> (usize, String) {
    let text = log.text();
    let lines = text.lines();
    let lines = lines.filter(|line| line.starts_with("dueq_serve.tokens_unreadable"));
    let lines: Vec<_> = lines.collect();
    (lines.len(), (*lines.last().unwrap_or(&"")).to_owned())
}

#[tokio::test]
async fn unusable_tokens_file_leaves_old_tokens_in_force() -> Result<()> {
    let log = Captured::start();
    let instance = Instance::with_tokens().await?;
    let path = instance.folder.join("tokens.toml");
    let good = fs::read_to_string(&path)?;
    let is_served = async || -> Result<()> {
        assert_eq!(instance.status_as("operator", "GET /v1/queues").await?, 200);
        assert_eq!(instance.call("GET /readyz").await?.status, 200);
        let wrong = ["Authorization: Bearer x"];
        let answer = instance.ask("GET /v1/queues", &wrong, "").await?;
        assert_refused!(answer, 401, "unauthenticated");
        Ok(())
    };
    let is_kept = |line: &&str| !line.starts_with("signing_key");
    let keyless: Vec<_> = good.lines().filter(is_kept).collect();
    let keyless = keyless.join("\n");
    let mut count = 0;
    for (broken, is_reloaded, reason) in [
        (Some("[[token]]\nname = 5"), false, "line 2: "),
        (Some("[[token]]\nname ="), true, "line 2: "),
        (Some(""), true, "it has no token"),
        (Some(&*keyless), true, "it has no signing key"),
        (None, false, "No such file"),
        (None, true, "No such file"),
    ] {
        match broken {
            Some(text) => fs::write(&path, text)?,
            None => drop(fs::remove_file(&path)),
        }
        if is_reloaded {
            instance.control.reload();
        }
        while reported(&log).0 == count {
            is_served().await?;
            // More than 100 requests a second are refused.
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
        count += 1;
        let line = reported(&log).1;
        for part in [
            &*path.display().to_string(),
            reason,
            "stay in force",
            "correct the file",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
    // The file is read again each second, and the fault is reported once.
    tokio::time::sleep(Duration::from_millis(1_001)).await;
    is_served().await?;
    assert_eq!(reported(&log).0, count, "{}", log.text());
    fs::write(&path, without(&good, "operator"))?;
    while instance.status_as("operator", "GET /v1/queues").await? != 401 {}
    assert_eq!(instance.status_as("viewer", "GET /v1/queues").await?, 200);
    Ok(())
}

#[tokio::test]
async fn server_does_not_start_with_unusable_tokens() -> Result<()> {
    for (text, reason) in [(None, "cannot read"), (Some("token ="), "line 1")] {
        let started = Instance::start(|config, folder| {
            let path = folder.join("tokens.toml");
            if let Some(text) = text {
                fs::write(&path, text)?;
            }
            config.access = Access::Tokens(path);
            Ok(Vec::new())
        });
        let error = started.await.err().context("refused")?.to_string();
        assert!(
            error.contains("tokens.toml") && error.contains(reason),
            "{error}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn adding_a_token_keeps_the_rest_of_the_file() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let path = instance.folder.join("new.toml");
    let all = [NamePattern::all()];
    add_token(&path, "one", &[Role::Viewer, Role::Producer], &all)?;
    assert_eq!(fs::metadata(&path)?.permissions().mode() & 0o777, 0o600);
    let mut text = fs::read_to_string(&path)?;
    text.push_str("# my comment, without a line end");
    fs::write(&path, &text)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640))?;
    let token = add_token(&path, "two \"q\"", &[Role::Viewer], &all)?;
    let after = fs::read_to_string(&path)?;
    assert!(after.starts_with(&text), "{after}");
    assert!(!after.contains(&token), "only the hash is kept: {after}");
    assert_eq!(fs::metadata(&path)?.permissions().mode() & 0o777, 0o640);
    for (name, reason) in [("one", "two tokens"), ("", "1 to 128"), ("a\nb", "control")] {
        let error = add_token(&path, name, &[Role::Viewer], &all).expect_err("refused");
        assert!(error.to_string().contains(reason), "{error}");
    }
    assert_eq!(
        fs::read_to_string(&path)?,
        after,
        "a refused token changes nothing"
    );
    Ok(())
}
