//! A future that its caller polls, and that is finished all the same if the caller goes away.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// Dropped before its end, it becomes a task. It may be polled anywhere: it uses the timers of its runtime.
pub(super) struct Tenacious {
    /// Nothing once it is over, and while it is polled: what has panicked is not polled again.
    rest: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    runtime: Handle,
}

impl Tenacious {
    pub(super) fn new(runtime: Handle, future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { rest: Some(Box::pin(future)), runtime }
    }
}

impl Future for Tenacious {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(mut rest) = self.rest.take() else { return Poll::Ready(()) };
        let poll = {
            let _entered = self.runtime.enter();
            rest.as_mut().poll(context)
        };
        self.rest = poll.is_pending().then_some(rest);
        poll
    }
}

impl Drop for Tenacious {
    fn drop(&mut self) {
        if let Some(rest) = self.rest.take() {
            self.runtime.spawn(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    /// One that waits for a word and passes it on.
    fn waiting() -> (Tenacious, oneshot::Sender<u8>, oneshot::Receiver<u8>) {
        let ((word, heard), (told, result)) = (oneshot::channel(), oneshot::channel());
        let future = async move { told.send(heard.await.expect("a word")).expect("somebody waits") };
        (Tenacious::new(Handle::current(), future), word, result)
    }

    #[tokio::test]
    async fn who_goes_away_leaves_it_to_a_task() {
        let (mut future, word, result) = waiting();
        assert!(poll_once(&mut future).await.is_pending());
        drop(future);
        word.send(7).expect("the task waits");
        assert_eq!(result.await, Ok(7));
    }

    #[tokio::test]
    async fn it_is_polled_where_there_is_no_runtime() {
        let runtime = Handle::current();
        let sleeping = async { tokio::time::sleep(std::time::Duration::from_millis(1)).await };
        let future = Tenacious::new(runtime.clone(), sleeping);
        let polled = std::thread::spawn(move || {
            assert!(Handle::try_current().is_err());
            let mut future = future;
            let poll = Pin::new(&mut future).poll(&mut Context::from_waker(std::task::Waker::noop()));
            assert!(poll.is_pending());
            future
        });
        polled.join().expect("it does not panic").await;
    }

    #[tokio::test]
    async fn what_has_panicked_is_not_polled_again() {
        let mut future = Tenacious::new(Handle::current(), async { panic!("on purpose") });
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Pin::new(&mut future).poll(&mut Context::from_waker(std::task::Waker::noop()))
        }));
        assert!(caught.is_err() && future.rest.is_none());
    }

    async fn poll_once(future: &mut Tenacious) -> Poll<()> {
        std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context))).await
    }
}
