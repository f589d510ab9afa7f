//! Which hosts a request may name. By DNS rebinding a page of another site can reach a server on
//! loopback: the site's own name then resolves to 127.0.0.1, and the request names that host.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use axum::http::Uri;
use axum::http::header::HOST;
use axum::http::request::Parts;
use axum::http::uri::{Authority, Scheme};

use crate::edge::problem::{Code, Problem};
use crate::edge::shown::quoted;

/// The hosts that a request may name.
#[derive(Debug)]
pub(crate) struct Hosts {
    public: Option<PublicUrl>,
    local: Local,
    /// Whether the server itself terminates TLS.
    is_tls: bool,
}

/// Which local names are allowed in addition to the public URL.
#[derive(Debug, Clone, Copy)]
enum Local {
    /// The address that the connection came to, with its port. If it is loopback, `localhost` too.
    OfConnection,
    /// The names of loopback with any port: a router inside another service does not know the port.
    LoopbackAnyPort,
    /// Any host: the service that mounts the router checks it.
    Any,
}

/// The local address of a connection; the accept loop adds it to each request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalAddr(pub(crate) SocketAddr);

impl Hosts {
    /// The hosts of a [`Server`](crate::Server), which has its own accept loop.
    pub(crate) fn of_server(public: Option<PublicUrl>, is_tls: bool) -> Self {
        Self {
            public,
            local: Local::OfConnection,
            is_tls,
        }
    }

    /// The hosts of a router that another service mounts.
    pub(crate) fn of_router(public: Option<PublicUrl>, is_loopback: bool) -> Self {
        let local = if is_loopback {
            Local::LoopbackAnyPort
        } else {
            Local::Any
        };
        Self {
            public,
            local,
            is_tls: false,
        }
    }

    /// Refuses a request that names a host that is not allowed. Returns the host of the request.
    pub(crate) fn check(&self, parts: &Parts) -> Result<Option<Authority>, Problem> {
        let named = named(parts)?;
        let is_local = match self.local {
            Local::Any if self.public.is_none() => return Ok(named),
            Local::Any => false,
            Local::LoopbackAnyPort => named
                .as_ref()
                .is_some_and(|named| is_loopback(named.host())),
            Local::OfConnection => named.as_ref().is_some_and(|named| {
                let address = parts.extensions.get::<LocalAddr>();
                address.is_some_and(|address| is_address(named, address.0, self.is_tls))
            }),
        };
        let is_public = self.public.as_ref().zip(named.as_ref());
        let is_public = is_public.is_some_and(|(url, named)| is_of(url, named));
        if is_local || is_public {
            return Ok(named);
        }
        let host = named.map_or_else(|| "no host".to_owned(), |named| quoted(named.as_str()));
        let hint = match &self.public {
            Some(url) => format!("this server is {url}"),
            None => {
                "name its address, or start dueq serve with --public-url URL to allow another name"
                    .to_owned()
            }
        };
        Err(Problem::new(
            Code::WrongHost,
            format!("the request names {host}; {hint}"),
        ))
    }

    /// Whether the server itself terminates TLS.
    pub(crate) fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Whether callers reach the server by HTTPS.
    pub(crate) fn is_https(&self) -> bool {
        self.is_tls || self.public.as_ref().is_some_and(PublicUrl::is_https)
    }

    pub(crate) fn public(&self) -> Option<&PublicUrl> {
        self.public.as_ref()
    }
}

/// The only host that the request names, in its request line or its `Host` header.
fn named(parts: &Parts) -> Result<Option<Authority>, Problem> {
    let wrong = |reason: &str| Problem::new(Code::BadRequest, format!("header Host: {reason}"));
    let mut headers = parts.headers.get_all(HOST).iter();
    let header = headers.next();
    if headers.next().is_some() {
        return Err(wrong("it is there twice"));
    }
    let header: Option<Authority> = match header {
        None => None,
        Some(value) => Some(
            Authority::try_from(value.as_bytes())
                .ok()
                .filter(|host| !host.as_str().contains('@'))
                .ok_or_else(|| wrong("it is no host"))?,
        ),
    };
    match (parts.uri.authority(), header) {
        (Some(line), _) if line.as_str().contains('@') => {
            Err(wrong("the host of the request line has a user"))
        }
        (Some(line), Some(header)) if *line != header => {
            Err(wrong("it differs from the host of the request line"))
        }
        (Some(line), _) => Ok(Some(line.clone())),
        (None, header) => Ok(header),
    }
}

