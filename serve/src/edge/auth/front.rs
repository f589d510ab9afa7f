//! The first layer of all routes except health: refuses requests that no route may see, and
//! identifies the caller of the others.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::Uri;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::edge::Edge;
use crate::edge::accept::Phase;
use crate::edge::auth::{Principal, Via, contains_token, origin};
use crate::edge::problem::{Code, Problem};

pub(crate) async fn front(State(edge): State<Arc<Edge>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let principal = match admit(&edge, &parts) {
        Ok(principal) => principal,
        Err(problem) => return problem.into_response(),
    };
    parts.extensions.insert(principal.clone());
    let mut response = next.run(Request::from_parts(parts, body)).await;
    // An outer layer turns a problem into a page, and the page shows the caller.
    response.extensions_mut().insert(principal);
    response
}

/// The first layer of the routes by which a caller logs in or out.
pub(crate) async fn open_front(
    State(edge): State<Arc<Edge>>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    match check(&edge, &parts) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(problem) => problem.into_response(),
    }
}

fn admit(edge: &Edge, parts: &Parts) -> Result<Principal, Problem> {
    check(edge, parts)?;
    let principal = edge.gate.principal(parts).map_err(|refused| {
        match parts.headers.contains_key(AUTHORIZATION) {
            true => edge.failed_logins.counted(parts, refused),
            false => refused,
        }
    })?;
    // A browser attaches the cookie to every request, so the request must also say which page it
    // comes from.
    if principal.via() == Via::Session && !origin::is_known(parts) {
        let detail = "a request with a session that changes something needs the header Origin";
        return Err(Problem::new(Code::CrossOrigin, detail));
    }
    edge.rate_limit.check(principal.name(), Instant::now())?;
    if let Some(connection) = parts.extensions.get::<Phase>() {
        connection.admit();
    }
    Ok(principal)
}

/// The checks that apply to every request and every caller.
fn check(edge: &Edge, parts: &Parts) -> Result<(), Problem> {
    if edge.life.is_stopping() {
        let detail =
            "the server finishes running requests and accepts no more; ask another instance";
        return Err(Problem::new(Code::Stopping, detail));
    }
    let host = edge.hosts.check(parts)?;
    origin::check(parts, host.as_ref(), edge.hosts.public())?;
    no_token_in(&parts.uri)
}

/// Parameter names by which other APIs take tokens.
const NAMES: [&str; 6] = [
    "token",
    "access_token",
    "api_key",
    "apikey",
    "authorization",
    "bearer",
];

/// Refuses a URL that contains a token, or a parameter named like one. The problem quotes no part
/// of the URL.
pub(crate) fn no_token_in(uri: &Uri) -> Result<(), Problem> {
    let refused = || {
        let detail = "send the token in the header Authorization: Bearer TOKEN; \
                      this one may be in logs now: remove it from the tokens file";
        Err(Problem::new(Code::TokenInQuery, detail))
    };
    let decode = |text: &str| {
        percent_encoding::percent_decode_str(text)
            .decode_utf8_lossy()
            .into_owned()
    };
    if contains_token(&decode(uri.path())) {
        return refused();
    }
    let Some(query) = uri.query() else {
        return Ok(());
    };
    if contains_token(&decode(query)) {
        return refused();
    }
    for parameter in query.split(['&', ';']) {
        let name = decode(parameter.split('=').next().unwrap_or_default());
        if NAMES
            .iter()
            .any(|known| name.trim().eq_ignore_ascii_case(known))
        {
            return refused();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_with_a_token_is_refused() {
        let token = format!("dueq_{}", "a".repeat(43));
        for (url, is_allowed) in [
            ("/v1/queues".to_owned(), true),
            ("/v1/queues?limit=5".to_owned(), true),
            ("/v1/queues?token=x".to_owned(), false),
            ("/v1/queues?limit=5&Access_Token=x".to_owned(), false),
            ("/v1/queues?%74oken=x".to_owned(), false),
            ("/v1/queues?a;token=x".to_owned(), false),
            (format!("/v1/queues?x={token}"), false),
            (format!("/v1/queues?x={}", token.replace('_', "%5F")), false),
            (format!("/v1/queues/{token}"), false),
        ] {
            let uri: Uri = url.parse().expect("a URL");
            assert_eq!(no_token_in(&uri).is_ok(), is_allowed, "{url}");
        }
    }
}
