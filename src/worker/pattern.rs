//! Patterns by which a worker finds queues.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::error::Error;
use crate::model::codec::{Codec, Json, RawBytes};
use crate::protocol::pattern::Pattern;
use crate::server::new_queues::{self, NewQueue};
use crate::worker::assemble::{Added, AddedPattern};
use crate::worker::builder::Worker;
use crate::worker::handler::IntoHandler;
use crate::worker::settings::QueueSettings;

/// The queues of a client whose names match a pattern: `*` stands for any characters, `?` for one,
/// and every other character for itself. At most 8 wildcards; adjacent ones count as one.
///
/// Made by [`Client::pattern`], for [`Worker::pattern`](crate::Worker::pattern). Sends nothing to
/// the server.
///
/// ```
/// # dueq_testkit::doctest!(|client| {
/// let mails = client.pattern("mail-*")?;
/// assert!(mails.matches("mail-de"));
/// assert!(!mails.matches("letters"));
/// # });
/// ```
#[derive(Clone)]
pub struct QueuePattern<C = RawBytes> {
    client: Client,
    pattern: Pattern,
    codec: C,
}

impl Client {
    /// Makes a pattern of queue names. The payloads of the queues are bytes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) for a pattern that no name of a
    /// queue can match, or that has more than 8 wildcards.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// async fn send(delivery: dueq::Delivery) {
    ///     println!("{} of {}", delivery.id(), delivery.queue());
    /// }
    ///
    /// let mails = client.pattern("mail-*")?;
    /// let worker = client.worker().pattern(&mails, send).spawn()?;
    /// # worker.shutdown().await?;
    /// # });
    /// ```
    pub fn pattern(&self, pattern: &str) -> Result<QueuePattern, Error> {
        self.pattern_with_codec(pattern, RawBytes)
    }

    /// Reports the queues whose names match as they are created, for a program that lists them. It
    /// never returns: drop the future to end it. A report is only a hint: it may be lost, come
    /// twice, name a queue of another database of the server, or have a name that the patterns do
    /// not match. A creation by release 0.1 is not reported.
    ///
    /// It opens one connection. The user needs the right to `PSUBSCRIBE`, and for each pattern `P` to
    /// the channels `dueq:{P}:notice`.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// use dueq::admin::NewQueue;
    ///
    /// let (sender, mut reports) = tokio::sync::mpsc::unbounded_channel();
    /// let mails = [client.pattern("mail-*")?];
    /// tokio::select! {
    ///     () = client.new_queues(&mails, |new| drop(sender.send(new))) => {}
    ///     created = async {
    ///         assert_eq!(reports.recv().await, Some(NewQueue::Listening));
    ///         client.queue("mail-de")?.push("hello").await?;
    ///         assert_eq!(reports.recv().await, Some(NewQueue::Created("mail-de".into())));
    ///         Ok::<(), dueq::Error>(())
    ///     } => created?,
    /// }
    /// # });
    /// ```
    pub async fn new_queues(&self, patterns: &[QueuePattern], report: impl Fn(NewQueue)) {
        let globs = patterns.iter().map(|of| of.pattern.notice_glob());
        new_queues::listen(self.servers(), &globs.collect::<Vec<_>>(), report).await;
    }

