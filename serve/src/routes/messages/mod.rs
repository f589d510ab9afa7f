//! The messages of a queue: push, read, change, list.

mod change;
#[cfg(any(test, feature = "harness"))]
pub(crate) mod checks;
mod cursor;
mod key;
mod lines;
mod list;
mod payload;
mod post;
mod push;
mod reader;
mod schema;
mod sending;
mod stream;
mod tally;

use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use crate::work::Shared;

pub(super) use reader::{MAX_BYTES, Reader, unread};
pub(super) use schema::NewMessage;

/// The routes that list and read messages. Callers without the right to read payloads get none.
pub(super) fn reads() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![routes!(list::list_messages), routes!(payload::read_message)]
}

/// The route that returns a payload as it was pushed.
pub(super) fn payloads() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![routes!(payload::download_payload)]
}

/// The routes that push, and that change waiting messages.
pub(super) fn changes() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![
        routes!(
            push::push_message,
            change::change_message,
            change::cancel_message
        ),
        routes!(post::push_messages),
    ]
}

/// The routes by which operators end leases, bury messages, and make dead ones due again.
pub(super) fn revivals() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![
        routes!(change::requeue_message),
        routes!(change::end_lease),
        routes!(change::bury_message),
    ]
}
