//! The last layer: turns every failure into a problem document, including responses of axum itself
//! and panics of handlers.

use std::any::Any;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use dueq::Applied;
use tower_http::catch_panic::CatchPanicLayer;

use crate::edge::problem::{Code, MEDIA_TYPE, Problem};
use crate::edge::shown::quoted;

/// The most bytes that are read of an error text of axum. Its texts are shorter.
const MAX_TEXT_BYTES: usize = 4_096;

/// Wraps the router, so that all its failures are problem documents.
pub(crate) fn everywhere<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    router
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn(documented))
}

fn panicked(panic: Box<dyn Any + Send>) -> Response {
    tracing::error!(name: "dueq_serve.panicked", panic = ?panic_text(&*panic), "a handler panicked");
    let detail = "the handler of this request panicked; the log of the server has the reason";
    let problem = Problem::new(Code::Internal, detail).applied(Applied::Unknown);
    problem.into_response()
}

/// Turns an error response without a problem document into one.
async fn documented(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let response = next.run(request).await;
    let status = response.status();
    let is_failure = status.is_client_error() || status.is_server_error();
    if !is_failure || is_problem(response.headers()) || is_page(response.headers()) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let mut answer = Problem::new(code(status), detail(status, &path, body).await).into_response();
    *answer.status_mut() = status;
    answer.extensions_mut().extend(parts.extensions);
    if let Some(allow) = parts.headers.get(ALLOW) {
        answer.headers_mut().insert(ALLOW, allow.clone());
    }
    answer
}

fn is_problem(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes() == MEDIA_TYPE.as_bytes())
}

/// Whether the response is a dashboard page: axum itself never answers with HTML.
fn is_page(headers: &HeaderMap) -> bool {
    let media = headers.get(CONTENT_TYPE);
    media.is_some_and(|value| value.as_bytes().starts_with(b"text/html"))
}

fn code(status: StatusCode) -> Code {
    match status {
        StatusCode::NOT_FOUND => Code::NotFound,
        StatusCode::METHOD_NOT_ALLOWED => Code::MethodNotAllowed,
        StatusCode::PAYLOAD_TOO_LARGE => Code::TooLarge,
        StatusCode::UNSUPPORTED_MEDIA_TYPE => Code::UnsupportedMediaType,
        StatusCode::REQUEST_TIMEOUT => Code::BodyTimeout,
        status if status.is_client_error() => Code::BadRequest,
        _ => Code::Internal,
    }
}

async fn detail(status: StatusCode, path: &str, body: Body) -> String {
    match status {
        StatusCode::NOT_FOUND => {
            return format!(
                "nothing is at {}; /openapi.json lists all paths",
                quoted(path)
            );
        }
        StatusCode::METHOD_NOT_ALLOWED => {
            return format!(
                "{} has no such method; the header Allow lists them",
                quoted(path)
            );
        }
        _ => {}
    }
    let text = to_bytes(body, MAX_TEXT_BYTES).await.unwrap_or_default();
    match String::from_utf8_lossy(&text).trim() {
        "" => status.to_string(),
        text => text.to_owned(),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use axum::http::Request;
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn panic_of_a_handler_becomes_a_problem_document() {
        async fn broken() -> &'static str {
            panic!("on purpose")
        }
        let router = everywhere(Router::new().route("/", get(broken)));
        let request = Request::get("/").body(Body::empty()).expect("a request");
        let response = router.oneshot(request).await.expect("an answer");
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = to_bytes(response.into_body(), 10_000).await;
        let text = String::from_utf8(body.expect("a body").to_vec()).expect("text");
        assert!(text.contains("\"applied\":\"unknown\""), "{text}");
    }
}
