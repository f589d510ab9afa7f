//! The URL of a service that Sentinels monitor.

use crate::error::Error;

/// The port of a Sentinel if the URL has none.
const PORT: u16 = 26_379;

/// The parts of a URL after its scheme.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parts<'a> {
    /// The user part of the servers with its `@`, or empty.
    pub(crate) user: &'a str,
    pub(crate) sentinel_user: String,
    /// The hosts, each with its port.
    pub(crate) places: Vec<String>,
    pub(crate) service: &'a str,
    pub(crate) database: &'a str,
}

impl<'a> Parts<'a> {
    pub(crate) fn read(rest: &'a str) -> Option<Self> {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        // A password may contain an @ that is not encoded; hosts, service and database cannot.
        let (user, rest) = rest.split_at(rest.rfind('@').map_or(0, |at| at + 1));
        let (hosts, path) = rest.split_once('/')?;
        let (service, database) = path.split_once('/').unwrap_or((path, ""));
        if service.is_empty()
            || hosts
                .split(',')
                .any(|host| host.is_empty() || host.starts_with(':'))
        {
            return None;
        }
        let places = hosts.split(',').map(|host| {
            if has_port(host) {
                host.to_owned()
            } else {
                format!("{host}:{PORT}")
            }
        });
        let (mut name, mut password) = ("", None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=')? {
                ("sentinel_user", value) => name = value,
                ("sentinel_password", value) => password = Some(value),
                _ => return None,
            }
        }
        let sentinel_user =
            password.map_or_else(String::new, |password| format!("{name}:{password}@"));
        Some(Self {
            user,
            sentinel_user,
            places: places.collect(),
            service,
            database,
        })
    }
}

/// Whether the host has a port. An IPv6 address has colons of its own, within brackets.
fn has_port(host: &str) -> bool {
    host.rsplit_once(':')
        .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// An error that does not repeat the URL, which may contain a password.
pub(crate) fn bad_url() -> Error {
    Error::invalid(
        "the URL cannot be read; it must look like \
         redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/SERVICE[/DATABASE][?sentinel_user=USER&sentinel_password=PASSWORD]",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentinel_urls_are_read_with_all_their_parts() {
        let parts = Parts::read(
            "u:p@ss@one,two:7,[::1],[::1]:9/orders/3?sentinel_user=s&sentinel_password=q",
        )
        .expect("good");
        assert_eq!(parts.user, "u:p@ss@");
        assert_eq!(parts.sentinel_user, "s:q@");
        assert_eq!(
            parts.places,
            ["one:26379", "two:7", "[::1]:26379", "[::1]:9"]
        );
        assert_eq!((parts.service, parts.database), ("orders", "3"));
        let parts = Parts::read("one/orders").expect("good");
        assert_eq!(
            (parts.user, parts.sentinel_user.as_str(), parts.database),
            ("", "", "")
        );
        for bad in [
            "",
            "one",
            "one/",
            "/orders",
            ":7/orders",
            "one,,two/orders",
            ",/orders",
            "one/orders?password=x",
            "one/orders?x",
        ] {
            assert_eq!(Parts::read(bad), None, "{bad:?}");
        }
    }
}
