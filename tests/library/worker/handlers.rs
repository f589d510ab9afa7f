//! Kinds of handlers, and the layers around them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Context as _, Result};
use dueq::handlers::{BoxError, HandlerFuture, HandlerService};
use dueq::{Delivery, Handler, Message, MessageState, QueueLimits, Retry, Settlement};
use tower::Service;
use tower::layer::{Layer, layer_fn};
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::timeout::TimeoutLayer;

use crate::support::{HOUR, LONG, Setup, claim_for, seen, setup, stats_until};

struct Counter {
    handled: AtomicUsize,
}

impl Handler<Vec<u8>> for Counter {
    type Output = Result<()>;

    async fn handle(&self, value: Vec<u8>, delivery: Delivery) -> Result<()> {
        assert_eq!(value, delivery.payload());
        self.handled.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_handler_with_state_serves_two_queues() -> Result<()> {
    let Setup { queue, client, .. } = &setup().await?;
    let mails = client.queue("mails")?;
    let counter = Arc::new(Counter {
        handled: AtomicUsize::new(0),
    });
    let worker = client
        .worker()
        .queue(queue, Arc::clone(&counter))
        .queue(&mails, Arc::clone(&counter))
        .spawn()?;
    queue.push("an order").await?;
    mails.push("a mail").await?;
    for queue in [queue, &mails] {
        stats_until(queue, "acked", |stats| stats.acked == 1).await?;
    }
    assert_eq!(counter.handled.load(Ordering::SeqCst), 2);
    Ok(worker.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_may_take_the_value_of_the_payload() -> Result<()> {
    let setup = setup().await?;
    let (sender, mut seen) = seen();
    let worker = setup
        .queue
        .worker()
        .spawn(move |value: Vec<u8>, _: Delivery| {
            let _ = sender.send(value);
            async { Settlement::Ack }
        })?;
    setup.queue.push("the payload").await?;
    assert_eq!(seen.take(1).await?, [b"the payload"]);
    Ok(worker.shutdown().await?)
}

/// A layer that reports its name before each delivery.
fn named(
    name: &'static str,
    sender: tokio::sync::mpsc::UnboundedSender<&'static str>,
) -> impl Layer<HandlerService, Service = Named> + Send + Sync + 'static {
    layer_fn(move |inner| Named {
        name,
        sender: sender.clone(),
        inner,
    })
}

#[derive(Clone)]
struct Named {
    name: &'static str,
    sender: tokio::sync::mpsc::UnboundedSender<&'static str>,
    inner: HandlerService,
}

impl Service<Delivery> for Named {
    type Response = Settlement;
    type Error = BoxError;
    type Future = HandlerFuture;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, delivery: Delivery) -> Self::Future {
        let _ = self.sender.send(self.name);
        self.inner.call(delivery)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_layer_is_the_outermost() -> Result<()> {
    let setup = setup().await?;
    let (sender, mut seen) = seen();
    let of_handler = sender.clone();
    let worker = setup
        .queue
        .worker()
        .layer(named("outer", sender.clone()))
        .layer(named("inner", sender))
        .spawn(move |_: Delivery| {
            let _ = of_handler.send("handler");
            async {}
        })?;
    setup.queue.push("").await?;
    assert_eq!(seen.take(3).await?, ["outer", "inner", "handler"]);
    Ok(worker.shutdown().await?)
}

/// A layer that reports the queue of each delivery, and whether its handler asked for a retry.
#[derive(Clone)]
struct Observe(tokio::sync::mpsc::UnboundedSender<(String, bool)>);

impl<S> Layer<S> for Observe {
    type Service = Observed<S>;

    fn layer(&self, inner: S) -> Observed<S> {
        let sender = self.0.clone();
        Observed { sender, inner }
    }
}

#[derive(Clone)]
struct Observed<S> {
    sender: tokio::sync::mpsc::UnboundedSender<(String, bool)>,
    inner: S,
}

impl<S> Service<Delivery> for Observed<S>
where
    S: Service<Delivery, Response = Settlement>,
    S::Future: Send + 'static,
{
    type Response = Settlement;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Settlement, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, delivery: Delivery) -> Self::Future {
        let (sender, queue) = (self.sender.clone(), delivery.queue().to_owned());
        let response = self.inner.call(delivery);
        Box::pin(async move {
            let settlement = response.await?;
            let is_retry = matches!(settlement, Settlement::Retry { .. });
            let _ = sender.send((queue, is_retry));
            Ok(settlement)
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_layer_covers_named_found_and_added_queues() -> Result<()> {
    let Setup { queue, client, .. } = &setup().await?;
    let (mail, added) = (client.queue("mail-a")?, client.queue("added")?);
    mail.push("fails").await?;
    let handler = |delivery: Delivery| async move {
        anyhow::ensure!(delivery.payload() != b"fails");
        Ok(())
    };
    let (sender, mut seen) = seen();
    let worker = client
        .worker()
        .retry(Retry::fixed(HOUR))
        .layer(Observe(sender))
        .queue(queue, handler)
        .pattern(&client.pattern("mail-*")?, handler)
        .spawn()?;
    assert_eq!(seen.next().await?, ("mail-a".to_owned(), true));
    queue.push("").await?;
    assert_eq!(seen.next().await?, ("orders".to_owned(), false));
    worker.add(&added, handler).await?;
    added.push("").await?;
    assert_eq!(seen.next().await?, ("added".to_owned(), false));
    mail.push("").await?;
    assert_eq!(seen.next().await?, ("mail-a".to_owned(), false));
    stats_until(&mail, "settled", |stats| stats.acked == 1).await?;
    assert_eq!(mail.stats().await?.retried, 1);
    worker.shutdown().await?;
    assert_eq!(seen.rest(), [], "once each");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_a_layer_causes_a_retry() -> Result<()> {
    let setup = setup().await?;
    let worker = setup
        .queue
        .worker()
        .retry(Retry::fixed(HOUR))
        .layer(TimeoutLayer::new(Duration::from_millis(1)))
        .spawn(|_: Delivery| std::future::pending::<()>())?;
    setup.queue.push("").id("slow").await?;
    stats_until(&setup.queue, "retried", |stats| stats.retried == 1).await?;
    let stored = setup.queue.get("slow").await?.context("a message")?;
    assert_eq!(
        (stored.state, stored.failures),
        (MessageState::Scheduled, 1)
    );
    assert!(stored.error.contains("timed out"), "{}", stored.error);
    Ok(worker.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_layer_counts_handlers_of_all_queues_together() -> Result<()> {
    let Setup { queue, client, .. } = &setup().await?;
    let mails = client.queue("mails")?;
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let handler = {
        let most = Arc::clone(&most);
        move |_: Delivery| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                running.fetch_sub(1, Ordering::SeqCst);
            }
        }
    };
    let worker = client
        .worker()
        .layer(GlobalConcurrencyLimitLayer::new(1))
        .queue(queue, handler.clone())
        .queue(&mails, handler)
        .spawn()?;
    for queue in [queue, &mails] {
        for _ in 0..20 {
            queue.push("").await?;
        }
        stats_until(queue, "acked", |stats| stats.acked == 20).await?;
    }
    assert_eq!(most.load(Ordering::SeqCst), 1);
    Ok(worker.shutdown().await?)
}

/// The id of a delivery, its attempt, and whether that is the last attempt.
type Attempt = (String, u32, bool);

fn attempt(delivery: &Delivery) -> Attempt {
    let is_last = delivery.is_last_attempt();
    (delivery.id().into_owned(), delivery.attempt(), is_last)
}

fn of(id: &str, attempts: &[(u32, bool)]) -> Vec<Attempt> {
    let attempts = attempts.iter();
    let attempts = attempts.map(|&(attempt, is_last)| (id.to_owned(), attempt, is_last));
    attempts.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn is_last_attempt_is_true_at_the_last_attempt_only() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.configure(QueueLimits::new().max_attempts(3)).await?;
    let (sender, mut seen) = seen();
    let worker = queue
        .worker()
        .lease(LONG)
        .retry(Retry::fixed(Duration::ZERO));
    let worker = worker.spawn(move |delivery: Delivery| {
        let _ = sender.send(attempt(&delivery));
        async { Err::<(), _>("it fails") }
    })?;
    for (id, limit) in [("once", Some(1)), ("larger", Some(4)), ("queue", None)] {
        let message = Message::new("").id(id);
        let limited = limit.map(|limit| message.clone().max_attempts(limit));
        queue.push_message(limited.unwrap_or(message)).await?;
    }
    let mut attempts = seen.take(1 + 4 + 3).await?;
    let stats = stats_until(queue, "all dead", |stats| stats.dead == 3).await?;
    assert_eq!(stats.died, 3);
    attempts.sort_unstable();
    let expected = [
        of("larger", &[(1, false), (2, false), (3, false), (4, true)]),
        of("once", &[(1, true)]),
        of("queue", &[(1, false), (2, false), (3, true)]),
    ];
    assert_eq!(attempts, expected.concat());
    // A requeued message has all its attempts again.
    let _ = queue.requeue("once").await?;
    assert_eq!(seen.next().await?, ("once".to_owned(), 1, true));
    let _ = queue.requeue("queue").await?;
    let requeued = seen.take(3).await?;
    assert_eq!(requeued, of("queue", &[(1, false), (2, false), (3, true)]));
    Ok(worker.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crashes_do_not_count_for_is_last_attempt() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let message = Message::new("").id("id").max_attempts(2);
    queue.push_message(message).await?;
    // This delivery is never settled, as if its process had died. A worker reaps the lease.
    let crashed = claim_for(queue, Duration::from_millis(1)).await?;
    assert_eq!(attempt(&crashed), ("id".to_owned(), 1, false));
    let (sender, mut seen) = seen();
    let worker = queue
        .worker()
        .lease(LONG)
        .retry(Retry::fixed(Duration::ZERO));
    let worker = worker.spawn(move |delivery: Delivery| {
        let _ = sender.send(attempt(&delivery));
        async { Err::<(), _>("it fails") }
    })?;
    assert_eq!(seen.take(2).await?, of("id", &[(2, false), (3, true)]));
    let stats = stats_until(queue, "dead", |stats| stats.dead == 1).await?;
    assert_eq!((stats.crashed, stats.retried, stats.died), (1, 1, 1));
    Ok(worker.shutdown().await?)
}
