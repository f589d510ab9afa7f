//! Identity from a trusted proxy.

use anyhow::Result;
use dueq_serve::{Role, TrustedProxy};

use crate::assert_refused;
use crate::instance::Instance;

async fn behind(network: &str) -> Result<Instance> {
    let networks = [network.to_owned()];
    let roles = [
        ("sre".to_owned(), Role::Operator),
        ("dev".to_owned(), Role::Viewer),
    ];
    Instance::start(|config, _| {
        let proxy = TrustedProxy::new(&networks, "x-user", Some("x-groups"), &roles);
        config.proxy = Some(proxy.map_err(anyhow::Error::msg)?);
        Ok(Vec::new())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_of_a_trusted_proxy_give_roles() -> Result<()> {
    let instance = behind("127.0.0.0/8").await?;
    instance.queue("orders").await?;
    for (user, groups, method, status) in [
        ("X-User: ann", "X-Groups: dev, sre", "PUT", 200),
        ("X-User: bob", "X-Groups: dev", "GET", 200),
        ("X-User: bob", "X-Groups: dev", "PUT", 403),
        ("X-User: eve", "X-Groups: sre2", "GET", 403),
        ("X-User: eve", "X-None: 1", "GET", 403),
        ("X-User:", "X-Groups: sre", "GET", 401),
        ("X-None: 1", "X-Groups: sre", "GET", 401),
    ] {
        let line = match method {
            "PUT" => "PUT /v1/queues/orders/pause",
            _ => "GET /v1/queues/orders",
        };
        let answer = instance.ask(line, &[user, groups], "").await?;
        assert_eq!(
            answer.status, status,
            "{user} {groups} {method}: {answer:?}"
        );
    }
    let lines = instance.audit()?;
    assert_eq!(
        (lines[0]["principal"].as_str(), lines[0]["via"].as_str()),
        (Some("ann"), Some("proxy"))
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_of_an_untrusted_peer_are_ignored() -> Result<()> {
    let instance = behind("10.0.0.0/8").await?;
    instance.queue("orders").await?;
    let headers = ["X-User: ann", "X-Groups: sre", "X-Forwarded-For: 10.0.0.1"];
    let answer = instance.ask("GET /v1/queues/orders", &headers, "").await?;
    assert_refused!(answer, 401, "unauthenticated");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_identity_header_is_refused() -> Result<()> {
    let instance = behind("127.0.0.1").await?;
    for headers in [
        ["X-User: bob", "x-user: ann", "X-Groups: dev"],
        ["X-User: bob", "X-Groups: dev", "X-GROUPS: sre"],
    ] {
        assert_refused!(
            instance.ask("GET /v1/queues", &headers, "").await?,
            400,
            "bad_request"
        );
    }
    // A server that maps `_` to `-` would take these for the identity headers.
    let headers = ["X_User: ann", "X_Groups: sre"];
    assert_refused!(
        instance.ask("GET /v1/queues", &headers, "").await?,
        401,
        "unauthenticated"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn user_name_from_a_proxy_cannot_control_a_terminal() -> Result<()> {
    let instance = behind("127.0.0.1").await?;
    instance.queue("orders").await?;
    let headers = ["X-User: \u{9b}31m\u{202e}ann", "X-Groups: sre"];
    let answer = instance
        .ask("PUT /v1/queues/orders/pause", &headers, "")
        .await?;
    assert_eq!(answer.status, 200, "{answer:?}");
    let text = std::fs::read_to_string(instance.folder.join("audit.ndjson"))?;
    assert!(!text.contains(['\u{9b}', '\u{202e}']), "{text:?}");
    assert_eq!(instance.audit()?[0]["principal"], "\u{9b}31m\u{202e}ann");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn loopback_server_refuses_forwarded_requests() -> Result<()> {
    let instance = Instance::open().await?;
    for header in [
        "X-Forwarded-For: 1.2.3.4",
        "Forwarded: for=1.2.3.4",
        "Via: 1.1 x",
        "X-Real-IP: 1.2.3.4",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Port: 443",
        "CF-Connecting-IP: 1.2.3.4",
        "True-Client-IP: 1.2.3.4",
    ] {
        assert_refused!(
            instance.ask("GET /v1/queues", &[header], "").await?,
            403,
            "proxied"
        );
    }
    Ok(())
}
