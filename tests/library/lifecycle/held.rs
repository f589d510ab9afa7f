//! Claims whose token the caller chooses, and reads of what they granted.

use anyhow::Result;
use dueq::claims::LeaseToken;
use dueq::outcomes::{ExtendOutcome, SettleOutcome};
use dueq::{Delivery, ErrorKind, Message, Queue};

use crate::support::{LONG, ids, messages, push_all, setup};

/// Pushes this many messages and makes them ready.
async fn ready(count: usize) -> Result<crate::support::Setup> {
    let setup = setup().await?;
    push_all(&setup.queue, messages(count)).await?;
    setup.promote(count as u64).await?;
    Ok(setup)
}

fn names(deliveries: &[Delivery]) -> Vec<String> {
    let mut names: Vec<_> = deliveries.iter().map(|one| one.id().into_owned()).collect();
    names.sort();
    names
}

async fn is_held(queue: &Queue, token: LeaseToken) -> Result<bool> {
    match queue.claim_with_token(token, 10, LONG).await {
        Err(error) if error.code() == Some("HELD") => {
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert_eq!(error.was_applied(), dueq::Applied::No);
            Ok(true)
        }
        result => Ok(result.map(|_| false)?),
    }
}

#[tokio::test]
async fn a_repeated_claim_reports_held_and_its_grant_is_readable() -> Result<()> {
    let setup = ready(3).await?;
    let queue = &setup.queue;
    let token = LeaseToken::random();
    let first = queue.claim_with_token(token, 10, LONG).await?;
    assert_eq!(first.len(), 3);
    assert!(first.iter().all(|delivery| delivery.lease_token() == token));
    assert!(is_held(queue, token).await?);
    let held = queue.held(&token).await?;
    assert_eq!((names(&held.deliveries), held.more), (names(&first), 0));
    for (one, again) in first.iter().zip(&held.deliveries) {
        assert_eq!(one.payload(), again.payload());
        assert_eq!(one.due_ms(), again.due_ms());
        assert_eq!((one.attempt(), again.attempt()), (1, 1));
        assert_eq!(one.deadline_ms(), again.deadline_ms());
    }
    // Both reads return the same delivery, so the first ack settles it for both.
    assert_eq!(held.deliveries[0].ack().await?, SettleOutcome::Done);
    assert_eq!(first[0].ack().await?, SettleOutcome::Gone);
    assert!(matches!(
        first[1].extend(LONG).await?,
        ExtendOutcome::Until(_)
    ));
    let rest = queue.held(&token).await?;
    assert_eq!(names(&rest.deliveries), names(&first[2..]));
    Ok(())
}

#[tokio::test]
async fn a_token_can_claim_again_once_its_lease_is_empty() -> Result<()> {
    let setup = ready(1).await?;
    let queue = &setup.queue;
    let token: LeaseToken = "000102030405060708090a0b0c0d0eff".parse()?;
    assert!(queue.held(&token).await?.deliveries.is_empty());
    for delivery in queue.claim_with_token(token, 1, LONG).await? {
        assert_eq!(delivery.ack().await?, SettleOutcome::Done);
    }
    assert!(!is_held(queue, token).await?);
    Ok(())
}

/// The lease is at the partition that granted messages, which need not be the home.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_held_at_any_partition() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.partition_into(5).await?;
    // A client that does not know the map asks the home first.
    for knows_map in [true, false] {
        let other = dueq::Client::connect(&setup.server.url()).await?;
        let other = other.queue(queue.name())?;
        if knows_map {
            other.partitions().await?;
        }
        for id in ids(10) {
            let message = Message::new("").id(&id).due(dueq::Due::at_ms(1));
            assert!(queue.push_message(message).await?.is_created());
            let token = LeaseToken::random();
            let granted = queue.claim_with_token(token, 10, LONG).await?;
            assert_eq!(names(&granted), [id.as_str()]);
            assert!(is_held(&other, token).await?, "{id}");
            let held = other.held(&token).await?.deliveries;
            assert_eq!(names(&held), [id.as_str()]);
            assert_eq!(held[0].ack().await?, SettleOutcome::Done);
            assert!(!is_held(&other, token).await?);
        }
    }
    Ok(())
}

/// A message at the home must not hide what another partition granted earlier.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_grant_of_the_home_does_not_hide_a_held_one() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.partition_into(3).await?;
    let token = LeaseToken::random();
    let home = queue.keys()[9].clone();
    let (mut at_home, mut elsewhere) = (None, None);
    for id in ids(100) {
        match queue.keys_of(&id).await?[9] == home {
            true => at_home = Some(id),
            false => elsewhere = Some(id),
        }
    }
    let message = |id: &Option<String>| {
        let id = id.clone().unwrap_or_default();
        Message::new("").id(id).due(dueq::Due::at_ms(1))
    };
    queue.push_message(message(&elsewhere)).await?;
    assert_eq!(queue.claim_with_token(token, 10, LONG).await?.len(), 1);
    queue.push_message(message(&at_home)).await?;
    let other = dueq::Client::connect(&setup.server.url()).await?;
    let other = other.queue(queue.name())?;
    assert!(is_held(&other, token).await?);
    let held = names(&other.held(&token).await?.deliveries);
    assert_eq!(held.len(), 2, "{held:?}");
    Ok(())
}

#[tokio::test]
async fn count_and_lease_of_a_claim_with_a_token_are_checked() -> Result<()> {
    let setup = setup().await?;
    let token = LeaseToken::random();
    for (count, lease) in [(0, LONG), (1_001, LONG), (1, std::time::Duration::ZERO)] {
        let result = setup.queue.claim_with_token(token, count, lease).await;
        let error = result.expect_err("out of range");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(error.code(), None);
    }
    Ok(())
}
