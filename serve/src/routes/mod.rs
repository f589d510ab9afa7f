//! The routes, in groups: each group asks for one right.
//!
//! To add a route: write its handler with `#[utoipa::path(...)]` in a file of its subject, and add
//! it to the group of its right there. The OpenAPI document, the guard and the tests of roles find
//! it by that.

mod claims;
mod doctor;
mod events;
mod group;
mod health;
mod messages;
mod metrics;
mod openapi;
mod overview;
mod pause;
mod queues;
mod search;
mod session;
mod settlements;
mod timing;

use axum::Router;
use utoipa_axum::router::OpenApiRouter;

pub(crate) use doctor::Doctor;
pub(crate) use health::RedisProbe;
pub(crate) use messages::Summary;
pub(crate) use queues::{Listed, known};
pub(crate) use search::Searches;
pub(crate) use settlements::Settlements;

use crate::app::Shared;
use crate::auth::Right;
use crate::routes::group::Group;

/// All groups of routes.
fn groups() -> Vec<Group> {
    vec![
        Group::new(Right::Read, openapi::routes()),
        Group::new(Right::Read, queues::routes()),
        Group::new(Right::Read, metrics::routes()),
        Group::new(Right::Read, events::routes()),
        Group::new(Right::Read, overview::routes()),
        Group::new(Right::Read, search::routes()),
        Group::new(Right::Read, doctor::routes()),
        Group::new(Right::Read, session::reads()),
        Group::new(Right::Read, messages::reads()),
        Group::new(Right::ReadPayload, messages::payloads()),
        Group::new(Right::Produce, messages::changes()),
        Group::new(Right::Consume, claims::routes()),
        Group::new(Right::Consume, settlements::routes()),
        Group::new(Right::Operate, messages::revivals()),
        Group::new(Right::Operate, pause::routes()),
    ]
}

/// The routes that need no caller: health.
pub(crate) fn health() -> OpenApiRouter<Shared> {
    health::routes()
}

/// The routes by which a caller proves who they are.
pub(crate) fn open() -> OpenApiRouter<Shared> {
    session::changes()
}

/// All other routes behind their guards, and the OpenAPI document of all.
pub(crate) fn guarded(app: &Shared) -> (Router<Shared>, utoipa::openapi::OpenApi) {
    let mut all = OpenApiRouter::with_openapi(openapi::document(app));
    for group in groups() {
        all = all.merge(group.guarded(app));
    }
    let (router, mut document) = all.split_for_parts();
    document.merge(health().into_openapi());
    document.merge(open().into_openapi());
    group::complete(&mut document);
    (router, document)
}
