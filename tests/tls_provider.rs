//! Tests which rustls provider a process has after connecting. A test program of its own, because a
//! process has only one provider.
#![cfg(feature = "tls")]

use std::net::TcpListener;

use dueq::{Client, ErrorKind};
use rustls::crypto::{CryptoProvider, ring};

/// redis-rs chooses no provider for its connections, so the first `rediss://` URL installs one if
/// the process has none.
#[tokio::test]
async fn only_a_tls_url_installs_a_provider_if_there_is_none() {
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a port")
        .port();
    let connect = async |scheme: &str| {
        let error = Client::connect(&format!("{scheme}://127.0.0.1:{port}/"))
            .await
            .expect_err("nothing listens there");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    };
    connect("redis").await;
    assert!(
        CryptoProvider::get_default().is_none(),
        "a URL without TLS installed a provider for the whole process"
    );
    // A program may install another provider, here with a single cipher suite, which then stays.
    let mut chosen = ring::default_provider();
    chosen.cipher_suites.truncate(1);
    chosen.install_default().expect("none is installed yet");
    connect("rediss").await;
    let installed = CryptoProvider::get_default().expect("the chosen one");
    assert_eq!(
        installed.cipher_suites.len(),
        1,
        "the provider of the program was replaced"
    );
}
