//! The queue and the floor behind one trait, for measurements that call them step by step.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use dueq::outcomes::{CancelOutcome, PushOutcome, SettleOutcome};
use dueq::{Client, Delivery, Due, Queue};
use dueq_bench_driver::Message;
use tokio::task::JoinSet;

use super::message;
use crate::drive::floor::{Calls, id};

/// The number of messages in one call.
const BATCH: u64 = 100;
const LEASE: Duration = Duration::from_secs(600);

/// A store of messages until they are due.
pub(super) trait Store: Sized {
    const NAME: &'static str;
    /// How to read the tables of the ids by due time and of the payloads; and the keys of these
    /// tables.
    const TABLES: [(&'static str, &'static str); 2];
    type Granted;

    async fn connect(server: &str) -> Result<Self>;
    /// Pushes messages, a hundred per call. Each is due at a time in Unix milliseconds, or at once.
    async fn push(&self, dues: impl Iterator<Item = Option<u64>>) -> Result<()>;
    /// Like `push`; returns the ids.
    async fn push_known(&self, dues: impl Iterator<Item = Option<u64>>) -> Result<Vec<Vec<u8>>>;
    /// Cancels waiting messages.
    async fn withdraw(&self, ids: Vec<Vec<u8>>) -> Result<()>;
    /// Claims up to a hundred due messages.
    async fn claim(&self) -> Result<Vec<Self::Granted>>;
    /// Acknowledges the grant of one claim.
    async fn acknowledge(&self, granted: Vec<Self::Granted>) -> Result<()>;
}

impl Store for Queue {
    const NAME: &'static str = "dueq";
    const TABLES: [(&'static str, &'static str); 2] = [
        ("ZMSCORE", "dueq:{scale}:scheduled"),
        ("HMGET", "dueq:{scale}:messages"),
    ];
    type Granted = Delivery;

    async fn connect(server: &str) -> Result<Self> {
        Ok(Client::connect(server).await?.queue("scale")?)
    }

    async fn push(&self, dues: impl Iterator<Item = Option<u64>>) -> Result<()> {
        push(self, messages(dues)).await
    }

    async fn push_known(&self, dues: impl Iterator<Item = Option<u64>>) -> Result<Vec<Vec<u8>>> {
        let messages: Vec<_> = messages(dues).collect();
        let ids = messages
            .iter()
            .map(|message| message.id_bytes().unwrap_or_default().to_vec())
            .collect();
        push(self, messages.into_iter()).await?;
        Ok(ids)
    }

    async fn withdraw(&self, ids: Vec<Vec<u8>>) -> Result<()> {
        for ids in ids.chunks(BATCH as usize) {
            let cancel = |id: &Vec<u8>| {
                let (queue, id) = (self.clone(), id.clone());
                async move { queue.cancel(id).await }
            };
            let mut cancels: JoinSet<_> = ids.iter().map(cancel).collect();
            while let Some(cancelled) = cancels.join_next().await {
                if cancelled?? != CancelOutcome::Cancelled {
                    bail!("a message did not wait any more");
                }
            }
        }
        Ok(())
    }

    async fn claim(&self) -> Result<Vec<Delivery>> {
        Ok(Queue::claim(self, BATCH as usize, LEASE).await?)
    }

    async fn acknowledge(&self, granted: Vec<Delivery>) -> Result<()> {
        let mut acks: JoinSet<_> = granted
            .into_iter()
            .map(|delivery| async move { delivery.ack().await })
            .collect();
        while let Some(settled) = acks.join_next().await {
            if settled?? != SettleOutcome::Done {
                bail!("a delivery was lost");
            }
        }
        Ok(())
    }
}

fn messages(dues: impl Iterator<Item = Option<u64>>) -> impl Iterator<Item = dueq::Message> {
    dues.map(|due| message(due.map_or(Due::AfterMs(0), Due::at_ms)))
}

/// The messages are moved: a clone would make the library assume that its id is known elsewhere.
async fn push(queue: &Queue, messages: impl Iterator<Item = dueq::Message>) -> Result<()> {
    let mut messages = messages.peekable();
    while messages.peek().is_some() {
        for pushed in queue
            .push_many(messages.by_ref().take(BATCH as usize))
            .await
        {
            if pushed? != PushOutcome::Created {
                bail!("a message was there before");
            }
        }
    }
    Ok(())
}

/// The floor, and the number of messages that were pushed to it.
pub(super) struct Floor(Calls, AtomicU64);

impl Store for Floor {
    const NAME: &'static str = "floor";
    const TABLES: [(&'static str, &'static str); 2] =
        [("ZMSCORE", "{scale}:due"), ("HMGET", "{scale}:held")];
    type Granted = Vec<u8>;

    async fn connect(server: &str) -> Result<Self> {
        Ok(Self(
            Calls::connect(server, "scale").await?,
            AtomicU64::new(0),
        ))
    }

    async fn push(&self, dues: impl Iterator<Item = Option<u64>>) -> Result<()> {
        self.push_known(dues).await.map(drop)
    }

    async fn push_known(&self, dues: impl Iterator<Item = Option<u64>>) -> Result<Vec<Vec<u8>>> {
        let next = || id(self.1.fetch_add(1, Ordering::Relaxed));
        let messages: Vec<_> = dues.map(|due| (next(), Message::new(due))).collect();
        for call in messages.chunks(BATCH as usize) {
            self.0.push(call.to_vec()).await?;
        }
        Ok(messages
            .into_iter()
            .map(|(id, _)| id.into_bytes())
            .collect())
    }

    async fn withdraw(&self, ids: Vec<Vec<u8>>) -> Result<()> {
        for ids in ids.chunks(BATCH as usize) {
            self.0.withdraw(ids).await?;
        }
        Ok(())
    }

    async fn claim(&self) -> Result<Vec<Vec<u8>>> {
        Ok(self.0.claim().await?.0)
    }

    async fn acknowledge(&self, granted: Vec<Vec<u8>>) -> Result<()> {
        self.0.acknowledge(&granted).await
    }
}
