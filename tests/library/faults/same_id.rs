//! One id is pushed repeatedly: a push after the end of the message creates a new one, a repetition
//! of a push does not.
//!
//! `DUEQ_ROUNDS=10000` sets the number of pushes of each kind (default 1,000).

use std::time::Duration;

use anyhow::{Result, ensure};
use dueq::{Cancelled, Message, Pushed, Queue, Settled, State};

use super::proxied::{PUSH, proxied};
use crate::support::{HOUR, claim, claim_one, setup, stats_until, until, within};

fn rounds() -> u64 {
    std::env::var("DUEQ_ROUNDS")
        .ok()
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(1_000)
}

/// How a message ends before the next push of its id.
#[derive(Debug, Clone, Copy)]
enum End {
    Cancel,
    Purge,
    Ack,
}

const ENDS: [End; 3] = [End::Cancel, End::Purge, End::Ack];

impl End {
    fn due(self) -> Duration {
        if matches!(self, Self::Ack) {
            Duration::ZERO
        } else {
            HOUR
        }
    }

    /// Ends the messages with these ids.
    async fn make(self, queue: &Queue, ids: &[String]) -> Result<()> {
        match self {
            Self::Cancel => {
                for id in ids {
                    assert_eq!(queue.cancel(id).await?, Cancelled::Cancelled);
                }
            }
            Self::Purge => assert_eq!(queue.purge(State::Scheduled).await?, ids.len() as u64),
            Self::Ack => {
                for delivery in claim(queue, ids.len()).await? {
                    assert_eq!(delivery.ack().await?, Settled::Done);
                }
            }
        }
        Ok(())
    }
}

fn numbered(ids: &[String], end: End) -> Vec<Message> {
    ids.iter()
        .map(|id| Message::new("payload").id(id).due(end.due()))
        .collect()
}

#[tokio::test]
async fn every_push_after_an_end_is_a_new_message() -> Result<()> {
    for end in ENDS {
        let setup = setup().await?;
        let id = ["order:42".to_owned()];
        for round in 0..rounds() {
            let pushed = setup
                .queue
                .push_message(Message::new(round.to_string()).id(&id[0]).due(end.due()))
                .await?;
            ensure!(
                pushed == Pushed::Created,
                "{end:?}, round {round}: {pushed:?}"
            );
            if let End::Ack = end {
                let delivery = claim_one(&setup.queue).await?;
                assert_eq!(delivery.payload(), round.to_string().as_bytes());
                assert_eq!(delivery.ack().await?, Settled::Done);
            } else {
                end.make(&setup.queue, &id).await?;
            }
        }
        assert_eq!(setup.queue.stats().await?.pushed, rounds());
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
        let pushed = pusher
            .push_message(Message::new("").id("order:42").due(HOUR))
            .await?;
        ensure!(pushed == Pushed::Created, "round {round}: {pushed:?}");
        assert_eq!(canceller.cancel("order:42").await?, Cancelled::Cancelled);
    }
    assert_eq!(setup.queue.stats().await?.pushed, rounds());
    Ok(())
}

/// The client loses every reply to a push and repeats it before or after the messages end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_repeated_push_makes_a_second_message() -> Result<()> {
    const MANY: u64 = 50;
    for end in ENDS {
        let (setup, proxy, queue) = proxied().await?;
        let ids: Vec<String> = (0..MANY).map(|number| format!("order:{number}")).collect();
        let before = setup.queue.stats().await?.pushed;
        let all_rounds = rounds() / MANY;
        for round in 0..all_rounds {
            let cuts = proxy.cuts();
            proxy.cut_reply_of(PUSH);
            let ended_first = round % 2 == 0;
            if ended_first {
                proxy.shut();
            }
            let push = tokio::spawn({
                let (queue, messages) = (queue.clone(), numbered(&ids, end));
                async move { queue.push_many(messages).await }
            });
            if ended_first {
                until(
                    "the lost reply",
                    async || Ok(proxy.cuts()),
                    |now| *now > cuts,
                )
                .await?;
                end.make(&setup.queue, &ids).await?;
                proxy.let_in();
            }
            for pushed in within("the push", push).await?? {
                let pushed = pushed?;
                let repeated = if ended_first {
                    pushed == Pushed::Finished
                } else {
                    matches!(pushed.outcome(), Pushed::Exists(_))
                };
                ensure!(repeated, "{end:?}, round {round}: {pushed:?}");
            }
            if !ended_first {
                end.make(&setup.queue, &ids).await?;
            }
            // No message remains, and no worker missed one.
            let stats = stats_until(&setup.queue, "nothing is left", |stats| {
                stats.scheduled + stats.ready == 0
            })
            .await?;
            ensure!(
                stats.pushed == before + MANY * (round + 1),
                "{end:?}, round {round}: {}",
                stats.pushed
            );
        }
        assert_eq!(proxy.cuts(), all_rounds);
    }
    Ok(())
}
