//! Handing a delivery on to another queue.

use std::time::Duration;

use crate::delivery::Delivery;
use crate::error::Error;
use crate::model::codec::Codec;
use crate::model::message::Message;
use crate::model::outcomes::Settled;
use crate::model::receipt::Receipt;
use crate::queue::Queue;

/// For how long a queue remembers what was forwarded to it, unless the message says otherwise.
const WINDOW: Duration = Duration::from_secs(24 * 3_600);

impl<C: Codec> Queue<C> {
    /// Pushes `message` to this queue, and then acks `delivery`, which is of another one. It is a
    /// method of the receiving queue because a delivery knows its own queue only.
    ///
    /// The two steps are not atomic, since the queues may be on different servers: for messages of
    /// the same queue [`Delivery::ack_push`] is. But forwarding takes effect once. If the process
    /// dies between the steps, or the lease is lost, a later execution pushes the same id again, and
    /// this queue remembers it: for 24 h, unless the message has a
    /// [`window`](Message::window) of its own. Then the push stores nothing, and the receipt says
    /// [`Exists`](crate::Pushed::Exists) or [`Remembered`](crate::Pushed::Remembered).
    ///
    /// A message without an id gets that of the delivery after the name of its queue, such as
    /// `orders/order:42`. So set an id if a handler forwards two messages, or if the delivery's id
    /// comes again within the window, as after [`Delivery::again`]: without one, the second message
    /// is not stored. The window counts towards this queue's
    /// [`Limits::max_remembered`](crate::Limits::max_remembered).
    ///
    /// A dropped future may have pushed the message without the ack: then the delivery is executed
    /// again.
    ///
    /// # Errors
    /// Those of [`push_message`](Queue::push_message): then the delivery is still leased. If the
    /// message was pushed and the ack failed, the error says
    /// [`Applied::Yes`](crate::Applied::Yes) or `Unknown`; the same call again does the rest.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client, orders, delivery| {
    /// use dueq::{Message, Settled};
    ///
    /// let invoices = client.queue("invoices")?;
    /// let (receipt, settled) = invoices.forward(&delivery, Message::new("order 42")).await?;
    /// assert_eq!(receipt.id(), "orders/order:42");
    /// assert_eq!(settled, Settled::Done);
    /// # });
    /// ```
    pub async fn forward(
        &self,
        delivery: &Delivery,
        mut message: Message,
    ) -> Result<(Receipt, Settled), Error> {
        if message.id.is_none() {
            let source = delivery.partition().queue_name().as_bytes();
            message = message.id([source, b"/", delivery.id_bytes()].concat());
        }
        if message.unique.window_ms.is_none() {
            message = message.window(WINDOW);
        }
        let receipt = self.push_message(message).await?;
        let settled = delivery.ack().await.map_err(|error| {
            error.after(&format!("the message was pushed to queue {}", self.name()))
        })?;
        Ok((receipt, settled))
    }
}
