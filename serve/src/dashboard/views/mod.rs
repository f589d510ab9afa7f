//! The pages, one file each, and their routes.

mod answer;
mod dead;
mod each;
mod login;
mod message;
mod messages;
mod operations;
mod pages;
mod push;
mod queue;
mod queues;
mod schedules;
mod search;
mod server;
mod traffic;
mod workers;

use axum::Router;

use crate::work::Shared;

pub(super) use answer::local;

pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .merge(queues::routes())
        .merge(queue::routes())
        .merge(messages::routes())
        .merge(message::routes())
        .merge(push::routes())
        .merge(dead::routes())
        .merge(search::routes())
        .merge(operations::routes())
        .merge(traffic::routes())
        .merge(schedules::routes())
        .merge(workers::routes())
        .merge(server::routes())
        .merge(login::preferences())
}

/// The pages that need no known caller.
pub(super) fn open() -> Router<Shared> {
    login::routes()
}
