//! Login, logout, and the rights of the caller.

use axum::Json;
use axum::extract::State;
use axum::http::header::SET_COOKIE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use crate::edge::auth::session::set_cookie;
use crate::edge::auth::{Principal, Right};
use crate::edge::body::JsonBody;
use crate::edge::problem::Problem;
use crate::routes::declared::declared;
use crate::wire::about::Session;
use crate::work::Shared;

/// The token with which a session begins.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Begin {
    token: String,
}

pub(super) fn reads() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![routes!(read_caller)]
}

pub(super) fn changes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(declared(routes!(begin_session, end_session)))
}

/// Read what the caller may do
#[utoipa::path(get, path = "/v1/caller", tag = "about", responses((status = 200, body = Session)))]
async fn read_caller(State(app): State<Shared>, caller: Principal) -> Json<Session> {
    let allowed = |right: &Right| caller.has(*right) && (right.is_read() || !app.edge.is_read_only);
    Json(Session {
        name: caller.name().to_owned(),
        via: caller.via().name().to_owned(),
        roles: caller
            .roles()
            .iter()
            .map(|role| role.name().to_owned())
            .collect(),
        rights: Right::ALL
            .iter()
            .filter(|right| allowed(right))
            .map(|right| right.name().to_owned())
            .collect(),
        queues: caller.queues().iter().map(ToString::to_string).collect(),
        read_only: app.edge.is_read_only,
    })
}

/// Begin a session
///
/// Sets a cookie that stands for the token, for 12 hours, until the token is removed, or until the
/// session ends. For pages in browsers; a program sends its token with each request.
#[utoipa::path(
    post,
    path = "/v1/session",
    tag = "about",
    security(()),
    request_body = Begin,
    responses(
        (status = 204, description = "The header Set-Cookie has the session"),
        (status = 400, description = "The body cannot be read, or the server has no tokens"),
        (status = 401, description = "The token is unknown"),
        (status = 403, description = "A page of another site sent the request"),
        (status = 408, description = "The body paused for too long"),
        (status = 413, description = "The body is too large"),
        (status = 415, description = "The body is not JSON"),
        (status = 421, description = "The request names another host"),
        (status = 429, description = "The address sends too many wrong tokens"),
        (status = 503, description = "The server cannot serve the request now"),
    )
)]
async fn begin_session(
    State(app): State<Shared>,
    parts: Parts,
    JsonBody(begin): JsonBody<Begin, 4_096>,
) -> Result<Response, Problem> {
    let begun = app.edge.gate.begin_session(&begin.token);
    let value = begun.map_err(|refused| app.edge.failed_logins.counted(&parts, refused))?;
    let cookie = set_cookie(Some(&value), &app.edge.hosts);
    Ok(with_cookie(cookie))
}

/// End the session of this browser
///
/// Removes the cookie, and this instance accepts no copy of it any more. Removing the token from the
/// tokens file ends all its sessions, on all instances.
#[utoipa::path(
    delete,
    path = "/v1/session",
    tag = "about",
    security(()),
    responses(
        (status = 204, description = "The session has ended"),
        (status = 400, description = "The request cannot be read"),
        (status = 403, description = "A page of another site sent the request"),
        (status = 421, description = "The request names another host"),
        (status = 503, description = "The server cannot serve the request now"),
    )
)]
async fn end_session(State(app): State<Shared>, headers: HeaderMap) -> Result<Response, Problem> {
    app.edge.gate.end_session(&headers);
    Ok(with_cookie(set_cookie(None, &app.edge.hosts)))
}

fn with_cookie(cookie: Option<HeaderValue>) -> Response {
    let header = cookie.map(|cookie| [(SET_COOKIE, cookie)]);
    (StatusCode::NO_CONTENT, header, ()).into_response()
}
