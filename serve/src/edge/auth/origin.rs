//! Detects requests that a page of another site made a browser send (CSRF). A client other than a
//! browser sends neither of the two headers.

use axum::http::header::ORIGIN;
use axum::http::request::Parts;
use axum::http::uri::Authority;

use crate::edge::auth::PublicUrl;
use crate::edge::auth::host::port;
use crate::edge::auth::role::is_safe;
use crate::edge::problem::{Code, Problem};
use crate::edge::shown::quoted;

const SITE: &str = "sec-fetch-site";

/// Refuses a change that comes from a page of another site. Browsers send `Sec-Fetch-Site` only to
/// trustworthy addresses, so `Origin` is checked as well.
pub(crate) fn check(
    parts: &Parts,
    host: Option<&Authority>,
    public: Option<&PublicUrl>,
) -> Result<(), Problem> {
    if is_safe(&parts.method) {
        return Ok(());
    }
    let refused = |name: &str, value: &[u8]| {
        let value = quoted(&String::from_utf8_lossy(value));
        let detail = format!("{name}: {value}; only pages of this server may change anything");
        Err(Problem::new(Code::CrossOrigin, detail))
    };
    for value in parts.headers.get_all(SITE) {
        if value.as_bytes() != b"same-origin" {
            return refused("Sec-Fetch-Site", value.as_bytes());
        }
    }
    for origin in parts.headers.get_all(ORIGIN) {
        let is_own = origin
            .to_str()
            .is_ok_and(|origin| is_own(origin, host, public));
        if !is_own {
            return refused("Origin", origin.as_bytes());
        }
    }
    Ok(())
}

/// Whether the request changes nothing, or has a header that names its origin.
pub(crate) fn is_known(parts: &Parts) -> bool {
    let headers = &parts.headers;
    is_safe(&parts.method) || headers.contains_key(ORIGIN) || headers.contains_key(SITE)
}

/// Whether the origin is this server: that of its public URL, or the host that the request names.
fn is_own(origin: &str, host: Option<&Authority>, public: Option<&PublicUrl>) -> bool {
    let (is_https, authority) = match (
        origin.strip_prefix("https://"),
        origin.strip_prefix("http://"),
    ) {
        (Some(rest), _) => (true, rest),
        (_, Some(rest)) => (false, rest),
        _ => return false,
    };
    let Ok(authority) = Authority::try_from(authority) else {
        return false;
    };
    let is_same = |other: &Authority| {
        let default = if is_https { 443 } else { 80 };
        let own_port = port(&authority, default);
        authority.host().eq_ignore_ascii_case(other.host())
            && own_port.is_some()
            && own_port == port(other, default)
    };
    if public.is_some_and(|url| url.is_https() == is_https && is_same(url.authority())) {
        return true;
    }
    // Behind a proxy with TLS the request names the public URL's host; then the origin must be the
    // public URL's too.
    let is_public_host = host
        .zip(public)
        .is_some_and(|(host, url)| host.host().eq_ignore_ascii_case(url.authority().host()));
    !is_public_host && host.is_some_and(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    #[test]
    fn request_of_another_site_changes_nothing() {
        let public: PublicUrl = "https://q.example.com".parse().expect("a URL");
        for (method, host, public, headers, is_allowed) in [
            ("PUT", "127.0.0.1:1", None, &[][..], true),
            (
                "PUT",
                "127.0.0.1:1",
                None,
                &[("origin", "http://127.0.0.1:1")],
                true,
            ),
            (
                "PUT",
                "127.0.0.1:1",
                None,
                &[("origin", "http://127.0.0.1:2")],
                false,
            ),
            ("PUT", "127.0.0.1:1", None, &[("origin", "null")], false),
            ("PUT", "127.0.0.1:1", None, &[("origin", "")], false),
            (
                "PUT",
                "127.0.0.1:1",
                None,
                &[("origin", "http://127.0.0.1:1.evil.com")],
                false,
            ),
            (
                "PUT",
                "127.0.0.1:1",
                None,
                &[
                    ("origin", "http://127.0.0.1:1"),
                    ("origin", "http://evil.com"),
                ],
                false,
            ),
            (
                "DELETE",
                "127.0.0.1:1",
                None,
                &[("sec-fetch-site", "cross-site")],
                false,
            ),
            (
                "DELETE",
                "127.0.0.1:1",
                None,
                &[("sec-fetch-site", "same-site")],
                false,
            ),
            (
                "DELETE",
                "127.0.0.1:1",
                None,
                &[("sec-fetch-site", "none")],
                false,
            ),
            (
                "DELETE",
                "127.0.0.1:1",
                None,
                &[("sec-fetch-site", "same-origin")],
                true,
            ),
            (
                "DELETE",
                "127.0.0.1:1",
                None,
                &[("sec-fetch-site", "same-origin"), ("origin", "null")],
                false,
            ),
            (
                "GET",
                "127.0.0.1:1",
                None,
                &[("sec-fetch-site", "cross-site")],
                true,
            ),
            (
                "OPTIONS",
                "127.0.0.1:1",
                None,
                &[("origin", "http://evil.com")],
                false,
            ),
            (
                "PUT",
                "q.example.com",
                Some(&public),
                &[("origin", "https://q.example.com")],
                true,
            ),
            (
                "PUT",
                "q.example.com",
                Some(&public),
                &[("origin", "http://q.example.com")],
                false,
            ),
            (
                "PUT",
                "q.example.com",
                Some(&public),
                &[("origin", "https://x.example.com")],
                false,
            ),
        ] {
            let mut request = Request::builder().method(method);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let (parts, ()) = request.body(()).expect("a request").into_parts();
            let host = Authority::from_static(host);
            let result = check(&parts, Some(&host), public);
            assert_eq!(result.is_ok(), is_allowed, "{method} {headers:?}");
        }
    }
}
