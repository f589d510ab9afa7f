//! The OpenAPI document, made from the handlers.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use tower_http::compression::CompressionLayer;
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{SecurityRequirement, Server};
use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use crate::app::Shared;
use crate::problem::Document;

pub(super) fn routes() -> Vec<UtoipaMethodRouter<Shared>> {
    let (schemas, paths, methods) = routes!(openapi);
    vec![(schemas, paths, methods.layer(CompressionLayer::new()))]
}

/// What the document says besides the routes.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "dueq",
        description = "A delay queue on Redis, over HTTP. Errors are problem documents (RFC 9457).",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    components(schemas(Document)),
    tags(
        (name = "queues", description = "Whole queues"),
        (name = "messages", description = "Single messages of a queue"),
        (name = "health", description = "For load balancers and supervisors"),
        (name = "about", description = "This document"),
    )
)]
struct Base;

/// The document without routes.
pub(super) fn document(app: &Shared) -> utoipa::openapi::OpenApi {
    let mut document = Base::openapi();
    env!("CARGO_PKG_VERSION").clone_into(&mut document.info.version);
    let url = app
        .hosts
        .public()
        .map_or_else(|| "/".to_owned(), ToString::to_string);
    document.servers = Some(vec![Server::new(url)]);
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("A token of `dueq serve token`"))
        .build();
    let components = document.components.get_or_insert_default();
    components.add_security_scheme("token", SecurityScheme::Http(bearer));
    let none: [&str; 0] = [];
    document.security = Some(vec![SecurityRequirement::new("token", none)]);
    document
}

/// This document
#[utoipa::path(get, path = "/openapi.json", tag = "about", responses((status = 200, description = "OpenAPI 3.1", body = Object)))]
async fn openapi(State(app): State<Shared>) -> Response {
    let document = app.document.get().cloned().unwrap_or_default();
    ([(CONTENT_TYPE, "application/json")], document).into_response()
}
