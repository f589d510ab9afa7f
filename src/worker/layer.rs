//! Middleware: `tower` layers around handlers.

use std::error::Error as StdError;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

use crate::delivery::Delivery;
use crate::model::codec::BoxError;
use crate::model::settlement::Settlement;
use crate::node::consumers::handling::HandleOne;

/// A function that wraps a handler into one layer.
pub(crate) type Wrap = Arc<dyn Fn(HandlerService) -> HandlerService + Send + Sync>;

/// A handler as a `tower` service: what a layer of [`Worker::layer`](crate::Worker::layer) wraps.
///
/// The request is a [`Delivery`], and the response is the [`Settlement`] that the handler asks for.
/// An error of the handler is already a settlement: [`Settlement::Retry`]. The service is always
/// ready.
#[derive(Clone)]
pub struct HandlerService(Arc<dyn Call>);

/// The future of a [`HandlerService`].
pub struct HandlerFuture(Pin<Box<dyn Future<Output = Result<Settlement, BoxError>> + Send>>);

/// A service or a handler that is called by a shared reference.
trait Call: Send + Sync {
    fn call(self: Arc<Self>, delivery: Delivery) -> HandlerFuture;
}

struct Innermost<H>(H);

impl<H: HandleOne> Call for Innermost<H> {
    fn call(self: Arc<Self>, delivery: Delivery) -> HandlerFuture {
        HandlerFuture(Box::pin(async move { Ok(self.0.handle(delivery).await) }))
    }
}

struct Wrapped<S>(S);

impl<S> Call for Wrapped<S>
where
    S: Service<Delivery, Response = Settlement> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    fn call(self: Arc<Self>, delivery: Delivery) -> HandlerFuture {
        let mut service = self.0.clone();
        HandlerFuture(Box::pin(async move {
            poll_fn(|context| service.poll_ready(context))
                .await
                .map_err(Into::into)?;
            let response = service.call(delivery);
            response.await.map_err(Into::into)
        }))
    }
}

impl HandlerService {
    pub(crate) fn new(handler: impl HandleOne) -> Self {
        Self(Arc::new(Innermost(handler)))
    }
}

impl Service<Delivery> for HandlerService {
    type Response = Settlement;
    type Error = BoxError;
    type Future = HandlerFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, delivery: Delivery) -> HandlerFuture {
        Arc::clone(&self.0).call(delivery)
    }
}

impl Future for HandlerFuture {
    type Output = Result<Settlement, BoxError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl HandleOne for HandlerService {
    async fn handle(&self, delivery: Delivery) -> Settlement {
        match Arc::clone(&self.0).call(delivery).await {
            Ok(settlement) => settlement,
            Err(error) => Settlement::retry(with_causes(&*error)),
        }
    }
}

impl std::fmt::Debug for HandlerService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HandlerService").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for HandlerFuture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HandlerFuture").finish_non_exhaustive()
    }
}

/// Makes a function that wraps handlers into this layer.
pub(crate) fn wrap<L>(layer: L) -> Wrap
where
    L: Layer<HandlerService> + Send + Sync + 'static,
    L::Service: Service<Delivery, Response = Settlement> + Clone + Send + Sync + 'static,
    <L::Service as Service<Delivery>>::Error: Into<BoxError>,
    <L::Service as Service<Delivery>>::Future: Send,
{
    Arc::new(move |inner| HandlerService(Arc::new(Wrapped(layer.layer(inner)))))
}

/// The text of an error, followed by the texts of its causes.
pub(crate) fn with_causes(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
