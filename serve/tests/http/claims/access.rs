//! Callers that lose access while their claim waits, and a tokens file that becomes unusable
//! meanwhile.

use std::fs;

use anyhow::Result;
use dueq::{Message, Queue};
use tokio::net::TcpStream;

use super::{CLAIM, LIMIT, WAITS, begin, is_untouched, one, until, waiting};
use crate::instance::{Answer, Instance, to_end};

const REPEATABLE: &str = r#"{"wait_ms": 50000, "lease_ms": 600000, "claim_id": "a"}"#;

/// Changes the text of one token's table in the tokens file.
type Change = fn(&str) -> String;

/// Begins a claim of the caller `consumer`, which waits, and pushes a message `1` that is due
/// later.
async fn waits(instance: &Instance, body: &str) -> Result<(Queue, TcpStream)> {
    let queue = instance.client.queue("orders")?;
    let later = Message::new("x").id("1").due(LIMIT);
    queue.push_message(later).await?;
    let stream = begin(instance, &[&instance.bearer("consumer")], body).await?;
    waiting(instance, 1).await?;
    Ok((queue, stream))
}

/// Changes the tokens file.
fn change_tokens(instance: &Instance, change: impl FnOnce(&str) -> String) -> Result<()> {
    let path = instance.folder.join("tokens.toml");
    fs::write(&path, change(&fs::read_to_string(&path)?))?;
    instance.control.reload();
    Ok(())
}

/// The text of the tokens file after `change` was applied to the table of the token `consumer`.
fn with_consumer(text: &str, change: Change) -> String {
    let mut tables = text.split("[[token]]");
    let mut all = tables.next().unwrap_or_default().to_owned();
    for table in tables.map(|table| format!("[[token]]{table}")) {
        let is_consumer = table.contains("name = \"consumer\"");
        all.push_str(&if is_consumer { change(&table) } else { table });
    }
    assert_ne!(all, text);
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_that_lost_its_right_gets_no_message() -> Result<()> {
    let changes: [(Change, u16, &str); 4] = [
        (
            |table| table.replace("[\"consumer\"]", "[\"producer\"]"),
            403,
            "forbidden",
        ),
        (
            |table| table.replace("[\"*\"]", "[\"other*\"]"),
            403,
            "foreign_queue",
        ),
        (|_| String::new(), 401, "unauthenticated"),
        // The claim of another caller with equal rights goes on.
        (
            |table| table.replace("name = \"consumer\"", "name = \"other\""),
            200,
            "",
        ),
    ];
    for (change, status, code) in changes {
        for body in [WAITS, REPEATABLE] {
            let instance = Instance::with_tokens().await?;
            let (queue, mut stream) = waits(&instance, body).await?;
            change_tokens(&instance, |text| with_consumer(text, change))?;
            let _ = queue.run_now("1").await?;
            let answer = Answer::parse(&to_end(&mut stream).await?)?;
            if status == 200 {
                assert_eq!(one(&answer)?["attempt"], 1);
                continue;
            }
            assert_eq!(answer.refusal()?, (status, code.to_owned()), "{body}");
            assert!(!answer.body.contains("deliveries"), "{answer:?}");
            until(&queue, "the release", |stats| stats.leased == 0).await?;
            is_untouched(&queue).await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_is_granted_and_repeated_while_tokens_unusable() -> Result<()> {
    for body in [WAITS, REPEATABLE] {
        let instance = Instance::with_tokens().await?;
        let (queue, mut stream) = waits(&instance, body).await?;
        change_tokens(&instance, |_| "[[token]]\nname = 5".to_owned())?;
        let _ = queue.run_now("1").await?;
        let answer = Answer::parse(&to_end(&mut stream).await?)?;
        assert_eq!(one(&answer)?["attempt"], 1, "{body}");
        if body == REPEATABLE {
            // The signing key of the file stays in force, too.
            let again = instance.ask_as("consumer", CLAIM, body).await?;
            assert_eq!(again.json()?["repeated"], true, "{again:?}");
        }
        assert_eq!(queue.stats().await?.claimed, 1);
    }
    Ok(())
}
