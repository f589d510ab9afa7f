//! Shared helpers: a server with a client, waits with a limit, workers that a test can stop.

pub(crate) mod child;
pub(crate) mod proxy;

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use dueq::handlers::IntoSettlement;
use dueq::{Client, Delivery, Message, Queue, QueueStats, QueueWorker};
use dueq_testkit::Server;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, FromRedisValue, cmd};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Limit of any wait, far longer than the slowest machine needs.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// A lease that does not run out during a test.
pub(crate) const LONG: Duration = Duration::from_secs(600);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// A test's own server, with a client and a queue.
pub(crate) struct Setup {
    pub(crate) queue: Queue,
    pub(crate) client: Client,
    pub(crate) server: Server,
}

impl Setup {
    /// Promotes due messages, as workers do, until this many are ready. A manual claim does not
    /// promote.
    pub(crate) async fn promote(&self, ready: u64) -> Result<()> {
        self.client.load_functions().await?;
        let keys = dueq::admin::queue_keys(self.queue.name())?;
        let keys = keys.iter().map(String::as_str);
        let promote: Vec<&str> = ["FCALL", "dueq_promote", "10"]
            .into_iter()
            .chain(keys)
            .chain(["", "1000"])
            .collect();
        let start = Instant::now();
        while self.queue.stats().await?.ready != ready {
            if start.elapsed() > LIMIT {
                bail!(
                    "not {ready} were ready within {LIMIT:?}: {:?}",
                    self.queue.stats().await
                );
            }
            self.server.command(&promote)?;
        }
        Ok(())
    }
}

pub(crate) async fn setup() -> Result<Setup> {
    setup_with(&[]).await
}

pub(crate) async fn setup_with(arguments: &[&str]) -> Result<Setup> {
    let server = Server::start(arguments)?;
    let client = Client::connect(&server.url()).await?;
    Ok(Setup {
        queue: client.queue("orders")?,
        client,
        server,
    })
}

impl Setup {
    /// A connection that bypasses the library.
    pub(crate) async fn redis(&self) -> Result<MultiplexedConnection> {
        connection(&self.server.url()).await
    }

    /// Sends one command without the library.
    pub(crate) async fn command<T: FromRedisValue>(&self, words: &[&str]) -> Result<T> {
        command(&mut self.redis().await?, words).await
    }
}

pub(crate) async fn connection(url: &str) -> Result<MultiplexedConnection> {
    // The defaults of 0.5 s and 1 s are too short for a slow machine.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(LIMIT))
        .set_response_timeout(Some(LIMIT));
    Ok(redis::Client::open(url)?
        .get_multiplexed_async_connection_with_config(&config)
        .await?)
}

pub(crate) async fn command<T: FromRedisValue>(
    redis: &mut MultiplexedConnection,
    words: &[&str],
) -> Result<T> {
    let (name, rest) = words.split_first().context("no command")?;
    cmd(name)
        .arg(rest)
        .query_async(redis)
        .await
        .with_context(|| words.join(" "))
}

/// The server's clock in microseconds.
pub(crate) async fn server_us(redis: &mut MultiplexedConnection) -> Result<u64> {
    let (seconds, micros): (u64, u64) = command(redis, &["TIME"]).await?;
    Ok(seconds * 1_000_000 + micros)
}

/// The result of `future`, or an error that names `what` after the limit.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> Result<T> {
    tokio::time::timeout(LIMIT, future)
        .await
        .map_err(|_| anyhow!("{what}: not within {LIMIT:?}"))
}

