//! Checks what the server reads in a request head: the host, the origin and the caller.

use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use axum::extract::ConnectInfo;
use axum::http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderName, HeaderValue, Method, Request, Uri};

use crate::edge::auth::{
    Access, Gate, Hosts, LocalAddr, Right, Role, TokensFile, TrustedProxy, Via,
};
use crate::edge::auth::{bearer, origin, session};
use crate::edge::problem::check_problem;

const LOCAL: &str = "127.0.0.1:8377";
const USER: HeaderName = HeaderName::from_static("x-user");
const KEY: [u8; 32] = [7; 32];

/// A tokens file with one user, `ann`, whose token has the hash 0101...
static TOKENS: LazyLock<TokensFile> = LazyLock::new(|| {
    let hash = "01".repeat(32);
    let text = format!("[[token]]\nname = \"ann\"\nroles = [\"viewer\"]\nsha256 = \"{hash}\"\n");
    TokensFile::parse(&text).expect("a tokens file")
});

/// The gate of a server behind the proxy 10.0.0.7. Users of its group `sre` are operators.
static PROXIED: LazyLock<Gate> = LazyLock::new(|| {
    let roles = [("sre".to_owned(), Role::Operator)];
    let proxy = TrustedProxy::new(&["10.0.0.7".to_owned()], "x-user", Some("x-groups"), &roles);
    Gate::open(Access::Loopback, proxy.ok(), None).expect("a gate")
});

static OPEN: LazyLock<Gate> =
    LazyLock::new(|| Gate::open(Access::Loopback, None, None).expect("a gate"));

/// The bytes are a method, a URI and header lines. The server accepts a host, an origin or a caller
/// only if an independent reader of the headers accepts it. A refusal gives its reason.
pub fn http_head(bytes: &[u8]) {
    let Some(parts) = parts(bytes) else { return };
    check_host(&parts);
    check_origin(&parts);
    check_callers(&parts);
    check_session(&parts);
}

/// Makes a request head of the bytes, and skips lines that are not headers.
fn parts(bytes: &[u8]) -> Option<Parts> {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let mut words = lines.next()?.splitn(2, |byte| *byte == b' ');
    let method = Method::from_bytes(words.next()?).ok()?;
    let uri = Uri::try_from(words.next()?).ok()?;
    let (mut parts, ()) = Request::builder()
        .method(method)
        .uri(uri)
        .body(())
        .ok()?
        .into_parts();
    for line in lines {
        let at = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..at]);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(line[at + 1..].trim_ascii()))
        {
            parts.headers.append(name, value);
        }
    }
    parts
        .extensions
        .insert(LocalAddr(LOCAL.parse().expect("an address")));
    Some(parts)
}

fn values<'a>(parts: &'a Parts, name: &HeaderName) -> Vec<&'a [u8]> {
    parts
        .headers
        .get_all(name)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect()
}

fn check_host(parts: &Parts) {
    let public = "https://q.example.com/dueq".parse().ok();
    for (hosts, is_public) in [
        (Hosts::of_server(None, false), false),
        (Hosts::of_server(public, false), true),
    ] {
        match hosts.check(parts) {
            Ok(named) => {
                assert!(values(parts, &HOST).len() <= 1, "{parts:?}");
                let named = named.expect("a host").as_str().to_ascii_lowercase();
                let is_own = is_local(&named) || (is_public && is_public_host(&named));
                assert!(is_own, "{named}");
            }
            Err(problem) => check_problem(&problem),
        }
    }
}

/// Whether the host is loopback with the port of the server.
fn is_local(named: &str) -> bool {
    let Some((host, port)) = named.rsplit_once(':') else {
        return false;
    };
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    let ip = literal.parse::<IpAddr>().map(|ip| ip.to_canonical());
    port.trim_start_matches('0') == "8377"
        && (host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback()))
}

fn is_public_host(named: &str) -> bool {
    let port = named.strip_prefix("q.example.com");
    port.is_some_and(|port| port.is_empty() || port.trim_start_matches([':', '0']) == "443")
}

