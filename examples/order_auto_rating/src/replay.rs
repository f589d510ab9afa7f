//! The shop: delivers orders and receives reviews.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dueq::outcomes::{CancelOutcome, PushOutcome};
use dueq::{MessageState, Queue};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use crate::books::{Entry, Writer};
use crate::input::{Case, Order, Review};
use crate::schedule::Schedule;

/// Counts of the shop's calls and of Redis's replies.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) delivered: AtomicU64,
    pub(crate) already_reviewed: AtomicU64,
    pub(crate) pushed: AtomicU64,
    pub(crate) cancelled_in_time: AtomicU64,
    pub(crate) races_lost: AtomicU64,
    /// Orders whose message Redis acknowledged and did not cancel. Each must be rated exactly once.
    waiting: Mutex<HashSet<String>>,
}

impl Tally {
    pub(crate) fn waiting(&self) -> MutexGuard<'_, HashSet<String>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone)]
pub(crate) struct Shop {
    pub(crate) queue: Queue,
    pub(crate) books: Writer,
    pub(crate) schedule: Schedule,
    pub(crate) tally: Arc<Tally>,
}

impl Shop {
    /// Replays all orders, each in its own task.
    pub(crate) async fn replay(&self, orders: &[Order]) -> Result<()> {
        let mut lives = JoinSet::new();
        for order in orders {
            let (shop, order) = (self.clone(), order.clone());
            lives.spawn(async move {
                shop.live(&order)
                    .await
                    .with_context(|| format!("order {}", order.id))
            });
        }
        while let Some(life) = lives.join_next().await {
            life??;
        }
        Ok(())
    }

    async fn live(&self, order: &Order) -> Result<()> {
        sleep_until(self.schedule.instant(order.delivered_s).into()).await;
        let delivered = Entry::Delivered {
            order_id: order.id.clone(),
            delivered_ms: order.delivered_s * 1_000,
        };
        self.books.enter(delivered).await?;
        count(&self.tally.delivered);

        match order.case() {
            Case::Before(review) => {
                self.review(order, review).await?;
                count(&self.tally.already_reviewed);
            }
            Case::Never => self.push(order).await?,
            Case::Inside(review) => {
                self.push(order).await?;
                sleep_until(self.schedule.instant(review.at_s).into()).await;
                self.review_in_time(order, review).await?;
            }
            Case::Late(review) => {
                self.push(order).await?;
                sleep_until(self.schedule.instant(review.at_s).into()).await;
                self.rated(order).await?;
                self.review(order, review).await?;
            }
        }
        Ok(())
    }

    /// Schedules the rating 48 h after the delivery. If the replay is late, the delay is shorter.
    async fn push(&self, order: &Order) -> Result<()> {
        let delay = self
            .schedule
            .due(order.delivered_s)
            .saturating_duration_since(Instant::now());
        let push = self.queue.push(order.id.as_str()).id(message_id(order));
        let outcome = push.delay(delay).await?.outcome();
        ensure!(
            outcome == PushOutcome::Created,
            "the queue is new, and yet a push found {outcome:?}"
        );
        count(&self.tally.pushed);
        self.tally.waiting().insert(order.id.clone());
        Ok(())
    }

    /// Exactly one of a cancel and a claim wins, and Redis reports which, so the cancel decides.
    ///
    /// (A shop that may crash between the two calls stores the review first: the worker keeps a
    /// stored review.)
    async fn review_in_time(&self, order: &Order, review: Review) -> Result<()> {
        match self.queue.cancel(message_id(order)).await? {
            CancelOutcome::Cancelled => {
                self.tally.waiting().remove(&order.id);
                count(&self.tally.cancelled_in_time);
            }
            // A worker has claimed it: the automatic rating comes first and is then replaced.
            _ => {
                count(&self.tally.races_lost);
                self.rated(order).await?;
            }
        }
        self.review(order, review).await
    }

    /// Returns when the message has been handled.
    async fn rated(&self, order: &Order) -> Result<()> {
        let mut pause = Duration::from_millis(1);
        while self
            .queue
            .get(message_id(order))
            .await?
            .is_some_and(|message| message.state != MessageState::Dead)
        {
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
        Ok(())
    }

    async fn review(&self, order: &Order, review: Review) -> Result<()> {
        self.books
            .enter(Entry::Reviewed {
                order_id: order.id.clone(),
                stars: review.stars,
            })
            .await?;
        Ok(())
    }
}

fn message_id(order: &Order) -> String {
    format!("order-{}", order.id)
}

fn count(number: &AtomicU64) {
    number.fetch_add(1, Ordering::Relaxed);
}
