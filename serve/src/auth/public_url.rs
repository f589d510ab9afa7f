//! The URL under which callers reach the server.

use std::fmt;
use std::str::FromStr;

use axum::http::Uri;
use axum::http::uri::{Authority, Scheme};

/// The URL that callers use, such as `https://queues.example.com/dueq`: its scheme and host are
/// those of allowed requests, and its path is the prefix of all paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl {
    is_https: bool,
    authority: Authority,
    /// Empty, or with a slash at the beginning and none at the end.
    path: String,
}

impl PublicUrl {
    pub(crate) fn is_https(&self) -> bool {
        self.is_https
    }

    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}

impl FromStr for PublicUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |reason: &str| {
            format!("{text:?} is no public URL: {reason}; write https://HOST[:PORT][/PATH]")
        };
        let uri: Uri = text.parse().map_err(|_| wrong("it cannot be read"))?;
        let parts = uri.into_parts();
        let is_https = match parts.scheme {
            Some(scheme) if scheme == Scheme::HTTPS => true,
            Some(scheme) if scheme == Scheme::HTTP => false,
            _ => return Err(wrong("it begins with neither https:// nor http://")),
        };
        let authority = parts.authority.ok_or_else(|| wrong("it has no host"))?;
        if authority.host().is_empty() || authority.as_str().contains('@') {
            return Err(wrong("it has no host, or a user"));
        }
        let path = parts
            .path_and_query
            .ok_or_else(|| wrong("it cannot be read"))?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
        let path_text = path.path().trim_end_matches('/');
        if path.query().is_some() || !path_text.chars().all(is_plain) || path_text.contains("//") {
            return Err(wrong(
                "its path has other characters than letters, digits and / - _ .",
            ));
        }
        Ok(Self {
            is_https,
            authority,
            path: path_text.to_owned(),
        })
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_url_keeps_host_and_path() {
        let url: PublicUrl = "https://Queues.example.com:8443/ops/dueq/"
            .parse()
            .expect("a URL");
        assert_eq!((url.is_https(), url.path()), (true, "/ops/dueq"));
        assert_eq!(url.to_string(), "https://Queues.example.com:8443/ops/dueq");
        let url: PublicUrl = "http://localhost".parse().expect("a URL");
        assert_eq!(url.path(), "");
        for wrong in [
            "queues",
            "ftp://x",
            "https://",
            "https://a@b/",
            "https://a/?b",
            "https://a/{b}",
            "https://a//b",
        ] {
            assert!(wrong.parse::<PublicUrl>().is_err(), "{wrong}");
        }
    }
}
