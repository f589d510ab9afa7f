//! The layer around handlers of single deliveries.

use std::fmt;
use std::pin::Pin;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll};

use dueq::handlers::BoxError;
use dueq::{Delivery, Settlement};
use opentelemetry::context::FutureExt;
use opentelemetry::global::BoxedTracer;
use tower_layer::Layer;
use tower_service::Service;

use crate::attributes::tracer;
use crate::processing::Processing;

/// A `tower` layer for [`Worker::layer`](dueq::Worker::layer): each run of a handler becomes a span
/// `process QUEUE`, and its settlement a span `settle QUEUE`.
///
/// While the handler is polled, `process QUEUE` is the current span of OpenTelemetry: spans that
/// the handler starts are its children. Its error types are in [`process`](crate::process). For a
/// handler of batches, which takes no layer, use that function. The outermost layer sees most:
/// add this one first.
///
/// A run that the sampler has not chosen costs four allocations and two random numbers; without a
/// provider, a run costs one allocation.
///
/// ```
/// # dueq_testkit::doctest!(|client| {
/// use dueq::Delivery;
/// use dueq_opentelemetry::TraceLayer;
///
/// async fn rate(_: Delivery) {}
///
/// let orders = client.queue("orders")?;
/// let worker = client.worker().layer(TraceLayer::new()).queue(&orders, rate).spawn()?;
/// # worker.shutdown().await?;
/// # });
/// ```
#[derive(Clone)]
pub struct TraceLayer {
    tracer: Option<Arc<BoxedTracer>>,
}

impl TraceLayer {
    /// A layer whose spans go to the tracer provider that is the global one now: a provider that is
    /// set later gets none of them.
    ///
    /// ```
    /// let layer = dueq_opentelemetry::TraceLayer::new();
    /// # let _ = layer;
    /// ```
    pub fn new() -> Self {
        Self {
            tracer: tracer().map(Arc::new),
        }
    }
}

impl Default for TraceLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for TraceLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceLayer").finish_non_exhaustive()
    }
}

impl<S> Layer<S> for TraceLayer {
    type Service = TraceService<S>;

    fn layer(&self, inner: S) -> TraceService<S> {
        TraceService {
            inner,
            tracer: self.tracer.clone(),
        }
    }
}

/// A handler in a [`TraceLayer`].
#[derive(Clone)]
pub struct TraceService<S> {
    inner: S,
    tracer: Option<Arc<BoxedTracer>>,
}

impl<S> fmt::Debug for TraceService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceService").finish_non_exhaustive()
    }
}

impl<S> Service<Delivery> for TraceService<S>
where
    S: Service<Delivery, Response = Settlement>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = Settlement;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Settlement, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, delivery: Delivery) -> Self::Future {
        let Some(tracer) = &self.tracer else {
            let handled = self.inner.call(delivery);
            return Box::pin(async move { handled.await.map_err(Into::into) });
        };
        let processing = Processing::start(tracer, slice::from_ref(&delivery));
        let handled = self.inner.call(delivery);
        Box::pin(async move {
            let handled = handled.with_context(processing.context()).await;
            let result = handled.map_err(Into::into);
            match &result {
                Ok(settlement) => processing.finish(slice::from_ref(settlement)),
                // The worker retries the message.
                Err(error) => processing.finish(&[Settlement::retry(error)]),
            }
            result
        })
    }
}
