//! The dashboard: HTML pages that the server renders.
//!
//! The dashboard is a client of `/v1`: a page reads and acts by the same calls as every other
//! client, inside this process ([`api::Api`]). So the same guard, limits and audit log apply, and a
//! page can show the call behind it. Only [`views`] knows pages; only [`show`] and [`chart`] format
//! values. One layer, [`problems::shown`], turns problem documents into pages.

mod api;
mod assets;
mod chart;
mod findings;
mod form;
mod frame;
mod page;
pub(crate) mod problems;
mod show;
mod undo;
mod views;

use std::sync::Arc;

use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::map_response;
use axum::response::Response;
use axum::{Extension, Router};
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, NotForContentType, Predicate};

use crate::edge::problem::MEDIA_TYPE;
use crate::work::Shared;

/// The content security policy: a page loads only its own style sheet, script and data. A script
/// cannot turn text into markup.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// The pages that need a known caller. `api` has the routes of `/v1` behind their guards.
pub(crate) fn routes(api: Router) -> Router<Shared> {
    let pages = views::routes()
        .layer(Extension(api::Routes(api)))
        .layer(Extension(Arc::new(undo::Undo::default())));
    hardened(pages)
}

/// The pages and files that need no known caller: login, style sheet and script.
pub(crate) fn open() -> Router<Shared> {
    hardened(views::open()).merge(assets::routes())
}

fn hardened(pages: Router<Shared>) -> Router<Shared> {
    // Problem documents are not compressed: an outer layer must read them to make pages.
    let is_no_problem = NotForContentType::const_new(MEDIA_TYPE);
    let compressed = DefaultPredicate::new().and(is_no_problem);
    pages
        .layer(map_response(with_headers))
        .layer(CompressionLayer::new().compress_when(compressed))
}

/// Adds the headers that every page has.
async fn with_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, "no-store"),
        // With `no-referrer` browsers send `Origin: null` with forms, which the guard refuses.
        (REFERRER_POLICY, "same-origin"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
