//! One id is pushed repeatedly: a push after the end of the message creates a new one.
//!
//! `DUEQ_ROUNDS=10000` sets the number of pushes of each kind (default 1,000).

use anyhow::{Result, ensure};
use dueq::{Cancelled, Due, Pushed, Settled, State};

use crate::support::{HOUR, claim_one, setup};

fn rounds() -> u64 {
    std::env::var("DUEQ_ROUNDS")
        .ok()
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(1_000)
}

#[tokio::test]
async fn every_push_after_an_end_is_a_new_message() -> Result<()> {
    for end in ["cancel", "purge", "ack"] {
        let setup = setup().await?;
        let queue = &setup.queue;
        for round in 0..rounds() {
            let due = match end {
                "ack" => Due::from(std::time::Duration::ZERO),
                _ => HOUR.into(),
            };
            let payload = round.to_string();
            let pushed = queue.push(payload.clone()).id("order:42").due(due).await?;
            ensure!(
                pushed == Pushed::Created,
                "{end}, round {round}: {pushed:?}"
            );
            match end {
                "cancel" => assert_eq!(queue.cancel("order:42").await?, Cancelled::Cancelled),
                "purge" => assert_eq!(queue.purge(State::Scheduled).await?, 1),
                _ => {
                    let delivery = claim_one(queue).await?;
                    assert_eq!(delivery.payload(), payload.as_bytes());
                    assert_eq!(delivery.ack().await?, Settled::Done);
                }
            }
        }
        assert_eq!(queue.stats().await?.pushed, rounds());
    }
    Ok(())
}

/// Two clients whose estimates of the server's time differ: one ends a message, the other pushes
/// its id at once.
#[tokio::test]
async fn a_push_after_another_clients_cancel_is_a_new_message() -> Result<()> {
    let setup = setup().await?;
    let other = dueq::Client::connect(&setup.server.url())
        .await?
        .queue("orders")?;
    for round in 0..rounds() {
        let (pusher, canceller) = if round % 2 == 0 {
            (&setup.queue, &other)
        } else {
            (&other, &setup.queue)
        };
        let pushed = pusher.push("").id("order:42").due(HOUR).await?;
        ensure!(pushed == Pushed::Created, "round {round}: {pushed:?}");
        assert_eq!(canceller.cancel("order:42").await?, Cancelled::Cancelled);
    }
    assert_eq!(setup.queue.stats().await?.pushed, rounds());
    Ok(())
}
