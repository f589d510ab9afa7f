//! `dueq functions`: loads the Functions library, which takes the printed keys.

use std::process::Command;

use anyhow::{Context, Result};
use dueq_testkit::Server;
use serde_json::Value;

use crate::operator::{json, says};
use crate::{DUEQ, dueq, text};

#[test]
fn functions_load_once_and_take_the_printed_keys() -> Result<()> {
    let server = Server::start(&[])?;
    assert_eq!(
        json(&server, &["functions", "status"])?[0]["outcome"],
        "absent"
    );
    assert_eq!(
        json(&server, &["functions", "load"])?[0]["outcome"],
        "loaded"
    );
    assert_eq!(
        json(&server, &["functions", "load"])?[0]["outcome"],
        "current"
    );
    assert!(text(&dueq(&server, &["functions", "status"])?.stdout).starts_with("current"));
    let keys = json(&server, &["keys", "it's, mine"])?;
    let keys: Vec<&str> = keys[0]["keys"]
        .as_array()
        .context("keys")?
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let call = [
        &["FCALL", "dueq_push", "10"],
        &keys[..],
        &["", "", "order:42", "+1500", "hello", ""],
    ]
    .concat();
    assert!(!server.command(&call)?.starts_with('-'));
    says(
        &server,
        &["show", "it's, mine", "order:42", "--payload"],
        0,
        "hello",
    )?;
    assert!(
        text(
            &Command::new(DUEQ)
                .args(["functions", "print"])
                .output()?
                .stdout
        )
        .starts_with("#!lua name=dueq")
    );
    // A shell reads the same keys.
    let pasted = text(
        &Command::new(DUEQ)
            .args(["keys", "it's, mine"])
            .output()?
            .stdout,
    );
    let read = Command::new("sh")
        .args(["-c", &format!("printf '%s\\n' {pasted}")])
        .output()?;
    assert_eq!(text(&read.stdout).lines().collect::<Vec<_>>(), keys);
    Ok(())
}

#[test]
fn functions_load_keeps_a_newer_library() -> Result<()> {
    let server = Server::start(&[])?;
    let newer = format!(
        "dueq_version', callback = function() return {}",
        u64::from(u32::MAX)
    );
    let code = "#!lua name=dueq\nredis.register_function{function_name = '".to_owned()
        + &newer
        + " end, flags = {'no-writes'}}";
    assert!(
        !server
            .command(&["FUNCTION", "LOAD", &code])?
            .starts_with('-')
    );
    let output = dueq(&server, &["functions", "load", "--json"])?;
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).contains("\"outcome\":\"newer\""),
        "{}",
        text(&output.stdout)
    );
    Ok(())
}
