//! The URL of a Redis Cluster, which names some of its servers.

use redis::{ConnectionInfo, IntoConnectionInfo};

use crate::error::Error;
use crate::server::connect::target::Target;

/// Reads `redis+cluster://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]`, or `rediss+cluster://` for
/// TLS: returns the servers to ask for the others. `None` for another kind of URL.
///
/// # Errors
/// `InvalidInput` if it names no host, or a database other than 0, or if `prepare` refuses it.
pub(crate) fn read(
    url: &str,
    prepare: impl Fn(ConnectionInfo) -> Result<Target, Error>,
) -> Result<Option<Vec<Target>>, Error> {
    let (scheme, rest) = if let Some(rest) = url.strip_prefix("redis+cluster://") {
        ("redis", rest)
    } else if let Some(rest) = url.strip_prefix("rediss+cluster://") {
        ("rediss", rest)
    } else {
        return Ok(None);
    };
    // A password may contain an @ that is not encoded; hosts and database cannot.
    let (user, rest) = rest.split_at(rest.rfind('@').map_or(0, |at| at + 1));
    let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
    let node = |host: &str| {
        if host.is_empty() || host.starts_with(':') {
            return Err(bad_url());
        }
        let info = format!("{scheme}://{user}{host}/{database}").into_connection_info();
        let target = prepare(info.map_err(|_| bad_url())?)?;
        check_database(target.info())?;
        Ok(target)
    };
    hosts
        .split(',')
        .map(node)
        .collect::<Result<_, _>>()
        .map(Some)
}

/// Checks that the URL names no database other than 0, because a cluster has no other.
///
/// # Errors
/// `InvalidInput` if the URL names another one.
pub(crate) fn check_database(info: &ConnectionInfo) -> Result<(), Error> {
    match info.redis_settings().db() {
        0 => Ok(()),
        database => Err(Error::invalid(format!(
            "the URL names database {database}, and the server belongs to a cluster, which has \
             only database 0: end the URL without it"
        ))),
    }
}

/// An error that does not repeat the URL, which may contain a password.
fn bad_url() -> Error {
    Error::invalid(
        "the URL cannot be read; it must look like \
         redis+cluster://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(url: &str) -> Result<Option<Vec<String>>, Error> {
        let infos = read(url, |info| Ok(info.into()))?;
        let address = |target: &Target| target.info().addr().to_string();
        Ok(infos.map(|infos| infos.iter().map(address).collect()))
    }

    #[test]
    fn cluster_urls_name_their_servers() {
        let found = nodes("redis+cluster://u:p@ss@one,two:7,[::1]:9").expect("good");
        let expected = ["one:6379", "two:7", "::1:9"].map(str::to_owned);
        assert_eq!(found, Some(expected.to_vec()));
        let infos = read("redis+cluster://u:p@ss@one/0", |info| Ok(info.into())).expect("good");
        let settings = infos.expect("a cluster")[0].info().redis_settings().clone();
        assert_eq!(settings.username(), Some("u"));
        assert_eq!(settings.password(), Some("p@ss"));
        assert_eq!(nodes("redis://one").expect("good"), None);
    }

    #[test]
    fn other_urls_are_refused_without_showing_the_password() {
        for bad in ["", ":7", "one,,two", ",one", "one/x", "one:x"] {
            let error = nodes(&format!("redis+cluster://u:secret@{bad}")).expect_err(bad);
            let text = format!("{error} {error:?}");
            assert!(
                text.contains("redis+cluster://") && !text.contains("secret"),
                "{text}"
            );
        }
        let error = nodes("redis+cluster://one/3").expect_err("a database");
        assert!(error.to_string().contains("database 3"), "{error}");
    }
}