    /// Makes a pattern as [`pattern`](Client::pattern) does. The payloads of the queues are values
    /// of `T` as JSON.
    ///
    /// # Errors
    /// The errors of [`pattern`](Client::pattern).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// use dueq::Delivery;
    ///
    /// async fn rate(order: u64, delivery: Delivery) {
    ///     println!("{order} of {}", delivery.queue());
    /// }
    ///
    /// let orders = client.pattern_of::<u64>("orders-*")?;
    /// let worker = client.worker().pattern(&orders, rate).spawn()?;
    /// # worker.shutdown().await?;
    /// # });
    /// ```
    pub fn pattern_of<T>(&self, pattern: &str) -> Result<QueuePattern<Json<T>>, Error>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        self.pattern_with_codec(pattern, Json::default())
    }

    /// Makes a pattern as [`pattern`](Client::pattern) does. This codec encodes and decodes the
    /// payloads of the queues.
    ///
    /// # Errors
    /// The errors of [`pattern`](Client::pattern).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// let numbers = client.pattern_with_codec("numbers-*", dueq::Json::<u64>::default())?;
    /// assert_eq!(numbers.text(), "numbers-*");
    /// # });
    /// ```
    pub fn pattern_with_codec<C: Codec>(
        &self,
        pattern: &str,
        codec: C,
    ) -> Result<QueuePattern<C>, Error> {
        Ok(QueuePattern {
            client: self.clone(),
            pattern: Pattern::new(pattern)?,
            codec,
        })
    }
}

impl Worker {
    /// Adds all queues whose names match: those that exist, and those that are created later. Each
    /// queue has the default [`Share`](crate::Share). A queue that is added by name keeps its own
    /// handler.
    ///
    /// The worker scans the key space of the server for them, at most 1,000 keys a second: at the
    /// start, and about 30 s after the end of each scan. A new queue is found at its notice, or if
    /// that is lost, by the next scan. At most 10,000 queues of a pattern are served. See
    /// [`parking`](Worker::parking) for how late a message of such a queue can be.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// let mails = client.pattern("mail-*")?;
    /// let worker = client
    ///     .worker()
    ///     .pattern(&mails, |delivery: dueq::Delivery| async move {
    ///         println!("{} of {}", delivery.id(), delivery.queue());
    ///     })
    ///     .spawn()?;
    /// # worker.shutdown().await?;
    /// # });
    /// ```
    pub fn pattern<C: Codec, M>(
        self,
        pattern: &QueuePattern<C>,
        handler: impl IntoHandler<C::Value, M> + Clone + Send + Sync + 'static,
    ) -> Self {
        self.pattern_with(pattern, QueueSettings::new(), handler)
    }

    /// Adds queues as [`pattern`](Worker::pattern) does, with settings for these queues only. They
    /// cannot have a reserve, because their number has no bound.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// # async fn mail(_: dueq::Delivery) {}
    /// use dueq::Share;
    ///
    /// let mails = client.pattern("mail-*")?;
    /// let worker = client
    ///     .worker()
    ///     .pattern_with(&mails, Share::weight(1).max(4), mail)
    ///     .spawn()?;
    /// # worker.shutdown().await?;
    /// # });
    /// ```
    pub fn pattern_with<C: Codec, M>(
        mut self,
        pattern: &QueuePattern<C>,
        settings: impl Into<QueueSettings>,
        handler: impl IntoHandler<C::Value, M> + Clone + Send + Sync + 'static,
    ) -> Self {
        let (found, settings) = (pattern.clone(), settings.into());
        let layers = self.layers.clone();
        self.patterns.push(AddedPattern {
            pattern: pattern.pattern.clone(),
            add: Arc::new(move |name| {
                let queue = found.client.queue_with_codec(name, found.codec.clone())?;
                let (router, codec) = (queue.router(), queue.codec());
                let (settings, handler) = (settings.clone(), handler.clone());
                Ok(Added::new(router, codec, settings, &layers, handler))
            }),
        });
        self
    }
}

impl<C> QueuePattern<C> {
    /// The text of the pattern, as it was given.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// assert_eq!(client.pattern("mail-*")?.text(), "mail-*");
    /// # });
    /// ```
    pub fn text(&self) -> &str {
        self.pattern.text()
    }

    /// Whether the pattern matches the name of a queue.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// let mails = client.pattern("mail-*")?;
    /// assert!(mails.matches("mail-de") && !mails.matches("orders"));
    /// # });
    /// ```
    pub fn matches(&self, name: &str) -> bool {
        self.pattern.matches(name)
    }
}

impl<C> fmt::Debug for QueuePattern<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QueuePattern").field(&self.text()).finish()
    }
}
