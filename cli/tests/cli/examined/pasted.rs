//! Commands and keys that the program prints can be pasted into a shell, for hostile names too.

use std::process::Command;

use anyhow::{Context, Result};
use dueq::{Client, Due, Message};
use dueq_testkit::Server;

use crate::hostile::{NAME, both, harmless, planted};
use crate::{DUEQ, Said, command};

#[tokio::test]
async fn doctor_remedies_for_hostile_ids_can_be_pasted() -> Result<()> {
    let server = Server::start(&["--appendonly", "yes"])?;
    let _leased = planted(&server).await?;
    let zset = format!("dueq:{{{NAME}}}:scheduled");
    assert_eq!(server.command(&["ZREM", &zset, NAME])?, ":1\r\n");
    // Clients refuse to push such an id, so write it by a script.
    server.command(&[
        "HSET",
        &format!("dueq:{{{NAME}}}:messages"),
        "\x1b[2J\n",
        "x",
    ])?;
    let found = both(&server, &["doctor", NAME])?;
    assert!(
        found
            .iter()
            .any(|line| line["finding"] == "unplaced" && line["id"] == NAME),
        "{found:#?}"
    );
    let remedy = found
        .iter()
        .find(|line| line["id"] == NAME)
        .and_then(|line| line["remedy"].as_str())
        .context("it")?;
    let (repair, then) = remedy
        .split_once("; then it is dead: ")
        .context(remedy.to_owned())?;
    let requeue = then
        .strip_suffix(", if it was not handled")
        .context(remedy.to_owned())?;
    let program = std::path::Path::new(DUEQ).parent().context("a folder")?;
    let path = format!(
        "{}:{}",
        program.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    for (line, expected) in [(repair, 1), (requeue, 0)] {
        let output = Command::new("sh")
            .args(["-c", line])
            .env("PATH", &path)
            .env("REDIS_URL", server.url())
            .output()?;
        harmless(line, &output)?;
        assert_eq!(
            output.code(),
            Some(expected),
            "{line}: {}{}",
            output.out(),
            output.err()
        );
    }
    let queue = Client::connect(&server.url()).await?.queue(NAME)?;
    let state = queue.get(NAME).await?.context("the message")?.state;
    assert!(
        matches!(
            state,
            dueq::MessageState::Scheduled | dueq::MessageState::Ready
        ),
        "requeued by what the doctor said: {state}"
    );
    Ok(())
}

#[tokio::test]
async fn doctor_remedies_for_names_with_dashes_can_be_pasted() -> Result<()> {
    let server = Server::start(&["--appendonly", "yes"])?;
    let queue = Client::connect(&server.url()).await?.queue("-q")?;
    queue
        .push_message(
            Message::new("x")
                .id("--all")
                .due(Due::at_ms(1_796_126_400_000)),
        )
        .await?;
    server.command(&["ZREM", "dueq:{-q}:scheduled", "--all"])?;
    let found = both(&server, &["doctor", "--", "-q"])?;
    let remedy = found
        .iter()
        .find(|line| line["id"] == "--all")
        .context("it")?["remedy"]
        .clone();
    assert_eq!(
        remedy,
        "dueq doctor --repair -- -q; then it is dead: dueq requeue -- -q --all, if it was not handled"
    );
    assert_eq!(
        command(&server)
            .args(["doctor", "--repair", "--", "-q"])
            .output()?
            .code(),
        Some(1)
    );
    assert_eq!(
        command(&server)
            .args(["requeue", "--", "-q", "--all"])
            .output()?
            .code(),
        Some(0)
    );
    Ok(())
}

#[test]
fn printed_keys_and_rules_can_be_pasted() -> Result<()> {
    let server = Server::start(&[])?;
    let output = command(&server).args(["keys", NAME]).output()?;
    harmless("keys", &output)?;
    let script = format!("printf '%s\\n' {}", output.out());
    let read = Command::new("sh").args(["-c", &script]).output()?;
    assert_eq!(
        read.out().lines().collect::<Vec<_>>(),
        dueq::admin::queue_keys(NAME)?
    );
    for lang in ["sh", "python", "node", "go", "java"] {
        let mut output = command(&server)
            .args(["keys", NAME, "--lang", lang])
            .output()?;
        output.stdout.retain(|byte| *byte != b'\t'); // as Go is indented
        harmless(lang, &output)?;
    }
    let name = "a\u{202e}b";
    let refused = command(&server)
        .args(["acl", "producer", name, "--user", "me"])
        .output()?;
    assert!(
        refused.stdout.is_empty() && refused.err().contains("--json"),
        "{}",
        refused.err()
    );
    let printed = both(&server, &["acl", "producer", name, "--user", "me"])?;
    assert!(
        printed[0]["rules"].to_string().contains(name),
        "{printed:?}"
    );
    Ok(())
}
