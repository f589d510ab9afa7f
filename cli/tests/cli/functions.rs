//! `dueq functions`: loads the Functions library, which takes the printed keys.

use std::process::Command;

use anyhow::{Context, Result};
use dueq_testkit::Server;
use serde_json::Value;

use crate::queues::operator::{json, says};
use crate::{DUEQ, Said, dueq};

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
    assert!(
        dueq(&server, &["functions", "status"])?
            .out()
            .starts_with("current")
    );
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
        Command::new(DUEQ)
            .args(["functions", "print"])
            .output()?
            .out()
            .starts_with("#!lua name=dueq")
    );
    // A shell reads the same keys.
    let pasted = Command::new(DUEQ)
        .args(["keys", "it's, mine"])
        .output()?
        .out();
    let read = Command::new("sh")
        .args(["-c", &format!("printf '%s\\n' {pasted}")])
        .output()?;
    assert_eq!(read.out().lines().collect::<Vec<_>>(), keys);
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
    assert_eq!(output.code(), Some(1), "{}", output.err());
    assert!(
        output.out().contains("\"outcome\":\"newer\""),
        "{}",
        output.out()
    );
    Ok(())
}
