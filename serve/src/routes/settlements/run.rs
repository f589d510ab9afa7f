//! Runs the settlements and extensions of a request.

use std::collections::HashSet;

use dueq::claims::{DeliveryHandle, RemoteDelivery};
use dueq::{Applied, Error, Queue};
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

use crate::edge::body::Whole;
use crate::edge::problem::{Code, Problem};
use crate::routes::settlements::outcome::{Ended, Outcome, Settlements, Tally};
use crate::routes::settlements::settlement::Extended;
use crate::routes::settlements::settlement::{Asked, Step};

/// The most items that run concurrently. Items that are sent at about the same time share calls to
/// Redis.
const AT_ONCE: usize = 256;

/// One item of a request.
pub(super) enum Call {
    Settle(Asked),
    Extend(Extended),
}

/// The items of a request.
pub(super) struct Batch {
    queue: Queue,
    seen: HashSet<DeliveryHandle>,
    items: Vec<Result<Call, Problem>>,
}

impl Batch {
    pub(super) fn new(queue: Queue) -> Self {
        Self {
            queue,
            seen: HashSet::new(),
            items: Vec::new(),
        }
    }

    /// Adds the next item. If an earlier item has its handle, the item is refused, because the
    /// order of the two is undefined.
    pub(super) fn add(&mut self, item: Result<Call, Problem>) {
        let item = item.and_then(|call| match self.seen.insert(call.handle().clone()) {
            true => Ok(call),
            false => {
                let detail = "handle: an item before has it too; send one of them";
                Err(Problem::new(Code::InvalidInput, detail))
            }
        });
        self.items.push(item);
    }

    /// Runs all items. They go on if the caller disconnects. Until then they keep the body's share
    /// of the budget, because their texts are about as long as the body.
    pub(super) async fn run(
        self,
        tasks: &TaskTracker,
        body: Whole,
    ) -> Result<Settlements, Problem> {
        let ended = tasks.spawn(async move {
            let ended = run_all(self.queue, self.items).await;
            drop(body);
            ended
        });
        let ended = ended.await.map_err(|_| {
            let detail = "a settlement panicked; the log of the server has the reason";
            Problem::new(Code::Internal, detail).applied(Applied::Unknown)
        })?;
        let mut tally = Tally::default();
        ended.into_iter().for_each(|ended| tally.add(ended));
        tally.finish()
    }
}

async fn run_all(queue: Queue, items: Vec<Result<Call, Problem>>) -> Vec<Ended> {
    let mut ended: Vec<Option<Ended>> = Vec::new();
    ended.resize_with(items.len(), || None);
    let (mut running, mut is_down) = (JoinSet::new(), false);
    let mut items = items.into_iter().enumerate();
    loop {
        while running.len() < AT_ONCE
            && let Some((number, item)) = items.next()
        {
            match item {
                Err(problem) => ended[number] = Some(Ended::Refused(problem)),
                // The library has already repeated a call for 10 s: further calls would fail too.
                Ok(_) if is_down => ended[number] = Some(Ended::Failed(not_tried())),
                Ok(call) => {
                    let delivery = queue.delivery(call.handle().clone());
                    running.spawn(async move { (number, Ended::from(call.run(delivery).await)) });
                }
            }
        }
        match running.join_next().await {
            None => break,
            Some(Ok((number, result))) => {
                is_down |= matches!(&result, Ended::Failed(problem) if problem.is_retryable());
                ended[number] = Some(result);
            }
            // The task panicked: the item has no outcome.
            Some(Err(_)) => {}
        }
    }
    let panicked = || {
        let detail = "a call panicked; the log of the server has the reason";
        Ended::Failed(Problem::new(Code::Internal, detail).applied(Applied::Unknown))
    };
    let ended = ended.into_iter();
    ended.map(|ended| ended.unwrap_or_else(panicked)).collect()
}

fn not_tried() -> Problem {
    let detail = "not tried, because Redis did not answer for other items";
    Problem::new(Code::RedisUnavailable, detail)
}

impl Call {
    fn handle(&self) -> &DeliveryHandle {
        match self {
            Self::Settle(asked) => &asked.handle,
            Self::Extend(extended) => &extended.handle,
        }
    }

    async fn run(self, delivery: RemoteDelivery) -> Result<Outcome, Error> {
        let step = match self {
            Self::Settle(asked) => asked.step,
            Self::Extend(extended) => return Ok(delivery.extend(extended.lease).await?.into()),
        };
        Ok(match step {
            Step::Ack(messages) if messages.is_empty() => delivery.ack().await?.into(),
            Step::Ack(messages) => delivery.ack_push(messages).await?.into(),
            Step::Retry(due, error) => delivery.retry(due, &error).await?.into(),
            Step::Bury(error) => delivery.bury(&error).await?.into(),
            Step::Release => delivery.release().await?.into(),
            Step::Snooze(due) => delivery.snooze(due).await?.into(),
            Step::Again(due) => delivery.again(due).await?.into(),
            Step::Throttle(time) => delivery.throttle(time).await?.into(),
        })
    }
}
