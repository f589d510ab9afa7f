//! `dueq move`: a queue moves to another server.

use anyhow::{Context, Result};
use dueq_testkit::Server;

use crate::queues::operator::json;
use crate::roles::{as_user, refused, user};
use crate::{Said, dueq};

#[test]
fn queue_moves_to_another_server_and_is_found_there() -> Result<()> {
    let (here, there) = (Server::start(&[])?, Server::start(&[])?);
    for id in ["a", "b", "c"] {
        let args = ["push", "q", "x", "--id", id, "--delay", "1h"];
        assert_eq!(dueq(&here, &args)?.code(), Some(0));
    }
    let url = there.url();
    let lines = json(&here, &["move", "q", "--to", &url, "--partitions", "2"])?;
    let (progress, partitions) = lines.split_at(lines.len() - 2);
    let last = progress.last().context("no progress")?;
    assert_eq!(
        (&last["phase"], &last["moved"]),
        (&"complete".into(), &3.into())
    );
    let place = url.trim_start_matches("redis://").trim_end_matches('/');
    assert!(
        partitions.iter().all(|one| one["server"] == place),
        "{partitions:?}"
    );

    // Both servers lead to it.
    for server in [&here, &there] {
        assert_eq!(json(server, &["stats", "q"])?[0]["scheduled"], 3);
        assert_eq!(dueq(server, &["cancel", "q", "a"])?.code(), Some(0));
        let args = ["push", "q", "x", "--id", "a", "--delay", "1h"];
        assert_eq!(dueq(server, &args)?.code(), Some(0));
    }
    let again = dueq(&here, &["move", "q", "--to", &url])?;
    assert_eq!(again.code(), Some(0), "{}", again.err());
    assert!(again.err().contains("nothing to do"), "{}", again.err());
    let examined = dueq(&here, &["doctor", "q"])?;
    let said = format!("the queue has moved to {url}");
    assert!(examined.out().contains(&said), "{}", examined.out());

    // What is left is no queue.
    assert_eq!(
        dueq(&here, &["delete-queue", "q", "--yes"])?.code(),
        Some(0)
    );
    assert_eq!(dueq(&here, &["show", "q", "a"])?.code(), Some(1));
    assert_eq!(json(&there, &["stats", "q"])?[0]["scheduled"], 3);
    Ok(())
}

#[test]
fn operator_moves_a_queue_with_the_rights_of_an_operator() -> Result<()> {
    let (here, there) = (Server::start(&[])?, Server::start(&[])?);
    let users = |role| Ok::<_, anyhow::Error>((user(&here, role, "q")?, user(&there, role, "q")?));
    let (operator, _) = users("operator")?;
    let (producer, _) = users("producer")?;
    let push = ["push", "q", "x", "--id", "a", "--delay", "1h"];
    assert_eq!(as_user(&operator, &push)?.code(), Some(0));
    let url = there.url();
    let moving = ["move", "q", "--to", &url];
    refused(&producer, &moving)?;
    let moved = as_user(&operator, &moving)?;
    assert_eq!(moved.code(), Some(0), "{}", moved.err());
    // The map has no secret, and a producer follows with its own.
    let map = here.command(&["HGET", "dueq:{q}:meta", "map"])?;
    assert!(map.trim().ends_with(&format!("|@-|@-|{url}")), "{map}");
    let pushed = as_user(&producer, &push)?;
    assert_eq!(pushed.code(), Some(0), "{}", pushed.err());
    assert_eq!(json(&there, &["stats", "q"])?[0]["scheduled"], 1);
    Ok(())
}

#[test]
fn moves_that_cannot_begin_say_why() -> Result<()> {
    let (here, there) = (Server::start(&[])?, Server::start(&[])?);
    let (own, url) = (here.url(), there.url());
    let absent = dueq(&here, &["move", "q", "--to", &url])?;
    assert_eq!(absent.code(), Some(1), "{}", absent.err());
    for server in [&here, &there] {
        let args = ["push", "q", "x", "--id", "a", "--delay", "1h"];
        assert_eq!(dueq(server, &args)?.code(), Some(0));
    }
    for (args, code, words) in [
        (&["move", "q"][..], 2, "--to"),
        (&["move", "q", "--to", &url, "--partitions", "0"], 2, "0"),
        (&["move", "q", "--to", &url, "--abort"], 2, "--abort"),
        (&["move", "q", "--to", &own], 2, "is the store in which"),
        (&["move", "q", "--to", &url], 2, "has 1 messages"),
        (
            &["move", "q", "--to", "redis://127.0.0.1:1/"],
            1,
            "redis://127.0.0.1:1/",
        ),
        (&["move", "q", "--abort"], 2, "nothing to take back"),
    ] {
        let refused = dueq(&here, args)?;
        assert_eq!(refused.code(), Some(code), "{args:?}: {}", refused.err());
        assert!(refused.err().contains(words), "{args:?}: {}", refused.err());
    }
    assert_eq!(json(&here, &["partitions", "q"])?[0]["messages"], 1);
    Ok(())
}
