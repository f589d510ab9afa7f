//! Handlers: functions, closures and types with state.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::delivery::Delivery;
use crate::error::panic_text;
use crate::model::codec::Codec;
use crate::model::settlement::{IntoSettlement, Settlement};
use crate::node::consumers::handling::HandleOne;
use crate::node::consumers::runner::HandlerRunner;
use crate::worker::assemble::{Assembled, Layers};
use crate::worker::layer::{HandlerService, with_causes};

/// A handler with state: a type whose value handles the messages of a queue with payloads of `V`.
///
/// The worker calls it through a shared reference, so state needs no `Arc`. One value may serve
/// many queues as `Arc<H>`.
///
/// ```
/// use dueq::{Delivery, Handler};
///
/// struct Rater {
///     stars: u8,
/// }
///
/// impl Handler<Vec<u8>> for Rater {
///     type Output = anyhow::Result<()>;
///
///     async fn handle(&self, order: Vec<u8>, delivery: Delivery) -> anyhow::Result<()> {
///         println!("{} stars for {order:?}, attempt {}", self.stars, delivery.attempt());
///         Ok(())
///     }
/// }
/// # let _ = Rater { stars: 5 };
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not handle payloads of the type `{V}`",
    label = "not a `Handler<{V}>`"
)]
pub trait Handler<V>: Send + Sync + 'static {
    /// What the handler returns: nothing, a [`Settlement`], or a `Result` of either.
    type Output: IntoSettlement;

    /// Handles one message.
    fn handle(&self, value: V, delivery: Delivery) -> impl Future<Output = Self::Output> + Send;
}

impl<V: Send, H: Handler<V>> Handler<V> for Arc<H> {
    type Output = H::Output;

    fn handle(&self, value: V, delivery: Delivery) -> impl Future<Output = H::Output> + Send {
        H::handle(self, value, delivery)
    }
}

/// What a [`Worker`](crate::Worker) takes as the handler of a queue with payloads of `V`:
///
/// - `async fn(Delivery) -> R`, for any queue: the payload is not decoded,
/// - `async fn(V, Delivery) -> R`: the payload is decoded first, and buried if that fails,
/// - a type that implements [`Handler<V>`],
/// - [`in_batches`](crate::in_batches) for many messages at a time.
///
/// Closures that return futures count as functions. The type of a parameter must be written out if
/// the body calls a method on it or reads a field of it. `R` is nothing, a [`Settlement`], or a
/// `Result` of either. `Marker` distinguishes these kinds; the compiler infers it.
///
/// A handler of another payload does not compile:
///
/// ```compile_fail
/// # async fn example(orders: dueq::Queue) -> Result<(), dueq::Error> {
/// async fn handler(value: u64, delivery: dueq::Delivery) {}
/// // The payloads of `orders` are bytes:
/// // `fn(u64, Delivery)` is not a handler of a queue with payloads of the type `Vec<u8>`.
/// orders.worker().run(handler, std::future::pending::<()>()).await
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler of a queue with payloads of the type `{V}`",
    label = "expected `async fn(Delivery)`, `async fn({V}, Delivery)` or a `Handler<{V}>`",
    note = "its result must be `()`, a `Settlement`, or a `Result` of either whose error is `Display`",
    note = "its future must be `Send`, and the parameters of a closure need their types"
)]
pub trait IntoHandler<V, Marker>: Sized {
    #[doc(hidden)]
    fn assemble<C: Codec<Value = V>>(self, codec: &C, layers: &Layers) -> Assembled;
}

/// Marks a handler that takes the delivery only.
#[doc(hidden)]
#[derive(Debug)]
pub struct OfDelivery;

/// Marks a handler that takes the value and the delivery.
#[doc(hidden)]
#[derive(Debug)]
pub struct OfValue;

/// Marks a type that implements `Handler`.
#[doc(hidden)]
#[derive(Debug)]
pub struct OfType;

impl<V, H, F> IntoHandler<V, OfDelivery> for H
where
    H: Fn(Delivery) -> F + Send + Sync + 'static,
    F: Future + Send + 'static,
    F::Output: IntoSettlement,
{
    fn assemble<C: Codec<Value = V>>(self, _: &C, layers: &Layers) -> Assembled {
        one(Raw(self), layers)
    }
}

impl<V, H, F> IntoHandler<V, OfValue> for H
where
    V: Send + 'static,
    H: Fn(V, Delivery) -> F + Send + Sync + 'static,
    F: Future + Send + 'static,
    F::Output: IntoSettlement,
{
    fn assemble<C: Codec<Value = V>>(self, codec: &C, layers: &Layers) -> Assembled {
        one(Typed(codec.clone(), Function(self)), layers)
    }
}

impl<V, H> IntoHandler<V, OfType> for H
where
    V: Send + 'static,
    H: Handler<V>,
{
    fn assemble<C: Codec<Value = V>>(self, codec: &C, layers: &Layers) -> Assembled {
        one(Typed(codec.clone(), self), layers)
    }
}

/// Wraps a handler of single deliveries into its layers. Without layers it is called directly.
fn one(handler: impl HandleOne, layers: &Layers) -> Assembled {
    if layers.is_empty() {
        return Assembled::one(Arc::new(HandlerRunner { handler }));
    }
    let innermost = HandlerService::new(handler);
    let handler = layers
        .iter()
        .rev()
        .fold(innermost, |inner, wrap| wrap(inner));
    Assembled::one(Arc::new(HandlerRunner { handler }))
}

/// Adapts a function of a delivery.
struct Raw<H>(H);

impl<H, F> HandleOne for Raw<H>
where
    H: Fn(Delivery) -> F + Send + Sync + 'static,
    F: Future + Send + 'static,
    F::Output: IntoSettlement,
{
    fn handle(&self, delivery: Delivery) -> impl Future<Output = Settlement> + Send {
        let future = (self.0)(delivery);
        async { future.await.into_settlement() }
    }
}

/// Adapts a function of a value and its delivery.
struct Function<H>(H);

impl<V, H, F> Handler<V> for Function<H>
where
    H: Fn(V, Delivery) -> F + Send + Sync + 'static,
    F: Future + Send + 'static,
    F::Output: IntoSettlement,
{
    type Output = F::Output;

    fn handle(&self, value: V, delivery: Delivery) -> impl Future<Output = F::Output> + Send {
        (self.0)(value, delivery)
    }
}

/// Decodes the payload, and then calls the handler.
struct Typed<C, H>(C, H);

impl<C: Codec, H: Handler<C::Value>> HandleOne for Typed<C, H> {
    async fn handle(&self, delivery: Delivery) -> Settlement {
        match decode(&self.0, &delivery) {
            Ok(value) => self.1.handle(value, delivery).await.into_settlement(),
            Err(settlement) => settlement,
        }
    }
}

/// Decodes the payload of a delivery. If it cannot, returns the settlement that buries the message.
pub(crate) fn decode<C: Codec>(codec: &C, delivery: &Delivery) -> Result<C::Value, Settlement> {
    // Caught here, because the codec's error is foreign code too: its text and its drop may panic.
    let decode = || codec.decode(delivery.payload());
    let decode = || decode().map_err(|error| with_causes(&*error));
    let reason = match catch_unwind(AssertUnwindSafe(decode)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => format!("the payload does not decode: {error}"),
        Err(panic) => format!("the codec panicked: {}", panic_text(&*panic)),
    };
    delivery.undecodable(&reason);
    Err(Settlement::bury(reason))
}
