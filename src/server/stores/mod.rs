//! The stores of a queue: usually one, and two while the queue moves from one to the other. A store is
//! one Redis server, the service of Sentinels, or a cluster.

mod url;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use tokio::sync::Mutex;

use crate::error::{Applied, Error, ErrorKind};
use crate::protocol::partition_map::Tag;
use crate::server::connect::options::ClientOptions;
use crate::server::servers::Servers;
use url::parts;

pub(crate) use url::{is_local, public_url};

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
        if self.own.starts_with("rediss") && !scheme.starts_with("rediss") {
            let message = format!(
                "the map names {url}, a store without TLS: this client uses TLS, and sends its password \
                 nowhere else; move to a URL with rediss"
            );
            return Err(Error::new(ErrorKind::Unavailable, Applied::No, message));
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_with_tls_sends_its_password_to_no_store_without() {
        let stores = OtherStores::new("rediss://u:secret@host/", &ClientOptions::new());
        for url in ["redis://other", "redis+cluster://other:1"] {
            let error = stores.at(url).await.err().expect("refused");
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            let text = error.to_string();
            assert!(text.contains(url) && !text.contains("secret"), "{text}");
        }
    }
}
