//! The first layer of all routes but those of health: refuses requests that no route should see,
//! and finds out who sends the others.

use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::accept::Phase;
use crate::app::Shared;
use crate::auth::{Principal, Via, origin, query};
use crate::problem::{Code, Problem};

pub(crate) async fn front(State(app): State<Shared>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let principal = match admit(&app, &parts) {
        Ok(principal) => principal,
        Err(problem) => return problem.into_response(),
    };
    parts.extensions.insert(principal.clone());
    let mut response = next.run(Request::from_parts(parts, body)).await;
    // A problem becomes a page outside of this layer, with the frame of the caller.
    response.extensions_mut().insert(principal);
    response
}

/// The same for the routes by which a caller proves who they are.
pub(crate) async fn open_front(
    State(app): State<Shared>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    match check(&app, &parts) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(problem) => problem.into_response(),
    }
}

fn admit(app: &Shared, parts: &Parts) -> Result<Principal, Problem> {
    check(app, parts)?;
    let principal = app.gate.principal(parts).map_err(|refused| {
        match parts.headers.contains_key(AUTHORIZATION) {
            true => app.failed_logins.counted(parts, refused),
            false => refused,
        }
    })?;
    // A browser sends the cookie by itself, and says where the request comes from.
    if principal.via() == Via::Session && !origin::is_known(parts) {
        let detail = "a request with a session that changes something needs the header Origin";
        return Err(Problem::new(Code::CrossOrigin, detail));
    }
    app.rate_limit.check(principal.name(), Instant::now())?;
    if let Some(connection) = parts.extensions.get::<Phase>() {
        connection.admit();
    }
    Ok(principal)
}

/// What holds for every request, whoever sends it.
fn check(app: &Shared, parts: &Parts) -> Result<(), Problem> {
    if app.life.is_stopping() {
        let detail =
            "the server finishes running requests and accepts no more; ask another instance";
        return Err(Problem::new(Code::Stopping, detail));
    }
    let host = app.hosts.check(parts)?;
    origin::check(parts, host.as_ref(), app.hosts.public())?;
    query::check(&parts.uri)
}
