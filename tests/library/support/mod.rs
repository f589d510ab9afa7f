//! What all tests share: a server with a client, waiting with a limit, workers that can be stopped.

pub(crate) mod child;
pub(crate) mod proxy;

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use dueq::{Client, Delivery, IntoSettlement, Message, Queue, Stats, Worker};
use dueq_testkit::Server;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, FromRedisValue, cmd};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long anything may take before its test fails: far more than it takes on the slowest machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// A lease that does not run out while a test runs.
pub(crate) const LONG: Duration = Duration::from_secs(600);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// A server of the test's own, a client of it, and a queue.
pub(crate) struct Setup {
    pub(crate) queue: Queue,
    pub(crate) client: Client,
    pub(crate) server: Server,
}

impl Setup {
    /// Promotes what is due, as workers do, until so many are ready: who claims by hand leaves the rest where it waits.
    pub(crate) async fn promote(&self, ready: u64) -> Result<()> {
        self.client.load_functions().await?;
        let keys = dueq::queue_keys(self.queue.name())?;
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
    /// Another connection, past the library.
    pub(crate) async fn redis(&self) -> Result<MultiplexedConnection> {
        connection(&self.server.url()).await
    }

    /// Sends one command past the library.
    pub(crate) async fn command<T: FromRedisValue>(&self, words: &[&str]) -> Result<T> {
        command(&mut self.redis().await?, words).await
    }
}

pub(crate) async fn connection(url: &str) -> Result<MultiplexedConnection> {
    // Half a second and a second, unless said: a slow machine takes longer.
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

/// The result of `future`, or a failure that names `what` was waited for.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> Result<T> {
    tokio::time::timeout(LIMIT, future)
        .await
        .map_err(|_| anyhow!("{what}: not within {LIMIT:?}"))
}

/// Looks until `good`; fails with what it saw last. For what announces itself by no event.
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

pub(crate) async fn stats_until(
    queue: &Queue,
    what: &str,
    good: impl Fn(&Stats) -> bool,
) -> Result<Stats> {
    until(what, async || Ok(queue.stats().await?), good).await
}

/// Claims until `count` messages were granted.
pub(crate) async fn claim(queue: &Queue, count: usize) -> Result<Vec<Delivery>> {
    claim_until(queue, count, LONG).await
}

/// Claims the one message that is, or is soon, due.
pub(crate) async fn claim_one(queue: &Queue) -> Result<Delivery> {
    claim_for(queue, LONG).await
}

/// As [`claim_one`], under a lease of this length.
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
    let id = message.id_bytes().to_vec();
    queue.push(message).await?;
    let delivery = claim_one(queue).await?;
    assert_eq!(delivery.id_bytes(), id);
    Ok(delivery)
}

/// Lets somebody else have a delivery, as far as Redis is concerned; returns what it holds for him.
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

/// Pushes them, all of which must be created.
pub(crate) async fn push_all(queue: &Queue, messages: Vec<Message>) -> Result<()> {
    for pushed in queue.push_many(messages).await {
        assert_eq!(pushed?, dueq::Pushed::Created);
    }
    Ok(())
}

/// A worker in a task of its own. Dropped, it stops as a dropped future does.
pub(crate) struct Running {
    stop: CancellationToken,
    task: Option<JoinHandle<Result<(), dueq::Error>>>,
}

impl Running {
    pub(crate) fn start<H, F, S>(worker: Worker, handler: H) -> Self
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

    /// Stops it gracefully and waits until it has returned.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.stop.cancel();
        let task = self.task.take().context("a worker is stopped once")?;
        Ok(within("the worker's end", task).await???)
    }

    /// Waits until it has returned, without asking it to stop.
    pub(crate) async fn ended(mut self) -> Result<Result<(), dueq::Error>> {
        let task = self.task.take().context("a worker ends once")?;
        Ok(within("the worker's end", task).await??)
    }

    /// Tells it to stop; [`Running::stop`] waits.
    pub(crate) fn ask_to_stop(&self) {
        self.stop.cancel();
    }

    /// Whether it has returned.
    pub(crate) fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Drops its future, and waits until that has happened.
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

/// What handlers have seen, one by one.
pub(crate) struct Seen<T>(UnboundedReceiver<T>);

/// A place for handlers to put what they see.
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

    /// What is there by now.
    pub(crate) fn rest(&mut self) -> Vec<T> {
        std::iter::from_fn(|| self.0.try_recv().ok()).collect()
    }
}

/// A worker that puts the id of each delivery into a channel and acks it.
pub(crate) fn acking(worker: Worker) -> (Running, Seen<String>) {
    let (sender, seen) = seen();
    let handler = move |delivery: Delivery| {
        let _ = sender.send(delivery.id().into_owned());
        async {}
    };
    (Running::start(worker, handler), seen)
}

/// A worker that gives each delivery away and leaves it alone.
pub(crate) fn holding(worker: Worker) -> (Running, Seen<Delivery>) {
    let (sender, seen) = seen();
    let handler = move |delivery: Delivery| {
        let _ = sender.send(delivery);
        std::future::pending::<()>()
    };
    (Running::start(worker, handler), seen)
}
