//! Callers that lose access while their claim waits, and a tokens file that becomes unreadable
//! meanwhile.

use std::fs;

use anyhow::Result;
use dueq::{Message, Queue};
use dueq_serve::{Access, NamePattern, Role, TrustedProxy, add_token};
use tokio::net::TcpStream;

use super::{CLAIM, JSON, LIMIT, WAITS, begin, is_untouched, one, until, waiting};
use crate::assert_refused;
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

/// Changes the tokens file, and returns its former text.
fn change_tokens(instance: &Instance, change: impl FnOnce(&str) -> String) -> Result<String> {
    let path = instance.folder.join("tokens.toml");
    let text = fs::read_to_string(&path)?;
    fs::write(&path, change(&text))?;
    instance.control.reload();
    Ok(text)
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
async fn repeatable_grant_stays_leased_while_tokens_unreadable() -> Result<()> {
    for body in [WAITS, REPEATABLE] {
        let instance = Instance::with_tokens().await?;
        let (queue, mut stream) = waits(&instance, body).await?;
        let text = change_tokens(&instance, |_| "[[token]]\nname = 5".to_owned())?;
        let _ = queue.run_now("1").await?;
        let answer = Answer::parse(&to_end(&mut stream).await?)?;
        assert_refused!(&answer, 503, "tokens_unreadable", "{body}");
        change_tokens(&instance, |_| text)?;
        if body == WAITS {
            until(&queue, "the release", |stats| stats.leased == 0).await?;
            is_untouched(&queue).await?;
            continue;
        }
        let again = instance.ask_as("consumer", CLAIM, body).await?;
        assert_eq!(again.json()?["repeated"], true, "{again:?}");
        assert_eq!(one(&again)?["attempt"], 1);
        assert_eq!(queue.stats().await?.claimed, 1);
    }
    Ok(())
}

/// A server with a tokens file, which also trusts proxies on this machine. Its signing key is in
/// the tokens file, or in a file of its own.
async fn proxied(has_key_file: bool) -> Result<Instance> {
    Instance::start(|config, folder| {
        let path = folder.join("tokens.toml");
        let token = add_token(&path, "operator", &[Role::Operator], &[NamePattern::all()])?;
        config.access = Access::Tokens(path);
        let roles = [("work".to_owned(), Role::Consumer)];
        let networks = ["127.0.0.0/8".to_owned()];
        let proxy = TrustedProxy::new(&networks, "x-user", Some("x-groups"), &roles);
        config.proxy = Some(proxy.map_err(anyhow::Error::msg)?);
        if has_key_file {
            let key = folder.join("key");
            fs::write(&key, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")?;
            config.signing_key = Some(key);
        }
        Ok(vec![("operator".to_owned(), token)])
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_is_refused_while_its_signing_key_is_unreadable() -> Result<()> {
    // The server needs the tokens file for a user of the proxy only because of the signing key.
    let headers = ["X-User: ann", "X-Groups: work", JSON];
    for has_key_file in [false, true] {
        let instance = proxied(has_key_file).await?;
        let queue = instance.client.queue("orders")?;
        queue.push_message(Message::new("x").id("1")).await?;
        let first = instance.ask(CLAIM, &headers, REPEATABLE).await?;
        queue.push_message(Message::new("x").id("2")).await?;
        let text = change_tokens(&instance, |_| "[[token]]\nname = 5".to_owned())?;
        let again = instance.ask(CLAIM, &headers, REPEATABLE).await?;
        if has_key_file {
            assert_eq!(one(&again)?, one(&first)?);
        } else {
            assert_refused!(&again, 503, "tokens_unreadable");
        }
        change_tokens(&instance, |_| text)?;
        let again = instance.ask(CLAIM, &headers, REPEATABLE).await?;
        assert_eq!(one(&again)?, one(&first)?);
        assert_eq!(queue.stats().await?.claimed, 1);
    }
    Ok(())
}
