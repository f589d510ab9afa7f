//! The URL of a store, as maps name it.

use crate::error::Error;

/// The URL as a map names it: without user, password and settings.
///
/// # Errors
/// `InvalidInput` if it is no URL that all clients can use.
pub(crate) fn public_url(url: &str) -> Result<String, Error> {
    let [scheme, _, rest, _] = parts(url);
    let schemes = ["", "+sentinel", "+cluster"];
    let is_known = schemes.iter().any(|kind| {
        let kinds = [format!("redis{kind}://"), format!("rediss{kind}://")];
        kinds.iter().any(|one| one == scheme)
    });
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'|' | b'@' | b'#');
    if is_known && !rest.is_empty() && rest.len() <= 480 && rest.bytes().all(is_plain) {
        return Ok(format!("{scheme}{rest}"));
    }
    Err(Error::invalid(
        "the URL of a store in a map must be redis://HOST[:PORT][/DATABASE], or begin with rediss://, redis+cluster:// or \
         redis+sentinel://",
    ))
}

/// Whether other machines take this URL of a map for themselves.
pub(crate) fn is_local(url: &str) -> bool {
    let [_, _, rest, _] = parts(url);
    let hosts = rest.split('/').next().unwrap_or_default().split(',');
    let mut hosts = hosts.map(|host| host.to_ascii_lowercase());
    hosts.any(|host| {
        ["127.", "localhost", "[::1]"]
            .iter()
            .any(|own| host.starts_with(own))
    })
}

/// Scheme with `://`, user with `@`, host and path, query with `?`.
pub(super) fn parts(url: &str) -> [&str; 4] {
    let (scheme, rest) = url.split_at(url.find("://").map_or(0, |at| at + 3));
    let (rest, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
    // A password may contain an @ that is not encoded; hosts and database cannot.
    let (user, rest) = rest.split_at(rest.rfind('@').map_or(0, |at| at + 1));
    [scheme, user, rest, query]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_map_names_a_store_without_its_secrets() {
        for (url, expected) in [
            ("redis://u:p@ss@host:7/2?protocol=resp3", "redis://host:7/2"),
            ("rediss://host", "rediss://host"),
            ("redis+cluster://:p@a:1,b:2", "redis+cluster://a:1,b:2"),
            (
                "redis+sentinel://:p@a,b/main?sentinel_password=x@y",
                "redis+sentinel://a,b/main",
            ),
        ] {
            assert_eq!(public_url(url).expect(url), expected);
        }
        for url in [
            "",
            "host",
            "unix:///tmp/a",
            "http://host",
            "redis://",
            "redis://a|b",
        ] {
            let error = public_url(url).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn urls_that_mean_each_machine_itself_are_known() {
        for (url, local) in [
            ("redis://127.0.0.1:7/", true),
            ("redis+cluster://localhost:1,b", true),
            ("redis://[::1]/", true),
            ("redis://10.0.0.1/", false),
            ("redis://my-localhost/", false),
        ] {
            assert_eq!(is_local(url), local, "{url}");
        }
    }
}
