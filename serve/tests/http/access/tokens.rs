//! Changes of the tokens file while the server runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::Result;
use dueq_serve::{NamePattern, Role, add_token};

use crate::assert_refused;
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
    tokio::time::sleep(std::time::Duration::from_millis(1_001)).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn no_caller_has_access_while_tokens_are_unreadable() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let path = instance.folder.join("tokens.toml");
    let good = fs::read_to_string(&path)?;
    for broken in [Some("[[token]]\nname = 5"), None] {
        match broken {
            Some(text) => fs::write(&path, text)?,
            None => fs::remove_file(&path)?,
        }
        instance.control.reload();
        let answer = instance.ask_as("operator", "GET /v1/queues", "").await?;
        assert_refused!(answer, 503, "tokens_unreadable");
        let ready = instance.call("GET /readyz").await?;
        assert_refused!(&ready, 503, "tokens_unreadable");
        assert!(!ready.body.contains("tokens.toml"), "probes learn no path");
        assert_eq!(instance.call("GET /healthz").await?.status, 200);
    }
    fs::write(&path, good)?;
    instance.control.reload();
    assert_eq!(instance.status_as("operator", "GET /v1/queues").await?, 200);
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
