//! Tokens in URLs are refused: URLs are in the logs of proxies and in histories of browsers.

use axum::http::Uri;

use crate::auth::contains_token;
use crate::problem::{Code, Problem};

/// Names of parameters by which other APIs take tokens.
const NAMES: [&str; 6] = [
    "token",
    "access_token",
    "api_key",
    "apikey",
    "authorization",
    "bearer",
];

/// Refuses a URL with a token, or with a parameter for one. The text quotes nothing of it.
pub(crate) fn check(uri: &Uri) -> Result<(), Problem> {
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
            assert_eq!(check(&uri).is_ok(), is_allowed, "{url}");
        }
    }
}