/// Whether the named host and port are those of the URL.
fn is_of(url: &PublicUrl, named: &Authority) -> bool {
    let default = if url.is_https() { 443 } else { 80 };
    let named_port = port(named, default);
    named.host().eq_ignore_ascii_case(url.authority().host())
        && named_port.is_some()
        && named_port == port(url.authority(), default)
}

/// The port of an authority; `None` if its text is no port.
pub(crate) fn port(authority: &Authority, default: u16) -> Option<u16> {
    let (text, host) = (authority.as_str(), authority.host());
    let (_, port) = text.rsplit_once(host)?;
    match port.strip_prefix(':') {
        // The library also accepts a sign, and treats an empty port as the default one.
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok(),
        Some(_) => None,
        None => Some(default),
    }
}

/// Whether the named host is the address of the connection. For a loopback address, every name of
/// loopback fits.
fn is_address(named: &Authority, address: SocketAddr, is_tls: bool) -> bool {
    let default = if is_tls { 443 } else { 80 };
    if port(named, default) != Some(address.port()) {
        return false;
    }
    let ip = address.ip().to_canonical();
    literal(named.host()) == Some(ip) || (ip.is_loopback() && is_loopback(named.host()))
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || literal(host).is_some_and(|ip| ip.is_loopback())
}

/// The IP address, if the host is a literal address.
fn literal(host: &str) -> Option<IpAddr> {
    let inner = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let ip: IpAddr = inner.unwrap_or(host).parse().ok()?;
    Some(ip.to_canonical())
}

/// The URL by which callers reach the server, such as `https://queues.example.com/dueq`. Requests
/// must have its scheme and host; its path is the prefix of all paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl {
    is_https: bool,
    authority: Authority,
    /// The path: empty, or with a leading slash and no trailing one.
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
    use axum::http::Request;

    fn answer(hosts: &Hosts, host: &str, local: &str) -> bool {
        let request = Request::builder().header("host", host).body(());
        let (mut parts, ()) = request.expect("a request").into_parts();
        parts
            .extensions
            .insert(LocalAddr(local.parse().expect("an address")));
        hosts.check(&parts).is_ok()
    }

    #[test]
    fn only_the_address_and_the_public_url_are_allowed() {
        let local = Hosts::of_server(None, false);
        let public = Hosts::of_server(Some("https://q.example.com".parse().expect("a URL")), false);
        for (hosts, host, address, is_allowed) in [
            (&local, "127.0.0.1:8377", "127.0.0.1:8377", true),
            (&local, "LOCALHOST:8377", "127.0.0.1:8377", true),
            (&local, "[::1]:8377", "[::1]:8377", true),
            (&local, "localhost:80", "127.0.0.1:8377", false),
            (&local, "localhost", "127.0.0.1:8377", false),
            (&local, "localhost:+8377", "127.0.0.1:8377", false),
            (&local, "localhost:", "127.0.0.1:80", false),
            (&local, "evil.example.com:8377", "127.0.0.1:8377", false),
            (&local, "127.0.0.1.nip.io:8377", "127.0.0.1:8377", false),
            (&local, "localhost.:8377", "127.0.0.1:8377", false),
            (&local, "localhost:8377", "10.0.0.5:8377", false),
            (&local, "10.0.0.5:8377", "10.0.0.5:8377", true),
            (&local, "10.0.0.6:8377", "10.0.0.5:8377", false),
            (&local, "2130706433:8377", "127.0.0.1:8377", false),
            (&local, "10.0.0.5:8377", "[::ffff:10.0.0.5]:8377", true),
            (&public, "q.example.com", "10.0.0.5:8377", true),
            (&public, "Q.EXAMPLE.com:443", "10.0.0.5:8377", true),
            (&public, "q.example.com:8377", "10.0.0.5:8377", false),
            (&public, "q.example.com:443443443", "10.0.0.5:8377", false),
            (&public, "xq.example.com", "10.0.0.5:8377", false),
            (&public, "user@q.example.com", "10.0.0.5:8377", false),
        ] {
            assert_eq!(
                answer(hosts, host, address),
                is_allowed,
                "{host} at {address}"
            );
        }
    }
}

#[cfg(test)]
mod public_url_tests {
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
