//! Pulls of one queue: calls that wait for messages and take them without a handler.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::delivery::Delivery;
use crate::error::Error;
use crate::model::codec::Codec;
use crate::model::lease_token::LeaseToken;
use crate::node::consumers::pulls::{Grant, PullRequest, Pulls};
use crate::node::coordinator::settings::NodeCommand;
use crate::protocol::counts::MAX_CLAIM;
use crate::protocol::limits;
use crate::queue::{Queue, refuse_held, refuse_other_grants};
use crate::router::Router;
use crate::worker::pullers::{Pullers, entry};

/// The pulls of one queue on a node. Created by [`Queue::puller`] and [`Pullers::attend`]. Cheap to
/// clone: clones share the line of pulls.
///
/// ```
/// # dueq_testkit::doctest!(|orders| {
/// use std::time::Duration;
///
/// let puller = orders.puller();
/// orders.push("rate it").delay(Duration::from_millis(20)).await?;
/// // Waits until the message is due:
/// for delivery in puller.pull(10, Duration::from_secs(30), Duration::from_secs(20)).await? {
///     println!("{} is due", delivery.id());
///     delivery.ack().await?;
/// }
/// # assert_eq!(orders.stats().await?.acked, 1);
/// puller.shutdown().await?;
/// # });
/// ```
#[derive(Clone)]
pub struct Puller {
    name: Arc<str>,
    router: Arc<Router>,
    pulls: Arc<Pulls>,
    pullers: Pullers,
}

impl<C: Codec> Queue<C> {
    /// Starts a node for pulls of this queue: see [`Puller`]. For many queues see
    /// [`Client::pullers`](crate::Client::pullers).
    ///
    /// The node starts in the background. If the queue cannot be attended, each pull returns the
    /// reason.
    ///
    /// # Panics
    /// Outside of a tokio runtime, as `tokio::spawn`.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// let puller = orders.puller();
    /// assert_eq!(puller.queue(), "orders");
    /// puller.shutdown().await?;
    /// # });
    /// ```
    pub fn puller(&self) -> Puller {
        let (entry, pulls) = entry(self.router());
        let pullers = Pullers::spawn(self.router().servers(), vec![entry]);
        Puller::new(self.router(), pulls, pullers)
    }
}

impl Puller {
    /// The most messages of one pull.
    pub const MAX: usize = MAX_CLAIM;
    /// The most pulls of one queue that may wait at once on one node.
    pub const MAX_PULLS: usize = crate::node::consumers::pulls::MAX_PULLS;

    pub(super) fn new(router: &Arc<Router>, pulls: Arc<Pulls>, pullers: Pullers) -> Self {
        Self {
            name: router.queue_name().into(),
            router: Arc::clone(router),
            pulls,
            pullers,
        }
    }

    /// The name of the queue.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// assert_eq!(orders.puller().queue(), "orders");
    /// # });
    /// ```
    pub fn queue(&self) -> &str {
        &self.name
    }

    /// The node of this puller.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client, orders| {
    /// let puller = orders.puller();
    /// let mails = puller.pullers().attend(&client.queue("mails")?).await?;
    /// # assert_eq!(mails.queue(), "mails");
    /// puller.shutdown().await?;
    /// # });
    /// ```
    pub fn pullers(&self) -> &Pullers {
        &self.pullers
    }

