//! The responses of pages.

use askama::Template;
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse, Response};

use crate::dashboard::api::Failure;
use crate::edge::problem::{Code, Problem};

/// The response of a page, or why there is none.
pub(super) type Answer = Result<Response, Failure>;

pub(super) fn render(page: &impl Template) -> Answer {
    match page.render() {
        Ok(html) => Ok(Html(html).into_response()),
        Err(error) => Err(Problem::new(Code::Internal, format!("the page: {error}")).into()),
    }
}

/// The page that shows a refused form again: it has the status of the refusal.
pub(super) fn again(answer: Answer) -> Answer {
    answer.map(|mut response| {
        *response.status_mut() = Code::InvalidInput.status();
        response
    })
}

/// Redirects the browser to an address below the base path, with GET.
pub(super) fn see(base: &str, address: &str) -> Answer {
    let location = HeaderValue::try_from(format!("{base}{address}"));
    let location = location
        .map_err(|_| Failure::from(Problem::new(Code::Internal, "the address is no header")))?;
    Ok((StatusCode::SEE_OTHER, [(LOCATION, location)]).into_response())
}

/// The address, if it is a page of this server (a path that begins with one slash); else the first
/// page.
pub(in crate::dashboard) fn local(address: &str) -> &str {
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
    fn redirects_lead_to_own_pages_only() {
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