fn check_origin(parts: &Parts) {
    let host = Authority::from_static(LOCAL);
    if let Err(problem) = origin::check(parts, Some(&host), None) {
        check_problem(&problem);
        return;
    }
    if matches!(
        parts.method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE
    ) {
        return;
    }
    for origin in values(parts, &ORIGIN) {
        let text = std::str::from_utf8(origin).expect("ASCII");
        let rest = text
            .strip_prefix("http://")
            .or_else(|| text.strip_prefix("https://"));
        let (host, port) = rest.and_then(|rest| rest.rsplit_once(':')).expect("a host");
        assert!(
            host == "127.0.0.1" && port.parse() == Ok(8377_u16),
            "{text}"
        );
    }
    let site = HeaderName::from_static("sec-fetch-site");
    assert!(
        values(parts, &site)
            .iter()
            .all(|site| *site == b"same-origin")
    );
}

fn check_callers(parts: &Parts) {
    let from = |peer: &str| {
        let mut parts = parts.clone();
        let peer: SocketAddr = peer.parse().expect("an address");
        parts.extensions.insert(ConnectInfo(peer));
        parts
    };
    match PROXIED.principal(&from("10.0.0.7:9")) {
        Ok(caller) => {
            assert_eq!(values(parts, &USER), [caller.name().as_bytes()]);
            assert!(caller.via() == Via::Proxy && (1..=256).contains(&caller.name().len()));
            let groups = values(parts, &HeaderName::from_static("x-groups"));
            let is_sre = |groups: &&[u8]| {
                groups
                    .split(|byte| *byte == b',')
                    .any(|group| group.trim_ascii() == b"sre")
            };
            assert!(
                !caller.has(Right::Read) || groups.iter().any(is_sre),
                "{parts:?}"
            );
        }
        Err(problem) => check_problem(&problem),
    }
    // From any other peer address the head identifies no caller.
    assert!(PROXIED.principal(&from("10.0.0.8:9")).is_err(), "{parts:?}");
    assert!(
        PROXIED.principal(&from("127.0.0.1:9")).is_err(),
        "{parts:?}"
    );
    assert!(OPEN.principal(&from("10.0.0.7:9")).is_err(), "{parts:?}");
    if OPEN.principal(&from(LOCAL)).is_ok() {
        for name in [
            "forwarded",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-real-ip",
            "via",
        ] {
            assert!(!parts.headers.contains_key(name), "{parts:?}");
        }
    }
    match bearer(parts) {
        Ok(None) => assert!(!parts.headers.contains_key(AUTHORIZATION)),
        Ok(Some(token)) => {
            let all = values(parts, &AUTHORIZATION);
            let [one] = all[..] else {
                panic!("{all:?}");
            };
            assert!(
                one[..7].eq_ignore_ascii_case(b"bearer ")
                    && one[7..].trim_ascii() == token.as_bytes()
            );
        }
        Err(problem) => check_problem(&problem),
    }
}

/// A cookie counts as a session only if the server itself made it.
fn check_session(parts: &Parts) {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000);
    let Some(caller) = session::principal(&KEY, &TOKENS, &parts.headers, now) else {
        return;
    };
    assert_eq!(caller.0.name(), "ann");
    let cookies = values(parts, &COOKIE).join(&b';');
    let cookies = String::from_utf8_lossy(&cookies).into_owned();
    let value = cookies.split("dueq_session=").nth(1).expect("a session");
    let expires_s = value
        .split('.')
        .next()
        .and_then(|text| text.parse().ok())
        .expect("its end");
    assert!(expires_s > 2_000_000_000);
    let made = session::sealed(&KEY, &[1; 32], "ann", expires_s);
    assert!(value.starts_with(&made), "{value} is not {made}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corpus_has_a_session_that_is_accepted() {
        let made = session::sealed(&KEY, &[1; 32], "ann", 4_000_000_000);
        let inputs = dueq_testkit::corpus("http_head");
        let (_, head) = inputs
            .iter()
            .find(|(name, _)| name == "session")
            .expect("the corpus has it");
        let text = String::from_utf8_lossy(head);
        assert!(text.contains(&made), "the corpus needs {made}");
    }
}
