//! Runs the shell lines of the guide's pages on HTTP, in the order of the pages. Each must work,
//! and its answer must have the fields that the page shows.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use dueq::{Due, Message};
use serde_json::Value;

use crate::instance::Instance;

/// The pages with shell lines. They run as one session in this order: a later page uses what an
/// earlier one left.
const PAGES: [&str; 6] = [
    include_str!("../../../docs/guide/http.md"),
    // This page must come before the first claim: its example of an empty history needs a queue
    // without a worker.
    include_str!("../../../docs/guide/http/watch.md"),
    include_str!("../../../docs/guide/http/produce.md"),
    include_str!("../../../docs/guide/http/consume.md"),
    include_str!("../../../docs/guide/http/operate.md"),
    include_str!("../../../docs/guide/http/schedules.md"),
];

/// A shell prelude before the lines. It wraps curl: each call leaves its status and body in a
/// numbered file, and prints the body. A call with its own format (`-w`) is part of another call,
/// and leaves no file. A failing line ends the run.
const PREPARE: &str = r#"
set -eu
curl() {
    case " $* " in *" -w "*) command curl "$@"; return;; esac
    number=$(($(ls "$CALLS" | wc -l) + 1000))
    : >"$CALLS.body"
    command curl --max-time 60 --output "$CALLS.body" --write-out '%{http_code}\n' "$@" >"$CALLS.call"
    cat "$CALLS.body" >>"$CALLS.call"
    mv "$CALLS.call" "$CALLS/$number"
    cat "$CALLS.body"
}
"#;

/// A block of shell lines, and the JSON that the page shows directly below: the answers to the
/// first calls of the block, or to all.
struct Block<'a> {
    lines: &'a str,
    shown: Vec<Value>,
}

/// The blocks of shell lines on the page.
fn blocks(page: &str) -> Result<Vec<Block<'_>>> {
    let mut blocks = Vec::new();
    for rest in page.split("\n```sh\n").skip(1) {
        let (lines, below) = rest.split_once("\n```").context("the end of a block")?;
        let json = below.trim_start().strip_prefix("```json\n");
        let json = json.and_then(|json| Some(json.split_once("\n```")?.0));
        let shown = json.unwrap_or_default();
        let shown = serde_json::Deserializer::from_str(shown).into_iter();
        let shown = shown
            .collect::<Result<_, _>>()
            .with_context(|| format!("the JSON below {lines}"))?;
        blocks.push(Block { lines, shown });
    }
    Ok(blocks)
}

/// The path of the first difference between the fields of the two values. A null matches
/// everything, and of a list only the first element is compared.
fn difference(shown: &Value, answered: &Value) -> Option<String> {
    match (shown, answered) {
        (Value::Object(shown), Value::Object(answered)) => {
            let one = shown.keys().find(|name| !answered.contains_key(*name));
            let other = answered.keys().find(|name| !shown.contains_key(*name));
            one.or(other).cloned().or_else(|| {
                let inner = |(name, value)| Some((name, difference(value, &answered[name])?));
                let (name, inner) = shown.iter().find_map(inner)?;
                Some(format!("{name}.{inner}"))
            })
        }
        (Value::Array(shown), Value::Array(answered)) => {
            let first = |all: &[Value]| all.iter().find(|one| !one.is_null()).cloned();
            difference(&first(shown)?, &first(answered)?)
        }
        (Value::Object(_) | Value::Array(_), Value::Null) | (Value::Null, _) => None,
        (Value::Object(_) | Value::Array(_), _) | (_, Value::Object(_) | Value::Array(_)) => {
            Some(format!("{shown} {answered}"))
        }
        _ => None,
    }
}

/// The status and the body that each call of curl left, in order.
fn calls(folder: &Path) -> Result<Vec<(u16, String)>> {
    let mut files: Vec<_> = fs::read_dir(folder)?
        .map(|file| Ok(file?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    let read = |file| -> Result<(u16, String)> {
        let text = fs::read_to_string(file)?;
        let (status, body) = text.split_once('\n').context("a status")?;
        Ok((status.parse()?, body.to_owned()))
    };
    files.iter().map(read).collect()
}

/// Prepares what the lines expect to exist, and no line above them makes.
async fn prepare(instance: &Instance) -> Result<()> {
    let queue = instance.client.queue("orders")?;
    // The example `List messages` shows this message.
    let waiting = Message::new("rate order 1")
        .id("1")
        .due(Due::at_ms(1_796_299_200_000));
    assert!(queue.push_message(waiting).await?.is_created());
    // The example of a claim takes this message.
    let due = Message::new("rate order 2").id("2");
    assert!(queue.push_message(due).await?.is_created());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn shell_lines_of_the_guide_answer_as_shown() -> Result<()> {
    if Command::new("curl").arg("--version").output().is_err() {
        return Ok(());
    }
    let instance = Instance::open().await?;
    prepare(&instance).await?;
    let session = PAGES.join("\n");
    let blocks = blocks(&session)?;
    ensure!(blocks.len() >= 8, "the pages have {} blocks", blocks.len());
    // All lines run in one shell, so that a line can use a variable of an earlier one.
    let (mut script, mut expected) = (PREPARE.to_owned(), Vec::new());
    for (number, block) in blocks.iter().enumerate() {
        let folder = instance.folder.join(format!("calls-{number}"));
        fs::create_dir(&folder)?;
        script.push_str(&format!("CALLS='{}'\n{}\n", folder.display(), block.lines));
        expected.push((folder, block));
    }
    let (folder, url) = (
        instance.folder.clone(),
        format!("http://{}", instance.address),
    );
    let run = move || {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &script])
            .current_dir(folder)
            .env("DUEQ_SERVE", url)
            .output()
    };
    let output = tokio::task::spawn_blocking(run).await??;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for (folder, Block { lines, shown }) in expected {
        let calls = calls(&folder)?;
        ensure!(
            !calls.is_empty(),
            "no call was made by these lines:\n{lines}\n{said}"
        );
        for (status, body) in &calls {
            ensure!((200..300).contains(status), "{status} {body} of\n{lines}");
        }
        ensure!(
            shown.len() <= calls.len(),
            "{} calls, and {} shown\n{lines}",
            calls.len(),
            shown.len()
        );
        for (shown, (_, body)) in shown.iter().zip(&calls) {
            let answered: Value =
                serde_json::from_str(body).with_context(|| format!("{body:?} of\n{lines}"))?;
            let differs = difference(shown, &answered);
            assert_eq!(
                differs, None,
                "{shown} is shown, {answered} was answered to\n{lines}"
            );
        }
    }
    ensure!(output.status.success(), "{said}");
    Ok(())
}
