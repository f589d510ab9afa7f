//! A group of routes that require one right.

use axum::routing::MethodRouter;
use utoipa::openapi::ResponseBuilder;
use utoipa::openapi::extensions::ExtensionsBuilder;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

use crate::edge::auth::Right;
use crate::routes::declared::declared;
use crate::work::Shared;

/// Routes, and the right that they require.
pub(crate) struct Group {
    right: Right,
    routes: Vec<UtoipaMethodRouter<Shared>>,
}

/// The problems that every route can answer with, and their descriptions. The document adds the
/// type of a problem document.
const COMMON: [(&str, &str); 7] = [
    (
        "400",
        "The request cannot be read, or a value is out of its range",
    ),
    ("401", "The request has no valid token"),
    ("403", "The caller, or the server, may not do this"),
    ("421", "The request names another host"),
    ("429", "The caller sends too many requests"),
    ("502", "Redis answered with an error"),
    ("503", "Redis or the server cannot serve the request now"),
];

/// Further problems of routes with a request body.
const OF_BODIES: [(&str, &str); 3] = [
    ("408", "The body paused for too long"),
    ("413", "The body is too large"),
    ("415", "The body is not JSON, or not plain UTF-8"),
];

impl Group {
    pub(crate) fn new(right: Right, routes: Vec<UtoipaMethodRouter<Shared>>) -> Self {
        Self { right, routes }
    }

    /// The schemas of the routes, by their names.
    #[cfg(test)]
    pub(crate) fn into_schemas(
        self,
    ) -> impl Iterator<Item = (String, utoipa::openapi::RefOr<utoipa::openapi::Schema>)> {
        self.routes.into_iter().flat_map(|(schemas, _, _)| schemas)
    }

    /// The routes behind the layer `guarded`, described with the group's right and the common
    /// problems.
    pub(crate) fn routed(
        self,
        guarded: impl Fn(MethodRouter<Shared>, Right) -> MethodRouter<Shared>,
    ) -> OpenApiRouter<Shared> {
        let mut router = OpenApiRouter::new();
        for (schemas, paths, methods) in self.routes.into_iter().map(declared) {
            // The layer goes around each method, not around the path: a refusal of a missing method
            // needs no guard, and other methods of the path may belong to another group.
            let methods = guarded(methods, self.right);
            router = router.routes((schemas, paths, methods));
        }
        for item in router.get_openapi_mut().paths.paths.values_mut() {
            for operation in operations(item) {
                describe(operation, self.right);
            }
        }
        router
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let all = [
        &mut item.get,
        &mut item.put,
        &mut item.post,
        &mut item.delete,
        &mut item.patch,
        &mut item.head,
    ];
    all.into_iter().flatten()
}

fn describe(operation: &mut Operation, right: Right) {
    let right = ExtensionsBuilder::new()
        .add("x-right", right.name())
        .build();
    operation.extensions.get_or_insert_default().merge(right);
    let of_bodies = operation.request_body.as_ref().map(|_| OF_BODIES);
    for (status, description) in COMMON.into_iter().chain(of_bodies.into_iter().flatten()) {
        let response = ResponseBuilder::new().description(description).build();
        let responses = &mut operation.responses.responses;
        responses
            .entry(status.to_owned())
            .or_insert(response.into());
    }
}
