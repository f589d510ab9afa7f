//! The drill of queues with several partitions: clients call by an old map, and a map is changed
//! too early. A correct queue refuses all of that.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{Client, Due, Message, MessageState, Queue};

use super::Options;
use crate::history::Event;
use crate::recorder::Diary;

/// The queue of the drill.
pub(crate) const QUEUE: &str = "drill";
const IDS: usize = 40;
const REMAP: &str = include_str!("../../../lua/dist/remap.lua");
/// The number of partitions in a map that is made by hand: with so many, hardly any message of the
/// home still belongs to the home.
const MANY: u32 = 200;

pub(super) async fn run(options: &Options, client: &Client, diary: &Diary) -> Result<()> {
    let operator = client.queue(QUEUE)?;
    operator.partition_into(4).await?;
    let mut stale = Vec::new();
    for _ in 0..6 {
        // A separate client: handles of one client share their map.
        let queue = Client::connect(&options.url).await?.queue(QUEUE)?;
        queue.get("id-0").await?;
        stale.push(queue);
    }
    operator.partition_into(7).await?;
    call_by_the_old_map(&stale).await?;
    change_with_messages(options, &operator, diary).await?;
    change_with_memory(&operator).await?;
    empty_the_home(options, &operator, diary).await
}

/// Calls each verb that names ids, from a client that does not know the new map.
async fn call_by_the_old_map(stale: &[Queue]) -> Result<()> {
    let ids: Vec<_> = (0..IDS).map(|number| format!("id-{number}")).collect();
    let [pusher, canceller, rescheduler, runner, reviver, reader] = stale else {
        anyhow::bail!("six clients");
    };
    let message = |id: &String| Message::new("drill").id(id).due(Due::AfterMs(600_000));
    for pushed in pusher.push_many(ids.iter().map(message)).await {
        pushed?;
    }
    let (some, others) = ids.split_at(IDS / 2);
    let later = Due::AfterMs(700_000);
    all(some.iter().map(|id| canceller.cancel(id))).await?;
    all(others.iter().map(|id| rescheduler.reschedule(id, later))).await?;
    all(others.iter().map(|id| reviver.requeue(id))).await?;
    all(others.iter().map(|id| reader.get(id))).await?;
    all(others.iter().map(|id| runner.run_now(id))).await
}

/// Makes all calls concurrently, so that one map routes them.
async fn all<T, E: Into<anyhow::Error>>(
    calls: impl Iterator<Item = impl Future<Output = Result<T, E>>>,
) -> Result<()> {
    let mut waiting: Vec<_> = calls.map(Box::pin).collect();
    let mut first = Ok(());
    std::future::poll_fn(|context| {
        waiting.retain_mut(|call| match call.as_mut().poll(context) {
            std::task::Poll::Pending => true,
            std::task::Poll::Ready(answer) => {
                if let (Err(error), Ok(())) = (answer, &first) {
                    first = Err(error.into());
                }
                false
            }
        });
        if waiting.is_empty() {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    first
}

/// Writes another map into the home, past the library, while the home holds messages; then claims
/// them.
async fn change_with_messages(options: &Options, operator: &Queue, diary: &Diary) -> Result<()> {
    let script = match &options.scripts {
        Some(folder) => std::fs::read_to_string(folder.join("remap.lua")).unwrap_or(REMAP.into()),
        None => REMAP.into(),
    };
    for number in 0..IDS {
        let message = Message::new("drill").id(format!("due-{number}"));
        operator.push_message(message).await?;
    }
    let mut redis = redis::Client::open(&*options.url)?
        .get_multiplexed_async_connection()
        .await?;
    let keys = operator.keys();
    let meta = keys.last().context("ten keys")?;
    let epoch: u64 = redis::cmd("HGET")
        .arg(meta)
        .arg("epoch")
        .query_async(&mut redis)
        .await?;
    let numbered = (1..MANY).map(|tag| tag.to_string());
    let tags: Vec<_> = std::iter::once("-".to_owned()).chain(numbered).collect();
    let (tags, next) = (tags.join(" "), epoch + 1);
    let mut call = redis::cmd("EVAL");
    call.arg(script)
        .arg(keys.len())
        .arg(keys)
        .arg("")
        .arg("change")
        .arg(epoch);
    call.arg(format!("{next}|{tags}|{tags}"));
    loop {
        let (_, said): (redis::Value, String) = call.query_async(&mut redis).await?;
        // A correct script refuses, because there are messages.
        let Some(ms) = said.strip_prefix("REMEMBERS ") else {
            break;
        };
        tokio::time::sleep(Duration::from_millis(ms.parse()?)).await;
    }
    let map: String = redis::cmd("HGET")
        .arg(meta)
        .arg("map")
        .query_async(&mut redis)
        .await?;
    let queue = QUEUE.to_owned();
    diary.write(&Event::Map { queue, map });
    for _ in 0..2 * IDS {
        for delivery in operator.claim(IDS, Duration::from_secs(30)).await? {
            let _settled = delivery.ack().await?;
        }
    }
    Ok(())
}

/// Empties the queue and changes its map while the home remembers a cancelled id.
async fn change_with_memory(operator: &Queue) -> Result<()> {
    for state in [MessageState::Scheduled, MessageState::Ready] {
        operator.purge(state).await?;
    }
    let keys = operator.keys();
    for number in 0.. {
        let id = format!("last-{number}");
        if operator.keys_of(&id).await? == keys {
            let message = Message::new("drill").id(&id).due(Due::AfterMs(600_000));
            operator.push_message(message).await?;
            let _cancelled = operator.cancel(&id).await?;
            break;
        }
    }
    Ok(operator.partition_into(5).await?)
}

/// Deletes the keys of the home, past the library. Then a client that knows the map pushes
/// messages, and restores the map of the home.
async fn empty_the_home(options: &Options, operator: &Queue, diary: &Diary) -> Result<()> {
    let mut redis = redis::Client::open(&*options.url)?
        .get_multiplexed_async_connection()
        .await?;
    let keys = operator.keys();
    let meta = keys.last().context("ten keys")?;
    let incarnation: String = redis::cmd("HGET")
        .arg(meta)
        .arg("incarnation")
        .query_async(&mut redis)
        .await?;
    let queue = QUEUE.to_owned();
    diary.write(&Event::Emptied { queue, incarnation });
    redis::cmd("DEL")
        .arg(keys)
        .query_async::<()>(&mut redis)
        .await?;
    let ids = (0..IDS).map(|number| format!("back-{number}"));
    let messages = ids.map(|id| Message::new("drill").id(id).due(Due::AfterMs(600_000)));
    let pushed = operator.push_many(messages).await;
    let map: Option<String> = redis::cmd("HGET")
        .arg(meta)
        .arg("map")
        .query_async(&mut redis)
        .await?;
    if map.is_none() {
        diary.write(&Event::Broken {
            queue: QUEUE.to_owned(),
            what: "an emptied home has no map, although a client knows it".to_owned(),
        });
    }
    for pushed in pushed {
        pushed?;
    }
    Ok(())
}