    /// Waits until messages are due, and claims up to `max` (1 to [`MAX`](Puller::MAX)) of them
    /// under a lease of `lease` (1 ms to a day). Returns as soon as it has a message, or without
    /// one after `wait`. With a `wait` of 0 it returns the messages that are due now.
    ///
    /// The node does not extend the leases of pulled messages: the caller extends and settles, here
    /// or elsewhere by [`Delivery::into_handle`]. If it does neither, a message is delivered again
    /// after its lease, which counts as a crash. If workers run as well, the node gets a fair share
    /// of the messages, like a worker.
    ///
    /// Pulls of one queue are served in the order of their arrival. Pulls with equal leases share
    /// claims. Each pull costs one call for each partition that the node attends. Waiting costs no
    /// calls, because Redis wakes the node. If a queue has many partitions, each node attends only
    /// some of them, which change with the nodes.
    ///
    /// # Cancel safety
    /// The call is cancel safe: if the future is dropped, its messages go to the next pull, or are
    /// released, and no attempt or crash is counted. The queue's rate has counted them. The
    /// messages of a claim whose reply is lost are delivered again after their lease, with a crash
    /// counted.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if `max` or `lease` is out of its range. If the server refuses the
    /// claim, such as for a missing right: at once. If it cannot be reached: after `wait`, and the
    /// time until the claim under way has failed, which is 7 s at most.
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if [`MAX_PULLS`](Puller::MAX_PULLS) pulls wait already, or after
    /// [`leave`](Puller::leave) or [`shutdown`](Puller::shutdown).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use std::time::Duration;
    ///
    /// let puller = orders.puller();
    /// orders.push("rate it").id("order:42").await?;
    /// let (lease, wait) = (Duration::from_secs(30), Duration::from_secs(20));
    /// for delivery in puller.pull(10, lease, wait).await? {
    ///     let payload = delivery.payload().to_vec();
    ///     println!("{payload:?} goes to the consumer who settles {}", delivery.into_handle());
    /// }
    /// # assert_eq!(orders.stats().await?.leased, 1);
    /// # puller.shutdown().await?;
    /// # });
    /// ```
    pub async fn pull(
        &self,
        max: usize,
        lease: Duration,
        wait: Duration,
    ) -> Result<Vec<Delivery>, Error> {
        self.pull_until(None, max, lease, tokio::time::sleep(wait))
            .await
    }

