//! The routes, in groups: each group asks for one right.
//!
//! To add a route: write its handler with `#[utoipa::path(...)]` in the file of its subject, and
//! add it to the group with its right there. It is then part of the OpenAPI document, of the guard
//! and of the tests of roles.

#[cfg(any(test, feature = "harness"))]
pub(crate) mod checks;
mod claims;
mod declared;
mod doctor;
mod document;
mod events;
mod group;
mod health;
mod messages;
mod operations;
mod processes;
mod queues;
mod rules;
mod schedules;
mod search;
mod session;
mod settlements;
mod timing;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::MethodRouter;
use utoipa_axum::router::OpenApiRouter;

use crate::edge::auth::{Right, guard};
use crate::routes::group::Group;
pub(crate) use crate::routes::health::{Health, OK};
use crate::work::Shared;

/// All groups of routes.
fn groups() -> Vec<Group> {
    vec![
        Group::new(Right::Read, document::routes()),
        Group::new(Right::Read, queues::routes()),
        Group::new(Right::Read, health::reads()),
        Group::new(Right::Read, events::routes()),
        Group::new(Right::Read, queues::overviews()),
        Group::new(Right::Read, search::routes()),
        Group::new(Right::Read, processes::routes()),
        Group::new(Right::Operate, processes::changes()),
        Group::new(Right::Read, doctor::routes()),
        Group::new(Right::Read, session::reads()),
        Group::new(Right::Read, messages::reads()),
        Group::new(Right::ReadPayload, messages::payloads()),
        Group::new(Right::ReadPayload, operations::payloads()),
        Group::new(Right::Produce, messages::changes()),
        Group::new(Right::Consume, claims::routes()),
        Group::new(Right::Consume, settlements::routes()),
        Group::new(Right::Operate, messages::revivals()),
        Group::new(Right::Read, queues::limits()),
        Group::new(Right::Operate, queues::limit_changes()),
        Group::new(Right::Operate, queues::pauses()),
        Group::new(Right::Read, operations::reads()),
        Group::new(Right::Operate, operations::changes()),
        Group::new(Right::Operate, queues::deletions()),
        Group::new(Right::Read, schedules::reads()),
        Group::new(Right::Operate, schedules::changes()),
    ]
}

/// The routes that need no known caller: health.
pub(crate) fn health() -> OpenApiRouter<Shared> {
    health::routes()
}

/// The routes by which a caller logs in or out.
pub(crate) fn open() -> OpenApiRouter<Shared> {
    session::changes()
}

/// All other routes behind their guards, and the OpenAPI document of all routes.
pub(crate) fn guarded(app: &Shared) -> (Router<Shared>, String) {
    let public = app.edge.hosts.public();
    let url = public.map_or_else(|| "/".to_owned(), ToString::to_string);
    all(&url, |methods, right| {
        methods.route_layer(from_fn_with_state((app.edge.clone(), right), guard))
    })
}

/// The routes of all groups behind the layer `guarded`, and the OpenAPI document of all routes.
fn all(
    url: &str,
    guarded: impl Fn(MethodRouter<Shared>, Right) -> MethodRouter<Shared>,
) -> (Router<Shared>, String) {
    let mut all = OpenApiRouter::with_openapi(document::document(url));
    for group in groups() {
        all = all.merge(group.routed(&guarded));
    }
    let (router, mut document) = all.split_for_parts();
    document.merge(health().into_openapi());
    document.merge(open().into_openapi());
    (router, document::completed(&document).to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use sha2::{Digest, Sha256};

    use super::*;

    /// The SHA-256 of the document without its version.
    const DOCUMENT: &str = "95b788f4adf00648dbd80fe410901ab87cd0c23bd8d93f7da8285e05eae487a9";

    #[test]
    fn openapi_document_has_the_expected_checksum() {
        let (_, document) = all("/", |methods, _| methods);
        let version = concat!("\"version\":\"", env!("CARGO_PKG_VERSION"), "\"");
        assert_eq!(document.matches(version).count(), 1, "{version}");
        let document = document.replace(version, "\"version\":\"\"");
        let sum = Sha256::digest(&document);
        let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
        if sum != DOCUMENT {
            let path = std::env::temp_dir().join("dueq-openapi.json");
            std::fs::write(&path, document).expect("a file");
            panic!(
                "the document changed: compare {} with the document of the last commit, and if \
                 users shall see the difference, write the checksum {sum} here",
                path.display()
            );
        }
    }

    /// The macros collect the schemas by name: of two schemas with one name, the last would replace
    /// the first.
    #[test]
    fn every_schema_has_a_name_of_its_own() {
        let mut known = HashMap::new();
        for (name, schema) in groups().into_iter().flat_map(Group::into_schemas) {
            let schema = serde_json::to_value(schema).expect("a schema");
            let first = known.entry(name.clone()).or_insert_with(|| schema.clone());
            assert_eq!(
                *first, schema,
                "two types have the schema {name}: add #[schema(as = ...)]"
            );
        }
        for (name, _) in rules::all() {
            assert!(known.contains_key(name), "there is no schema {name}");
        }
    }
}
