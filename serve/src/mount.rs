//! Assembles the router: its routes and layers.

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state, map_response, map_response_with_state};
use axum::response::Response;
use dueq::Client;

use crate::dashboard;
use crate::edge::auth::{Access, Hosts, front, open_front};
use crate::edge::config::Config;
use crate::edge::everywhere::everywhere;
use crate::edge::problem::Code;
use crate::edge::{Edge, Error};
use crate::routes;
use crate::work::{App, Shared};

/// A router with all routes, to mount in another service: `app.nest_service("/dueq", router)`.
///
/// [`Access::Loopback`] and a trusted proxy need the address of the peer, and refuse everybody
/// without it: serve the service with `into_make_service_with_connect_info::<SocketAddr>()`. The
/// service itself limits connections, request heads and pauses within bodies. `Config::listen` and
/// `Config::max_connections` are ignored.
///
/// # Errors
/// [`Error`] if a file of the configuration cannot be read.
pub fn router(client: Client, config: Config) -> Result<Router, Error> {
    let is_loopback = config.access == Access::Loopback && config.proxy.is_none();
    let hosts = Hosts::of_router(config.public_url.clone(), is_loopback);
    let app = Arc::new(App::new(client, &config, hosts)?);
    Ok(routed(&app))
}

/// The router with this state.
pub(crate) fn routed(app: &Shared) -> Router {
    let (router, document) = routes::guarded(app);
    let _ = app.document.set(document);
    let (health, _) = routes::health().split_for_parts();
    let (open, _) = routes::open().split_for_parts();
    let open = open.merge(dashboard::open());
    let pages = dashboard::routes(router.clone().with_state(app.clone()));
    let router = router
        .merge(pages)
        .fallback(async || StatusCode::NOT_FOUND)
        .layer(from_fn_with_state(app.edge.clone(), front))
        .merge(open.layer(from_fn_with_state(app.edge.clone(), open_front)))
        .merge(health);
    everywhere(router)
        .layer(from_fn_with_state(app.clone(), dashboard::problems::shown))
        .layer(from_fn_with_state(app.edge.clone(), counted))
        .layer(map_response(hardened))
        .layer(map_response_with_state(app.clone(), strict_transport))
        .with_state(app.clone())
}

/// Counts requests by route, method and class of status, and problems by code.
async fn counted(State(edge): State<Arc<Edge>>, request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>();
    let prefix = edge.hosts.public().map_or("", |url| url.path());
    let route = matched.map(|matched| {
        let path = matched.as_str();
        path.strip_prefix(prefix).unwrap_or(path).to_owned()
    });
    let method = method(request.method());
    let response = next.run(request).await;
    let requests = &edge.meters.requests;
    requests.count(
        route.as_deref().unwrap_or("none"),
        method,
        response.status().as_u16(),
    );
    if let Some(code) = response.extensions().get::<Code>() {
        requests.problem(code.word());
    }
    response
}

fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

/// Adds the header that makes browsers use only TLS, if the server itself terminates TLS. A proxy
/// that does adds the header itself.
async fn strict_transport(State(app): State<Shared>, mut response: Response) -> Response {
    if app.edge.hosts.is_tls() {
        let year = HeaderValue::from_static("max-age=31536000");
        response
            .headers_mut()
            .insert(STRICT_TRANSPORT_SECURITY, year);
    }
    response
}

/// Adds headers by which browsers refuse to show a response in another site, or to guess its type.
pub(crate) async fn hardened(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let defaults = [
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (
            CONTENT_SECURITY_POLICY,
            "default-src 'none'; frame-ancestors 'none'",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    for (name, value) in defaults {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    response
}