    /// Pulls as [`pull`](Puller::pull) does, with a [`LeaseToken`] that the caller chooses, so that
    /// the caller can repeat the pull after its answer was lost: as long as the lease holds a
    /// message, the repetition grants nothing. It fails at once with the code `HELD`, and
    /// [`Queue::held`](crate::Queue::held) returns the grant. See
    /// [`Queue::claim_with_token`](crate::Queue::claim_with_token).
    ///
    /// The pull does not share its claim with other pulls. If a claim's reply is lost, the next one
    /// is `HELD`. If the queue has several partitions, the pull asks all of them for the lease,
    /// before its claim and after a grant. If another call with the token, or a claim whose reply
    /// was lost, was granted messages of another partition meanwhile, it also fails with `HELD`,
    /// and `held` returns all.
    ///
    /// # Cancel safety
    /// As for [`pull`](Puller::pull): the messages that a dropped pull was granted are released.
    /// Until then, a pull with the same token may be `HELD`, and settlements of what `held` returns
    /// may find the lease lost.
    ///
    /// # Errors
    /// The errors of [`pull`](Puller::pull). If a lease has the token,
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput), and [`Error::code`] is `HELD`.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::claims::LeaseToken;
    /// use std::time::Duration;
    ///
    /// let puller = orders.puller();
    /// orders.push("rate it").id("order:42").await?;
    /// let (lease, wait) = (Duration::from_secs(30), Duration::from_secs(20));
    /// let token = LeaseToken::random();
    /// drop(puller.pull_with_token(token, 10, lease, wait).await?); // the answer is lost
    ///
    /// let error = puller.pull_with_token(token, 10, lease, wait).await.unwrap_err();
    /// assert_eq!(error.code(), Some("HELD"));
    /// for delivery in orders.held(&token).await?.deliveries {
    ///     delivery.ack().await?;
    /// }
    /// # assert_eq!(orders.stats().await?.acked, 1);
    /// # puller.shutdown().await?;
    /// # });
    /// ```
    pub async fn pull_with_token(
        &self,
        token: LeaseToken,
        max: usize,
        lease: Duration,
        wait: Duration,
    ) -> Result<Vec<Delivery>, Error> {
        self.pull_until(Some(token), max, lease, tokio::time::sleep(wait))
            .await
    }

    /// Pulls as [`pull`](Puller::pull) does, or with a token as
    /// [`pull_with_token`](Puller::pull_with_token) does, until `end` completes: for example at a
    /// time, or when the caller's own caller disconnects.
    ///
    /// Unlike a dropped future, a pull that `end` ends still returns what a claim in flight grants,
    /// and nothing is released. So a server whose caller has disconnected can leave the grant to
    /// the lease, for the repetition with the same token.
    ///
    /// # Cancel safety
    /// As for [`pull_with_token`](Puller::pull_with_token).
    ///
    /// # Errors
    /// The errors of [`pull_with_token`](Puller::pull_with_token).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use std::time::Duration;
    /// use tokio::sync::oneshot;
    ///
    /// let puller = orders.puller();
    /// let (stop, stopped) = oneshot::channel::<()>();
    /// stop.send(()).ok();
    /// let end = async { drop(stopped.await) };
    /// let lease = Duration::from_secs(30);
    /// assert!(puller.pull_until(None, 10, lease, end).await?.is_empty());
    /// # puller.shutdown().await?;
    /// # });
    /// ```
    pub async fn pull_until(
        &self,
        token: Option<LeaseToken>,
        max: usize,
        lease: Duration,
        end: impl Future<Output = ()>,
    ) -> Result<Vec<Delivery>, Error> {
        let request = request(token, max, lease)?;
        if let Some(token) = token {
            // Boxed: keeps the futures of callers shallow, as rustc limits their depth.
            Box::pin(refuse_held(&self.router.current(), &[], token)).await?;
        }
        let grant = self.answer(request, end).await?;
        let deliveries = grant.take();
        if let Some(token) = token {
            let partitions = self.router.current();
            Box::pin(refuse_other_grants(&partitions, &deliveries, token)).await?;
        }
        Ok(deliveries)
    }

    async fn answer(
        &self,
        request: PullRequest,
        end: impl Future<Output = ()>,
    ) -> Result<Grant, Error> {
        let worker = self.pullers.worker();
        let joined = self.pulls.join(request);
        let mut ticket = joined.map_err(|error| worker.failure().unwrap_or(error))?;
        worker.tell(NodeCommand::Pulled(Arc::clone(&self.name)));
        let mut ended = pin!(worker.wait());
        let mut end = pin!(end);
        let mut is_over = false;
        loop {
            tokio::select! {
                biased;
                answer = ticket.answer() => return match answer {
                    Some(answer) => answer,
                    None => ended.await.map(|()| Grant::none()),
                },
                result = &mut ended => return result.map(|()| Grant::none()),
                () = &mut end, if !is_over => {
                    is_over = true;
                    ticket.expire();
                }
            }
        }
    }

    /// Leaves the queue: waiting pulls return no messages, and the queue no longer costs calls.
    /// Pulled messages stay leased. [`Pullers::attend`] attends it again.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the node has left the queue, [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if it
    /// has ended.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// # use std::time::Duration;
    /// let puller = orders.puller();
    /// puller.leave().await?;
    /// assert!(puller.pull(1, Duration::from_secs(30), Duration::ZERO).await.is_err());
    /// # puller.shutdown().await?;
    /// # });
    /// ```
    pub async fn leave(&self) -> Result<(), Error> {
        self.pullers.worker().remove(&self.name).await
    }

    /// Ends the node, and with it the pulls of all its queues: see [`Pullers::shutdown`].
    ///
    /// # Errors
    /// The errors of [`Pullers::shutdown`].
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// let puller = orders.puller();
    /// puller.shutdown().await?;
    /// # });
    /// ```
    pub async fn shutdown(&self) -> Result<(), Error> {
        self.pullers.shutdown().await
    }
}

fn request(token: Option<LeaseToken>, max: usize, lease: Duration) -> Result<PullRequest, Error> {
    if !(1..=Puller::MAX).contains(&max) {
        let most = Puller::MAX;
        let message = format!("pull of {max} messages: 1 to {most} can be pulled at once");
        return Err(Error::invalid(message));
    }
    Ok(PullRequest {
        max,
        lease_ms: limits::lease_ms(lease)?,
        token,
    })
}

impl fmt::Debug for Puller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Puller")
            .field("queue", &self.name)
            .finish_non_exhaustive()
    }
}
