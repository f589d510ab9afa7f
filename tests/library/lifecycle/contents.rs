//! Payloads and ids come back exactly as they were pushed.

use anyhow::Result;
use dueq::outcomes::{CancelOutcome, PushOutcome, RescheduleOutcome};
use dueq::{Message, MessageState, QueueLimits};

use crate::support::{HOUR, claim_one, push_and_claim, setup};

#[tokio::test]
async fn every_payload_comes_back_byte_for_byte() -> Result<()> {
    let setup = setup().await?;
    let every_byte: Vec<u8> = (0..=255).collect();
    let random: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..))
        .take(1024 * 1024)
        .collect();
    let payloads: Vec<Vec<u8>> = vec![
        vec![],
        vec![0],
        b"\0\0\0".to_vec(),
        b"\r\n$5\r\nhello\r\n*1\r\n".to_vec(),
        b"\xff\xfe\xc0\x80".to_vec(),
        b"[]".to_vec(),
        b"12345678901234567890".to_vec(),
        every_byte,
        random,
    ];
    for payload in payloads {
        let delivery = push_and_claim(&setup.queue, Message::new(payload.clone())).await?;
        assert!(
            delivery.payload() == payload,
            "{} bytes differ",
            payload.len()
        );
        assert!(
            setup
                .queue
                .get(delivery.id_bytes())
                .await?
                .expect("leased")
                .payload
                == payload
        );
        let _ = delivery.ack().await?;
    }
    Ok(())
}

#[tokio::test]
async fn every_id_works_for_every_verb() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let long = [b'x'; 200];
    let ids: [&[u8]; 14] = [
        b"order:42",
        b"with space",
        b" ",
        b"1700000000000:x",
        b":",
        b"+5",
        b"-inf",
        b"{tag}",
        b"a/b\\c\"'*?[]%d",
        "größe \u{1f600} \u{202e}".as_bytes(),
        b"\xff\xfe\x80",
        b"CREATED",
        "\u{a0}\u{85}".as_bytes(),
        &long,
    ];
    for id in ids {
        let shown = String::from_utf8_lossy(id);
        assert_eq!(
            queue.push("a").id(id).due(HOUR).await?,
            PushOutcome::Created,
            "{shown}"
        );
        assert_eq!(
            queue.get(id).await?.map(|stored| stored.state),
            Some(MessageState::Scheduled),
            "{shown}"
        );
        assert!(
            matches!(
                queue.reschedule(id, 2 * HOUR).await?,
                RescheduleOutcome::Moved(_)
            ),
            "{shown}"
        );
        let page = queue.list(MessageState::Scheduled, None, 10).await?;
        assert_eq!(
            page.messages
                .iter()
                .map(|message| message.id.as_slice())
                .collect::<Vec<_>>(),
            [id],
            "{shown}"
        );
        let _ = queue.run_now(id).await?;
        let delivery = claim_one(queue).await?;
        assert_eq!((delivery.id_bytes(), &delivery.id()), (id, &shown));
        let _ = delivery.bury("why").await?;
        assert_eq!(
            queue.get(id).await?.map(|stored| stored.error).as_deref(),
            Some("why"),
            "{shown}"
        );
        let _ = queue.requeue(id).await?;
        let delivery = claim_one(queue).await?;
        assert_eq!(delivery.id_bytes(), id);
        let _ = delivery.release().await?;
        assert_eq!(queue.cancel(id).await?, CancelOutcome::Cancelled, "{shown}");
    }
    Ok(())
}

#[tokio::test]
async fn ids_made_by_the_library_are_unique_and_rise() -> Result<()> {
    let setup = setup().await?;
    let messages: Vec<Message> = (0..500)
        .map(|_| Message::new("").new_id().due(HOUR))
        .collect();
    let ids: Vec<Vec<u8>> = messages
        .iter()
        .map(|message| message.id_bytes().expect("a new id").to_vec())
        .collect();
    assert!(ids.is_sorted_by(|a, b| a < b));
    crate::support::push_all(&setup.queue, messages).await
}

#[tokio::test]
async fn largest_payloads_are_stored_and_granted_one_at_a_time() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue
        .configure(QueueLimits::new().max_payload_bytes(16 * 1024 * 1024))
        .await?;
    let large = vec![0xA5; 16 * 1024 * 1024];
    for id in ["one", "two"] {
        queue
            .push_message(Message::new(large.clone()).id(id))
            .await?;
    }
    for id in ["one", "two"] {
        let deliveries = queue.claim(2, crate::support::LONG).await?;
        assert_eq!(deliveries.len(), 1);
        assert_eq!(deliveries[0].id(), id);
        assert!(deliveries[0].payload() == large);
    }
    Ok(())
}
