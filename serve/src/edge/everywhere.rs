//! The last layer: whatever fails is answered by a problem document, also what axum answers itself
//! and a handler that panics.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use dueq::Applied;

use crate::edge::problem::{Code, MEDIA_TYPE, Problem};
use crate::edge::shown::quoted;

/// How much of a text of axum's is read. Its texts are shorter.
const MAX_TEXT_BYTES: usize = 4_096;

/// Turns every error into a problem document.
pub(crate) async fn everywhere(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let response = match caught(next.run(request)).await {
        Ok(response) => response,
        Err(panic) => {
            tracing::error!(name: "dueq_serve.panicked", panic = ?panic_text(&*panic), "a handler panicked");
            let detail =
                "the handler of this request panicked; the log of the server has the reason";
            let problem = Problem::new(Code::Internal, detail).applied(Applied::Unknown);
            return problem.into_response();
        }
    };
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

/// Whether it is a page of the dashboard: axum itself answers no HTML.
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

/// The output of the future, or its panic.
async fn caught<T>(future: impl Future<Output = T>) -> Result<T, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        // The future is dropped after a panic, so nobody sees what the panic left half done.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
}
