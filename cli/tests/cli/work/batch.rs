//! `--batch`: the input of a command, the settlements by its results, and a poison message in a
//! batch.

use std::collections::BTreeSet;

use anyhow::Result;
use dueq::{Message, MessageState};

use crate::work::support::{Dueq, queue, stats, stored};

const RETRY_SOON: [&str; 4] = ["--retry-min", "10ms", "--retry-max", "50ms"];

fn batches(url: &str, names: &[&str], script: &str, more: &[&str]) -> Result<Dueq> {
    let args = [&["work"], names, &["--exec", script], &RETRY_SOON, more].concat();
    Dueq::start(url, &args)
}

#[tokio::test]
async fn result_lines_settle_single_messages_of_a_batch() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    for id in ["a", "b", "c"] {
        orders
            .push_message(Message::new(format!("of {id}")).id(id))
            .await?;
    }
    let script =
        "cat >&2; echo '{\"id\": \"b\", \"result\": \"bury\", \"error\": \"no such order\"}'";
    let worker = batches(&server.url(), &["orders"], script, &["--batch", "3"])?;
    let dead = stored(&orders, "b", |stored| stored.state == MessageState::Dead).await?;
    assert_eq!(dead.error, "no such order");
    stats(&orders, "2 acks", |stats| stats.acked == 2).await?;
    worker.signal("TERM")
}

#[tokio::test]
async fn wrong_result_line_retries_the_batch_and_is_stored() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    orders
        .push_message(Message::new("x").id("a").max_attempts(1))
        .await?;
    let worker = batches(&server.url(), &["orders"], "echo done", &["--batch", "3"])?;
    let dead = stored(&orders, "a", |stored| stored.state == MessageState::Dead).await?;
    assert!(
        dead.error
            .contains("line 1 of the command's output is no result"),
        "{}",
        dead.error
    );
    assert!(dead.error.ends_with(": done"), "{}", dead.error);
    worker.signal("TERM")
}

#[tokio::test]
async fn poison_in_a_batch_charges_others_one_failure_at_most() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let folder = crate::work::support::Folder::new("poison")?;
    let messages = (0..2_000).map(|number| {
        let payload = if number % 1_000 == 500 {
            "poison"
        } else {
            "fine"
        };
        Message::new(payload)
            .id(format!("m{number}"))
            .max_attempts(4)
    });
    for pushed in orders.push_many(messages).await {
        pushed?;
    }
    // The command notes each attempt in a separate file: a shell writes a long text in parts, and
    // commands run concurrently. The poison message makes the command kill itself.
    let script = format!(
        "in=$(cat); printf '%s\\n' \"$in\" >> '{}'/$$; case $in in *'\"payload\":\"poison\"'*) kill -9 $$;; esac",
        folder.path().display()
    );
    let mut worker = batches(
        &server.url(),
        &["orders"],
        &script,
        &["--batch", "100", "--concurrency", "4"],
    )?;
    let stats = stats(&orders, "all handled", |stats| {
        stats.acked == 1_998 && stats.dead == 2
    })
    .await?;
    worker.signal("TERM")?;
    assert!(worker.wait()?.success());
    assert_eq!(stats.crashed, 0, "{stats:?}");
    let (mut handled, mut most) = (BTreeSet::new(), 0);
    let mut lines = String::new();
    for file in std::fs::read_dir(folder.path())? {
        lines += &std::fs::read_to_string(file?.path())?;
    }
    for line in lines.lines() {
        let message: serde_json::Value = serde_json::from_str(line)?;
        assert_eq!(message["queue"], "orders");
        handled.insert(message["id"].to_string());
        if message["payload"] == "fine" {
            most = most.max(message["attempt"].as_u64().unwrap_or(u64::MAX));
        }
    }
    assert_eq!(handled.len(), 2_000);
    assert!(most <= 2, "an innocent message had {most} attempts");
    for id in ["m500", "m1500"] {
        let dead = stored(&orders, id, |stored| stored.state == MessageState::Dead).await?;
        assert_eq!(dead.failures, 4);
    }
    Ok(())
}
