//! The pages, a file each, and the routes to them.

mod dead;
mod each;
mod login;
mod message;
mod messages;
mod operations;
mod pages;
mod queue;
mod queues;
mod search;
mod server;
mod workers;

use askama::Template;
use axum::Router;
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse, Response};

use crate::app::Shared;
use crate::dashboard::api::Failure;
use crate::problem::{Code, Problem};

/// What a page answers.
type Answer = Result<Response, Failure>;

pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .merge(queues::routes())
        .merge(queue::routes())
        .merge(messages::routes())
        .merge(message::routes())
        .merge(dead::routes())
        .merge(search::routes())
        .merge(operations::routes())
        .merge(workers::routes())
        .merge(server::routes())
        .merge(login::preferences())
}

/// The pages without a caller.
pub(super) fn open() -> Router<Shared> {
    login::routes()
}

fn render(page: &impl Template) -> Answer {
    match page.render() {
        Ok(html) => Ok(Html(html).into_response()),
        Err(error) => Err(Problem::new(Code::Internal, format!("the page: {error}")).into()),
    }
}

/// Leads the browser to an address below the base, with GET.
fn see(base: &str, address: &str) -> Answer {
    let location = HeaderValue::try_from(format!("{base}{address}"));
    let location = location
        .map_err(|_| Failure::from(Problem::new(Code::Internal, "the address is no header")))?;
    Ok((StatusCode::SEE_OTHER, [(LOCATION, location)]).into_response())
}

/// The address as one of this server's pages: a path that begins with one slash.
pub(super) fn local(address: &str) -> &str {
    let is_local = address.starts_with('/')
        && !address.starts_with("//")
        && address
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_local { address } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_pages_are_led_to() {
        for (address, expected) in [
            ("/queues/a?did=b", "/queues/a?did=b"),
            ("//evil.com", "/"),
            ("/\\evil.com", "/"),
            ("https://evil.com", "/"),
            ("/a\r\nb", "/"),
            ("javascript:alert(1)", "/"),
            ("", "/"),
        ] {
            assert_eq!(local(address), expected, "{address}");
        }
    }
}
