//! What a push returns: id, outcome and due time, also with private ids and codecs that panic.

use anyhow::Result;
use dueq::{BoxError, Codec, ErrorKind, Message, OnConflict, Pushed, State};

use crate::support::{HOUR, setup};

#[tokio::test]
async fn receipt_has_the_due_time_that_redis_stored() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    for _ in 0..20 {
        let receipt = queue.push("x").delay(HOUR).await?;
        let stored = queue.get(receipt.id_bytes()).await?.expect("a message");
        assert_eq!(receipt.due_ms(), Some(stored.time_ms));
    }
    let created = queue.push("x").id("a").delay(HOUR).await?;
    let again = queue.push("x").id("a").await?;
    assert_eq!(again, Pushed::Exists(State::Scheduled));
    assert_eq!((created.is_created(), again.due_ms()), (true, None));
    let moved = queue.push("x").id("a").delay(2 * HOUR);
    let moved = moved.on_conflict(OnConflict::Reschedule).await?;
    let stored = queue.get("a").await?.expect("a message");
    assert_eq!(moved.due_ms(), Some(stored.time_ms));
    Ok(())
}

#[tokio::test]
async fn each_push_of_a_message_with_a_private_id_is_new() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let message = Message::new("x").due(HOUR);
    println!("{message:?}");
    let first = queue.push_message(message.clone()).await?;
    let second = queue.push_message(message).await?;
    assert!(first.is_created() && second.is_created());
    assert_ne!(first.id(), second.id());
    let named = Message::new("x").due(HOUR).new_id();
    assert!(queue.push_message(named.clone()).await?.is_created());
    let again = queue.push_message(named).await?;
    assert_eq!(again, Pushed::Exists(State::Scheduled));
    Ok(())
}

#[derive(Clone)]
struct Panics;

impl Codec for Panics {
    type Value = u32;

    fn encode(&self, value: &u32) -> Result<Vec<u8>, BoxError> {
        assert_ne!(*value, 13, "an unlucky number");
        Ok(value.to_string().into_bytes())
    }

    fn decode(&self, payload: &[u8]) -> Result<u32, BoxError> {
        Ok(std::str::from_utf8(payload)?.parse()?)
    }
}

#[tokio::test]
async fn panic_of_a_codec_fails_only_its_push() -> Result<()> {
    let setup = setup().await?;
    let queue = setup.client.queue_with(setup.queue.name(), Panics)?;
    let error = queue.push(13_u32).await.expect_err("the codec panics");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("an unlucky number"), "{error}");
    assert!(queue.push(14_u32).await?.is_created());
    assert_eq!(queue.stats().await?.pushed, 1);
    Ok(())
}
