//! Several queues, by name and by pattern: the output, and wrong queues and shares.

use std::collections::BTreeSet;

use anyhow::Result;
use dueq::{Client, Message};
use dueq_testkit::Server;

use crate::work::support::{Dueq, command, queue, stats};

/// A server with queues that a pattern finds, and another queue. Each holds a message.
async fn mails_and_orders() -> Result<Server> {
    let (server, orders) = queue("orders").await?;
    let client = Client::connect(&server.url()).await?;
    for (queue, id) in [("mail-de", "a"), ("mail-fr", "b"), ("mail", "left")] {
        let message = Message::new("x").id(id);
        client.queue(queue)?.push_message(message).await?;
    }
    orders.push_message(Message::new("x").id("c")).await?;
    Ok(server)
}

#[tokio::test]
async fn pattern_is_served_beside_a_named_queue() -> Result<()> {
    let server = mails_and_orders().await?;
    let args = ["work", "orders=6", "mail-*", "--max", "mail-*=2"];
    let print = [&args[..], &["--print", "--json"]].concat();
    let mut worker = Dueq::start(&server.url(), &print)?;
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        let line: serde_json::Value = serde_json::from_str(&worker.says()?)?;
        seen.insert(format!("{} {}", line["queue"], line["id"]));
    }
    let expected = ["\"mail-de\" \"a\"", "\"mail-fr\" \"b\"", "\"orders\" \"c\""];
    assert_eq!(seen, expected.map(str::to_owned).into());
    worker.signal("TERM")?;
    assert_eq!(worker.rest()?, [""; 0], "mail does not match");
    assert!(worker.wait()?.success());
    Ok(())
}

#[tokio::test]
async fn commands_and_batches_of_a_pattern_get_the_queue() -> Result<()> {
    for batch in [&[][..], &["--batch", "2", "--linger", "1ms"]] {
        let server = mails_and_orders().await?;
        let client = Client::connect(&server.url()).await?;
        let file = server.folder().join("queues").display().to_string();
        let exec = format!("cat > /dev/null; echo \"$DUEQ_QUEUE\" >> '{file}'");
        let args = [&["work", "mail-*", "orders", "--exec", &*exec], batch].concat();
        let mut worker = Dueq::start(&server.url(), &args)?;
        for queue in ["mail-de", "mail-fr", "orders"] {
            stats(&client.queue(queue)?, queue, |stats| stats.acked == 1).await?;
        }
        worker.signal("TERM")?;
        assert!(worker.wait()?.success());
        let seen = std::fs::read_to_string(&file)?;
        let seen: BTreeSet<&str> = seen.lines().collect();
        assert_eq!(seen, ["mail-de", "mail-fr", "orders"].into());
        let mail = client.queue("mail")?.stats().await?;
        assert_eq!((mail.claimed, mail.scheduled + mail.ready), (0, 1));
    }
    Ok(())
}

/// The client refuses the pattern before any queue gets the limit.
#[tokio::test]
async fn pattern_with_too_many_wildcards_starts_nothing() -> Result<()> {
    let server = mails_and_orders().await?;
    let args = ["work", "orders", "a*b*c*d*e*f*g*h*i*j", "--print"];
    let output = command(&server.url(), &args).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("9 wildcards"), "{said}");
    let client = Client::connect(&server.url()).await?;
    let orders = client.queue("orders")?.stats().await?;
    assert_eq!((orders.claimed, orders.nodes), (0, 0), "{orders:?}");
    Ok(())
}

#[tokio::test]
async fn two_queues_are_served_and_each_line_names_its_queue() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let mails = dueq::Client::connect(&server.url()).await?.queue("mails")?;
    orders.push_message(Message::new("x").id("a")).await?;
    mails.push_message(Message::new("y").id("b")).await?;
    let args = [
        "work",
        "orders=6",
        "mails",
        "--reserve",
        "mails=1",
        "--print",
        "--json",
    ];
    let mut worker = Dueq::start(&server.url(), &args)?;
    let mut seen = BTreeSet::new();
    for _ in 0..2 {
        let line: serde_json::Value = serde_json::from_str(&worker.says()?)?;
        seen.insert(format!("{} {}", line["queue"], line["id"]));
    }
    let expected = ["\"mails\" \"b\"", "\"orders\" \"a\""].map(str::to_owned);
    assert_eq!(seen, expected.into());
    worker.signal("TERM")
}

#[tokio::test]
async fn wrong_queues_and_shares_are_wrong_usage() -> Result<()> {
    for (args, reason) in [
        (&["a=0"][..], "the weight 0"),
        (&["a", "a=2"], "a is given twice"),
        (&["a", "--reserve", "b=1"], "--reserve names b"),
        (&["a", "--reserve", "a=65"], "--concurrency is 64"),
        (&["a*", "--reserve", "a*=1"], "a pattern takes no reserve"),
        (&["a*=0"], "the weight 0"),
        (&["a*", "a*"], "a* is given twice"),
        (&["a", "b*", "--max-attempts", "3"], "b* is a pattern"),
        (&["a/b*"], "it holds '/'"),
        (&["a", "--batch", "3"], "--batch"),
    ] {
        let args = [&["work"], args, &["--print"]].concat();
        // The URL leads to no server: the command fails before it connects.
        let output = command("redis://127.0.0.1:1/", &args).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(reason), "{args:?}: {said}");
    }
    Ok(())
}
