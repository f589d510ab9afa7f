//! Hostile messages, which try to harm the terminal, the shell or the worker.

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dueq::{Client, Message, MessageState};
use dueq_testkit::Server;

use crate::work::support::{Dueq, Folder, queue, stored};

/// Clears the screen, turns the text red by both sets of control characters, and reverses the
/// direction of writing.
const TEXT: &[u8] = b"\x1b[2J\x07\r\x7f\xc2\x9b31m\xe2\x80\xae\0\xff end";

#[tokio::test]
async fn print_escapes_terminal_controls_and_json_keeps_bytes() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    // Different ids, because the deduplication memory remembers handled messages.
    for (json, id) in [
        (false, b"\xc2\x9b31m\xe2\x80\xae\xff1"),
        (true, b"\xc2\x9b31m\xe2\x80\xae\xff2"),
    ] {
        let args = ["work", "orders", "--print", "--json"];
        let mut work = Dueq::start(&server.url(), if json { &args } else { &args[..3] })?;
        orders.push_message(Message::new(TEXT).id(id)).await?;
        let line = work.says()?;
        let steers = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
        assert!(!line.contains(steers), "{line:?}");
        if json {
            let object: serde_json::Value = serde_json::from_str(&line)?;
            assert_eq!(object["id_base64"], STANDARD.encode(id));
            assert_eq!(object["payload_base64"], STANDARD.encode(TEXT));
        } else {
            assert!(
                line.contains("\\u{1b}[2J") && line.ends_with(" end"),
                "{line}"
            );
        }
        work.signal("INT")?;
        assert!(work.wait()?.success());
    }
    Ok(())
}

/// The operator's command is shell code; the contents of a message are only data.
#[tokio::test]
async fn message_contents_never_reach_a_shell() -> Result<()> {
    let folder = Folder::new("hostile")?;
    let pwned = folder.path().join("pwned").display().to_string();
    let name = format!("q $(touch {}) `id`; 'x", pwned.replace('/', "_"));
    let (server, orders) = queue(&name).await?;
    let script = "cat > \"$OUT/payload\"; printf %s \"$DUEQ_ID\" > \"$OUT/id\"; printf %s \"$DUEQ_QUEUE\" > \"$OUT/queue\"; echo done";
    let mut command = crate::work::support::command(
        &server.url(),
        &["work", &name, "--exec", script, "--concurrency", "1"],
    );
    let mut worker = Dueq::run(command.env("OUT", folder.path()).current_dir(folder.path()))?;
    let touch = format!("touch {pwned}");
    let ids: [Vec<u8>; 6] = [
        format!("$({touch})").into_bytes(),
        format!("`{touch}`; {touch} & '{touch}' \"").into_bytes(),
        // An old bash would read a function here, and a linker a library.
        format!("() {{ :; }}; {touch}").into_bytes(),
        b"LD_PRELOAD=/tmp/x.so".to_vec(),
        b"-rf --help \xff\xfe\xc2\x9b".to_vec(),
        b"%s%n$IFS*?[a]~".to_vec(),
    ];
    for id in ids {
        let payload = [b"go\nIFS=/ $(", touch.as_bytes(), b")\n\0\xff`", &id, b"`"].concat();
        orders
            .push_message(Message::new(payload.clone()).id(&id))
            .await?;
        assert_eq!(worker.says()?, "done");
        assert_eq!(std::fs::read(folder.path().join("id"))?, id);
        assert_eq!(std::fs::read(folder.path().join("payload"))?, payload);
        assert_eq!(std::fs::read(folder.path().join("queue"))?, name.as_bytes());
    }
    let left: Vec<_> = std::fs::read_dir(folder.path())?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect();
    assert_eq!(
        left.len(),
        3,
        "only what the command itself writes: {left:?}"
    );
    Ok(())
}

/// No client can push such an id, but a person can write it into the keys. An environment variable
/// cannot contain it.
#[tokio::test]
async fn id_with_a_nul_byte_does_not_stop_the_worker() -> Result<()> {
    let server = Server::start(&[])?;
    let orders = Client::connect(&server.url()).await?.queue("orders")?;
    let mut worker = Dueq::start(
        &server.url(),
        &[
            "work",
            "orders",
            "--exec",
            "echo \"$DUEQ_ID\"",
            "--max-attempts",
            "1",
        ],
    )?;
    orders.push_message(Message::new("x").id("before")).await?;
    assert_eq!(worker.says()?, "before");
    let plant = "redis.call('HSET', KEYS[1], ARGV[1], 'x') return redis.call('ZADD', KEYS[2], '5', ARGV[1])";
    let planted = server.command(&[
        "EVAL",
        plant,
        "2",
        "dueq:{orders}:messages",
        "dueq:{orders}:scheduled",
        "a\0b\x1b[2J",
    ])?;
    assert_eq!(planted, ":1\r\n");
    orders.push_message(Message::new("x").id("after")).await?;
    assert_eq!(worker.says()?, "after");
    let dead = async || {
        Ok(orders
            .list(MessageState::Dead, None, 10)
            .await?
            .messages
            .pop())
    };
    let dead = crate::work::support::until("the planted one is dead", dead).await?;
    assert_eq!(dead.id, b"a\0b\x1b[2J");
    assert!(dead.error.contains("cannot run"), "{}", dead.error);
    orders.push_message(Message::new("x").id("last")).await?;
    assert_eq!(worker.says()?, "last");
    worker.signal("TERM")?;
    assert!(worker.wait()?.success());
    assert!(orders.get("last").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn answer_of_a_receiver_is_stored_as_text() -> Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (server, orders) = queue("orders").await?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!(
        "http://127.0.0.1:{}/hook/hunter2",
        listener.local_addr()?.port()
    );
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            // The body is longer than the worker reads, and hostile throughout.
            let body = "\x1b[2J\u{9b}31m\u{202e}".repeat(1_000_000);
            let head = format!(
                "HTTP/1.1 400 \x1b[31mBad\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(body.as_bytes()).await;
        }
    });
    let secret = format!("whsec_{}", STANDARD.encode([7; 32]));
    let args = [
        "work",
        "orders",
        "--http",
        &url,
        "--allow-private",
        "--max-attempts",
        "1",
    ];
    let _worker = Dueq::run(
        crate::work::support::command(&server.url(), &args).env("DUEQ_WEBHOOK_SECRET", secret),
    )?;
    orders.push_message(Message::new("x").id("one")).await?;
    let dead = stored(&orders, "one", |stored| stored.state == MessageState::Dead)
        .await
        .context("given up")?;
    assert!(
        !dead.error.contains(char::is_control) && !dead.error.contains('\u{202e}'),
        "{:?}",
        dead.error
    );
    assert!(
        dead.error.len() <= 1_024 && !dead.error.contains("hunter2"),
        "{}",
        dead.error
    );
    Ok(())
}
