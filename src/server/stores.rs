//! The stores of a queue: usually one, and two while the queue moves from one to the other. A store is
//! one Redis server, the service of Sentinels, or a cluster.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use tokio::sync::Mutex;

use crate::error::{Applied, Error, ErrorKind};
use crate::protocol::partition_map::Tag;
use crate::server::connect::options::ClientOptions;
use crate::server::servers::Servers;

/// The servers of the partitions of one map.
#[derive(Clone)]
pub(crate) struct Stores {
    pub(crate) near: Arc<Servers>,
    /// The other store, while the map names one.
    pub(crate) far: Option<Arc<Servers>>,
}

impl Stores {
    /// The servers of the store that has the partition with this tag.
    pub(crate) fn of(&self, tag: Tag) -> &Arc<Servers> {
        let far = self.far.as_ref().filter(|_| tag.is_far());
        far.unwrap_or(&self.near)
    }
}

/// How a client reaches other stores than its own: with its own user, password and certificates.
#[derive(Default)]
pub(crate) struct OtherStores {
    own: String,
    /// `USER:PASSWORD@` of the client's URL, or nothing.
    user: String,
    /// What the client's URL says about its Sentinels, with the question mark; or nothing.
    sentinels: String,
    options: ClientOptions,
    /// All queues that are in the same store share its connections.
    known: Mutex<HashMap<String, Weak<Servers>>>,
}

impl OtherStores {
    /// Those of a client that connects to this URL.
    pub(crate) fn new(url: &str, options: &ClientOptions) -> Self {
        let [scheme, user, rest, query] = parts(url);
        let sentinels = query.starts_with("?sentinel_").then_some(query);
        Self {
            own: format!("{scheme}{rest}"),
            user: user.to_owned(),
            sentinels: sentinels.unwrap_or_default().to_owned(),
            options: options.clone(),
            known: Mutex::default(),
        }
    }

    /// The URL of the client's own store, as a map names it.
    ///
    /// # Errors
    /// `InvalidInput` if clients of another store could not use it.
    pub(crate) fn own_url(&self) -> Result<String, Error> {
        public_url(&self.own)
    }

    /// Refuses a URL with another user or password than the client's own, which it would not use.
    ///
    /// # Errors
    /// `InvalidInput` if it has one.
    pub(crate) fn check_user(&self, url: &str) -> Result<(), Error> {
        let [_, user, ..] = parts(url);
        if user.is_empty() || user == self.user {
            return Ok(());
        }
        Err(Error::invalid(
            "clients use their own user and password in both stores: leave them out of the URL to which the queue moves",
        ))
    }

    /// The servers at this URL of a map.
    ///
    /// # Errors
    /// `Unavailable` if they cannot be used.
    pub(crate) async fn at(&self, url: &str) -> Result<Arc<Servers>, Error> {
        let mut known = self.known.lock().await;
        if let Some(servers) = known.get(url).and_then(Weak::upgrade) {
            return Ok(servers);
        }
        let [scheme, _, rest, _] = parts(url);
        let sentinels = match scheme.contains("+sentinel") {
            true => self.sentinels.as_str(),
            false => "",
        };
        let with_user = format!("{scheme}{}{rest}{sentinels}", self.user);
        // Boxed: keeps the futures of callers shallow, as rustc limits their depth.
        let connecting: Pin<Box<dyn Future<Output = _> + Send>> =
            Box::pin(Servers::connect(&with_user, &self.options));
        let servers = connecting.await.map_err(|error| unreachable(url, &error))?;
        let servers = Arc::new(servers);
        known.retain(|_, servers| servers.strong_count() > 0);
        known.insert(url.to_owned(), Arc::downgrade(&servers));
        Ok(servers)
    }
}

fn unreachable(url: &str, error: &Error) -> Error {
    let message = format!(
        "the queue is in two places while it moves, or has moved, and this client cannot use the other one at {url}, \
         with its own user, password and certificates: {error}"
    );
    Error::with_source(ErrorKind::Unavailable, Applied::No, message, error.clone())
}

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
fn parts(url: &str) -> [&str; 4] {
    let (scheme, rest) = url.split_at(url.find("://").map_or(0, |at| at + 3));
    let (rest, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
    // A password may contain an @ that is not encoded; hosts and database cannot.
    let (user, rest) = rest.split_at(rest.rfind('@').map_or(0, |at| at + 1));
    [scheme, user, rest, query]
}

#[cfg(test)]
mod tests {
    use super::*;

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
