use dueq::{Client, Message};
use dueq_testkit::Server;

use super::*;
use crate::payload;

async fn scanned(connection: &mut MultiplexedConnection) -> Result<(Vec<Event>, Vec<String>)> {
    let mut told = Vec::new();
    scan(connection, "q", &mut |event| told.push(event)).await?;
    let (mut left, mut broken) = (Vec::new(), Vec::new());
    for event in told {
        match event {
            Event::Broken { what, .. } => broken.push(what),
            other => left.push(other),
        }
    }
    broken.sort();
    Ok((left, broken))
}

#[tokio::test]
async fn scan_lists_a_sound_queue_and_names_each_fault() -> Result<()> {
    let server = Server::start(&[])?;
    let mut connection = redis::Client::open(server.url())?
        .get_multiplexed_async_connection()
        .await?;
    assert_eq!(
        scanned(&mut connection).await?,
        (Vec::new(), Vec::new()),
        "no queue"
    );

    let client = Client::connect(&server.url()).await?;
    let queue = client.queue("q")?;
    let push = |id: &str, ms| {
        queue.push_message(
            Message::new(payload::make(id, 1, 50))
                .id(id)
                .due(dueq::Due::AtMs(ms)),
        )
    };
    push("a", 1).await?;
    push("b", 2).await?;
    push("c", 3).await?;
    push("d", 4_000_000_000_000).await?;
    let claimed = queue.claim(2, std::time::Duration::from_secs(60)).await?;
    assert_eq!(
        claimed[0].bury("done for").await?,
        dueq::outcomes::SettleOutcome::Done
    );
    // Claims like a worker: a claim by hand leaves the other messages in the scheduled set.
    client.load_functions().await?;
    let mut promote = redis::cmd("FCALL");
    promote
        .arg("dueq_promote")
        .arg(10)
        .arg(&dueq::admin::queue_keys("q")?)
        .arg(&["", "1000"]);
    promote.query_async::<redis::Value>(&mut connection).await?;
    let (left, broken) = scanned(&mut connection).await?;
    let told = |state, id: &str, time| Event::Left {
        queue: "q".into(),
        state,
        items: vec![LeftItem(id.into(), time, 0, 0)],
    };
    assert_eq!(broken, Vec::<String>::new());
    let Event::Left { items, .. } = &left[3] else {
        panic!("the dead one")
    };
    let died_ms = items[0].1;
    let wanted = [
        told(State::Scheduled, "d", 4_000_000_000_000),
        told(State::Ready, "c", 3),
        told(State::Leased, "b", 2),
        told(State::Dead, "a", died_ms),
    ];
    assert_eq!(left, wanted);
    let waits = waiting(&mut connection, "q", 60_000).await?;
    assert_eq!(
        waits,
        Waiting {
            scheduled: 0,
            ready: 1,
            leases: 1
        }
    );

    for fault in [
        &["ZADD", "dueq:{q}:scheduled", "5", "c"][..],
        &["ZREM", "dueq:{q}:dead", "a"],
        &["HDEL", "dueq:{q}:claims", "b"],
        &["HSET", "dueq:{q}:claims", "x", "short"],
        &["HSET", "dueq:{q}:claims", "\0=x", "5"],
        &["HSET", "dueq:{q}:claims", "\0@nobody", "1 host"],
        &["HSET", "dueq:{q}:attrs", "y", "0 0 - max_attempts=1\n"],
        &["HSET", "dueq:{q}:messages", "d", "d 1 something else"],
        &["ZADD", "dueq:{q}:dead", "1.5", "e"],
        &["DEL", "dueq:{q}:recent"],
    ] {
        server.command(fault)?;
    }
    let (_, broken) = scanned(&mut connection).await?;
    let without_token = |what: String| what.split(": \u{1}").next().unwrap_or_default().to_owned();
    let broken: Vec<String> = broken.into_iter().map(without_token).collect();
    let wanted = [
        "a claim that cannot be read: x",
        "a claim that counts more or less than it holds",
        "a claim without a lease: x",
        "a key without its sentinel: dueq:{q}:recent",
        "a lease without a claim",
        "a payload without a place: b",
        "a process without its node: nobody",
        "a start without a lease: x",
        "a payload that is not as it was pushed: d",
        "a payload without a place: a",
        "a time that is no whole number of ms: e",
        "an id in two places: c",
        "attributes without a payload: y",
        "4 were pushed, 0 left, 0 expired and 2 are here: that does not add up",
    ];
    let mut wanted = wanted.map(str::to_owned);
    wanted.sort();
    assert_eq!(broken, wanted);
    Ok(())
}
