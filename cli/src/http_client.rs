//! What all HTTP clients of the program have in common.

use reqwest::{Client, ClientBuilder, redirect};

/// Begins a client for `https://` URLs, or for `http://` URLs only: that needs no CA certificates, and
/// a machine may have none.
pub(crate) fn builder(is_https: bool) -> ClientBuilder {
    // The library installs a TLS provider for rediss:// only. If one is already installed, it stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .user_agent(concat!("dueq/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none());
    match is_https {
        true => builder,
        false => builder.tls_certs_only([]),
    }
}
