//! Requests of the coordinator to an idle claimer: claim now, instead of a promote.
//!
//! A claim takes due messages whether they were promoted or not. When the leader's own claimer is
//! idle at the due time, one claim replaces the promote, the wake-up token and the claim.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, oneshot};

use crate::error::Error;
use crate::node::event::Event;
use crate::node::slots::Slots;
use crate::protocol::results::roles::Moved;

/// The channel from the coordinator to the claimer of a node.
///
/// The claimer listens only while it waits for work with a free slot. The coordinator therefore
/// learns at once whether a request is accepted, and promotes if it is not.
pub(crate) struct ClaimRequests {
    slots: Arc<Slots>,
    /// Where to send a request; `None` unless the claimer listens.
    listener: Mutex<Option<oneshot::Sender<ClaimRequest>>>,
    /// Messages are ready.
    ready: Notify,
}

/// An accepted request. The claimer replies to it; if it is dropped instead, the coordinator learns
/// that no claim was made.
pub(crate) struct ClaimRequest {
    reply_to: Option<UnboundedSender<Event>>,
}

impl ClaimRequests {
    pub(crate) fn new(slots: Arc<Slots>) -> Self {
        Self {
            slots,
            listener: Mutex::new(None),
            ready: Notify::new(),
        }
    }

    /// Asks the claimer to claim what is due. Returns whether it accepts; its reply then goes to
    /// `reply_to`. A claimer whose handlers are busy does not accept, because it would take
    /// messages that idle nodes could handle at once, unless this node is alone.
    pub(crate) fn send(&self, alone: bool, reply_to: &UnboundedSender<Event>) -> bool {
        if !alone && !self.slots.is_idle() {
            return false;
        }
        let Some(listener) = self.listener().take() else {
            return false;
        };
        let request = ClaimRequest {
            reply_to: Some(reply_to.clone()),
        };
        match listener.send(request) {
            Ok(()) => true,
            // The claimer stopped listening meanwhile: nothing was accepted, so nothing is replied.
            Err(mut request) => {
                request.reply_to = None;
                false
            }
        }
    }

    /// Hints that messages are ready, although other nodes may have consumed the wake-up tokens. If
    /// the claimer is not listening, its next wait ends at once.
    pub(crate) fn hint_ready(&self) {
        self.ready.notify_one();
    }

    /// Accepts at most one request, until the receiver is closed or dropped.
    pub(crate) fn listen(&self) -> oneshot::Receiver<ClaimRequest> {
        let (sender, receiver) = oneshot::channel();
        *self.listener() = Some(sender);
        receiver
    }

    /// Waits for a hint that messages are ready.
    pub(crate) async fn ready(&self) {
        self.ready.notified().await;
    }

    fn listener(&self) -> std::sync::MutexGuard<'_, Option<oneshot::Sender<ClaimRequest>>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClaimRequest {
    /// Replies with the result of the claim, as a promote would.
    pub(crate) fn reply(mut self, result: Result<Moved, Error>) {
        if let Some(reply_to) = self.reply_to.take() {
            // The coordinator may have stopped.
            let _ = reply_to.send(Event::Promoted(result));
        }
    }
}

impl Drop for ClaimRequest {
    fn drop(&mut self) {
        if let Some(reply_to) = self.reply_to.take() {
            let _ = reply_to.send(Event::ClaimDeclined);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;
    use crate::error::{Applied, ErrorKind};

    fn requests() -> (
        ClaimRequests,
        UnboundedSender<Event>,
        UnboundedReceiver<Event>,
    ) {
        let (sender, events) = unbounded_channel();
        (ClaimRequests::new(Arc::new(Slots::new(2))), sender, events)
    }

    #[tokio::test]
    async fn a_request_is_refused_unless_the_claimer_listens() {
        let (requests, sender, mut events) = requests();
        let _slot = requests.slots.acquire().await;
        assert!(!requests.send(false, &sender), "it does not listen yet");
        drop(requests.listen());
        assert!(!requests.send(false, &sender), "it listens no more");
        let mut listener = requests.listen();
        assert!(requests.send(false, &sender));
        assert!(!requests.send(false, &sender), "one request at a time");
        assert!(events.try_recv().is_err(), "no reply yet");
        let error = Error::new(ErrorKind::Timeout, Applied::Unknown, "lost");
        listener.try_recv().expect("the request").reply(Err(error));
        assert!(matches!(events.try_recv(), Ok(Event::Promoted(Err(_)))));
        assert!(events.try_recv().is_err(), "one reply");
    }

    #[tokio::test]
    async fn a_busy_claimer_is_asked_only_if_alone() {
        let (requests, sender, _events) = requests();
        let _slot = requests.slots.acquire().await;
        let _handler = requests.slots.acquire().await;
        let _listener = requests.listen();
        assert!(!requests.send(false, &sender));
        assert!(requests.send(true, &sender));
    }

    #[tokio::test]
    async fn a_dropped_request_is_reported_as_declined() {
        let (requests, sender, mut events) = requests();
        let mut listener = requests.listen();
        assert!(requests.send(true, &sender));
        drop(listener.try_recv().expect("the request"));
        assert!(matches!(events.try_recv(), Ok(Event::ClaimDeclined)));
        // So is one that the claimer never received, because it ended.
        let listener = requests.listen();
        assert!(requests.send(true, &sender));
        drop(listener);
        assert!(matches!(events.try_recv(), Ok(Event::ClaimDeclined)));
    }

    #[tokio::test]
    async fn a_request_just_before_closing_is_received() {
        let (requests, sender, _events) = requests();
        let mut listener = requests.listen();
        assert!(requests.send(true, &sender));
        listener.close();
        assert!(listener.try_recv().is_ok());
        let mut listener = requests.listen();
        listener.close();
        assert!(!requests.send(true, &sender));
        assert!(listener.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_ready_hint_is_kept_until_the_next_wait() {
        let (requests, _sender, _events) = requests();
        requests.hint_ready();
        requests.hint_ready();
        requests.ready().await;
        let second = tokio::time::timeout(std::time::Duration::from_millis(1), requests.ready());
        assert!(second.await.is_err(), "hints do not add up");
    }
}
