//! Turns problem documents into pages, for browsers and outside of `/v1`.

use askama::Template;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::dashboard::frame::{Caller, Frame, Here, Preferences};
use crate::dashboard::{page, show, views, with_headers};
use crate::edge::auth::Principal;
use crate::edge::problem::{Code, MEDIA_TYPE};
use crate::edge::shown::quoted;
use crate::work::Shared;

/// The most bytes of a problem document.
const MAX_BYTES: usize = 1 << 20;

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage {
    frame: Frame,
    status: u16,
    detail: String,
    code: String,
    /// Whether a request to change something took effect.
    applied: Option<&'static str>,
}

/// Where other clients get a problem document, answers a browser with a page; without a login it
/// redirects to the login page.
pub(crate) async fn shown(State(app): State<Shared>, request: Request, next: Next) -> Response {
    let accept = request.headers().get(ACCEPT);
    let wants_page = accept.is_some_and(|accept| contains(accept, "text/html"));
    let is_api = request.uri().path().starts_with("/v1/");
    if !wants_page || is_api {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let base = page::base(&parts);
    let address = parts
        .uri
        .path_and_query()
        .map_or_else(|| "/".to_owned(), ToString::to_string);
    let preferences = Preferences::of(&parts.headers);
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    let response = next.run(Request::from_parts(parts, body)).await;
    let media = response.headers().get(CONTENT_TYPE);
    if media.is_none_or(|media| media.as_bytes() != MEDIA_TYPE.as_bytes()) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let document: Value = match to_bytes(body, MAX_BYTES).await {
        Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
        Err(_) => Value::Null,
    };
    let text = |name: &str| document[name].as_str().unwrap_or_default().to_owned();
    if head.status == StatusCode::UNAUTHORIZED && is_read {
        let back = utf8_percent_encode(&address, NON_ALPHANUMERIC);
        let login = HeaderValue::try_from(format!("{base}/login?next={back}"));
        if let Ok(login) = login {
            return (StatusCode::SEE_OTHER, [(LOCATION, login)]).into_response();
        }
    }
    let title = match text("title") {
        title if title.is_empty() => head.status.to_string(),
        title => title,
    };
    let code = text("code");
    let detail = if code == Code::NotFound.word() {
        format!("No page has the address {}.", quoted(&address))
    } else {
        show::text(&text("detail"))
    };
    // The caller is unknown here if an earlier layer refused the request.
    let principal = head.extensions.get::<Principal>();
    let caller = principal.map(|principal| Caller::new(principal, &app));
    let page = ProblemPage {
        // The page links to its own address; `//evil.com` would lead to another host.
        frame: Frame::new(
            title,
            Here::Nowhere,
            base,
            views::local(&address).to_owned(),
            &preferences,
            caller,
        ),
        status: head.status.as_u16(),
        detail,
        code,
        applied: (!is_read).then(|| match document["applied"].as_str() {
            Some("no") => "Nothing was changed.",
            Some("yes") => "The change was made.",
            _ => "It is unknown whether the change was made.",
        }),
    };
    head.headers.remove(CONTENT_TYPE);
    head.headers.remove(CONTENT_LENGTH);
    let html = page.render().unwrap_or_default();
    let mut response = with_headers(Html(html).into_response()).await;
    *response.status_mut() = head.status;
    for (name, value) in &head.headers {
        if !response.headers().contains_key(name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    let (head, body) = response.into_parts();
    Response::from_parts(head, Body::new(body))
}

fn contains(value: &HeaderValue, wanted: &str) -> bool {
    value.to_str().is_ok_and(|text| text.contains(wanted))
}
