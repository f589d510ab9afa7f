//! The first layer of all routes but those of health: refuses requests that no route should see,
//! and finds out who sends the others.

use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::app::Shared;
use crate::auth::{Principal, origin, query};
use crate::problem::{Code, Problem};

pub(crate) async fn front(State(app): State<Shared>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match admit(&app, &parts) {
        Ok(principal) => parts.extensions.insert(principal),
        Err(problem) => return problem.into_response(),
    };
    next.run(Request::from_parts(parts, body)).await
}

fn admit(app: &Shared, parts: &Parts) -> Result<Principal, Problem> {
    if app.life.is_stopping() {
        let detail =
            "the server finishes running requests and accepts no more; ask another instance";
        return Err(Problem::new(Code::Stopping, detail));
    }
    let host = app.hosts.check(parts)?;
    origin::check(parts, host.as_ref(), app.hosts.public())?;
    query::check(&parts.uri)?;
    let principal = app.gate.principal(parts)?;
    app.rate_limit.check(principal.name(), Instant::now())?;
    Ok(principal)
}