/// Polls until `good` accepts the value; otherwise fails with the last value. For changes that
/// cause no event.
pub(crate) async fn until<T: Debug>(
    what: &str,
    mut look: impl AsyncFnMut() -> Result<T>,
    good: impl Fn(&T) -> bool,
) -> Result<T> {
    let start = Instant::now();
    loop {
        let seen = look().await?;
        if good(&seen) {
            return Ok(seen);
        }
        if start.elapsed() > LIMIT {
            bail!("{what}: not within {LIMIT:?}, but {seen:?}");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn stats_until<C: dueq::Codec>(
    queue: &Queue<C>,
    what: &str,
    good: impl Fn(&QueueStats) -> bool,
) -> Result<QueueStats> {
    until(what, async || Ok(queue.stats().await?), good).await
}

/// Claims until `count` messages are granted.
pub(crate) async fn claim(queue: &Queue, count: usize) -> Result<Vec<Delivery>> {
    claim_until(queue, count, LONG).await
}

/// Claims the one message that is due now or soon.
pub(crate) async fn claim_one(queue: &Queue) -> Result<Delivery> {
    claim_for(queue, LONG).await
}

/// Like [`claim_one`], with this lease.
pub(crate) async fn claim_for(queue: &Queue, lease: Duration) -> Result<Delivery> {
    Ok(claim_until(queue, 1, lease).await?.remove(0))
}

async fn claim_until(queue: &Queue, count: usize, lease: Duration) -> Result<Vec<Delivery>> {
    let mut granted = Vec::new();
    let start = Instant::now();
    while granted.len() < count {
        if start.elapsed() > LIMIT {
            bail!(
                "{} of {count} messages were granted within {LIMIT:?}: {:?}",
                granted.len(),
                queue.stats().await
            );
        }
        granted.extend(
            queue
                .claim((count - granted.len()).min(1_000), lease)
                .await?,
        );
    }
    Ok(granted)
}

/// Pushes `message`, which is due now, and claims it.
pub(crate) async fn push_and_claim(queue: &Queue, message: Message) -> Result<Delivery> {
    let receipt = queue.push_message(message).await?;
    let delivery = claim_one(queue).await?;
    assert_eq!(delivery.id_bytes(), receipt.id_bytes());
    Ok(delivery)
}

/// Grants a delivery to another consumer in Redis and returns the new consumer's delivery.
pub(crate) async fn steal(setup: &Setup, delivery: &Delivery) -> Result<String> {
    let stolen = format!("{}{}+", "x".repeat(16), delivery.due_ms());
    setup
        .command::<()>(&["HSET", "dueq:{orders}:claims", &delivery.id(), &stolen])
        .await?;
    let deadline = delivery.deadline_ms().to_string();
    setup
        .command::<()>(&["ZADD", "dueq:{orders}:leases", &deadline, &delivery.id()])
        .await?;
    Ok(stolen)
}

pub(crate) fn ids(count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("message-{number:04}"))
        .collect()
}

/// `count` messages with the ids of [`ids`], due now.
pub(crate) fn messages(count: usize) -> Vec<Message> {
    ids(count)
        .iter()
        .map(|id| Message::new(id.as_bytes()).id(id))
        .collect()
}

/// Pushes the messages; the queue must create all of them.
pub(crate) async fn push_all(queue: &Queue, messages: Vec<Message>) -> Result<()> {
    for pushed in queue.push_many(messages).await {
        assert_eq!(pushed?, dueq::outcomes::PushOutcome::Created);
    }
    Ok(())
}

/// A worker in its own task. Dropping this drops the worker's future.
pub(crate) struct Running {
    stop: CancellationToken,
    task: Option<JoinHandle<Result<(), dueq::Error>>>,
}

impl Running {
    pub(crate) fn start<H, F, S>(worker: QueueWorker, handler: H) -> Self
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = S> + Send + 'static,
        S: IntoSettlement + Send + 'static,
    {
        let stop = CancellationToken::new();
        let task = tokio::spawn(worker.run(handler, stop.clone().cancelled_owned()));
        Self {
            stop,
            task: Some(task),
        }
    }

    /// Stops the worker gracefully and waits for its end.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.stop.cancel();
        let task = self.task.take().context("a worker is stopped once")?;
        Ok(within("the worker's end", task).await???)
    }

    /// Starts a graceful stop; [`Running::stop`] waits for the end.
    pub(crate) fn ask_to_stop(&self) {
        self.stop.cancel();
    }

    /// Whether the worker has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Drops the worker's future and waits until it is dropped.
    pub(crate) async fn abort(mut self) -> Result<()> {
        let task = self.task.take().context("a worker is stopped once")?;
        task.abort();
        let ended = within("the end of a dropped worker", task).await?;
        assert!(ended.is_err_and(|error| error.is_cancelled()));
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Receiver of the values that handlers send, one by one.
pub(crate) struct Seen<T>(UnboundedReceiver<T>);

/// A channel for the values that handlers send.
pub(crate) fn seen<T>() -> (UnboundedSender<T>, Seen<T>) {
    let (sender, receiver) = unbounded_channel();
    (sender, Seen(receiver))
}

impl<T> Seen<T> {
    pub(crate) async fn next(&mut self) -> Result<T> {
        within("the next handler", self.0.recv())
            .await?
            .context("no handler is left")
    }

    pub(crate) async fn take(&mut self, count: usize) -> Result<Vec<T>> {
        let mut all = Vec::with_capacity(count);
        while all.len() < count {
            let next = self
                .next()
                .await
                .with_context(|| format!("after {} of {count}", all.len()))?;
            all.push(next);
        }
        Ok(all)
    }

    /// All values received so far.
    pub(crate) fn rest(&mut self) -> Vec<T> {
        std::iter::from_fn(|| self.0.try_recv().ok()).collect()
    }
}

/// A worker that sends what `look` finds in each delivery to a channel and acks it.
pub(crate) fn reporting<T: Send + 'static>(
    worker: QueueWorker,
    look: impl Fn(&Delivery) -> T + Send + Sync + 'static,
) -> (Running, Seen<T>) {
    let (sender, seen) = seen();
    let handler = move |delivery: Delivery| {
        let _ = sender.send(look(&delivery));
        async {}
    };
    (Running::start(worker, handler), seen)
}

/// A worker that sends the id of each delivery to a channel and acks it.
pub(crate) fn acking(worker: QueueWorker) -> (Running, Seen<String>) {
    reporting(worker, |delivery| delivery.id().into_owned())
}

/// A worker that sends the lateness of each delivery to a channel and acks it.
pub(crate) fn lateness(queue: &Queue) -> (Running, Seen<Duration>) {
    reporting(queue.worker(), Delivery::lateness)
}

/// A worker that sends each delivery to a channel and does not settle it.
pub(crate) fn holding(worker: QueueWorker) -> (Running, Seen<Delivery>) {
    let (sender, seen) = seen();
    let handler = move |delivery: Delivery| {
        let _ = sender.send(delivery);
        std::future::pending::<()>()
    };
    (Running::start(worker, handler), seen)
}
