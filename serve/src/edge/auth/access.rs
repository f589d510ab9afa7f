//! How callers prove their identity, by the configuration.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::SystemTime;

use axum::extract::ConnectInfo;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;

use crate::edge::Error;
use crate::edge::auth::session::EndedSessions;
use crate::edge::auth::{Principal, TrustedProxy, Via, Watched, session};
use crate::edge::problem::{Code, Problem};

/// Who has access, in addition to the users that a [`TrustedProxy`] names.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Every caller on this machine has access, as an operator. If a trusted proxy is set, nobody has
    /// access this way.
    Loopback,
    /// Callers with a token of this file have access.
    Tokens(PathBuf),
    /// Everybody has access, as an operator: for a router inside a service that has checked the
    /// caller itself. [`Server`](crate::Server) refuses to start with it.
    Everybody,
}

/// Headers that proxies add. A server without tokens refuses requests with one: otherwise every
/// caller behind a local proxy would count as a local caller. A proxy that adds none of these
/// headers is not detected.
const FORWARDED: [&str; 9] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-port",
    "cf-connecting-ip",
    "true-client-ip",
    "x-real-ip",
    "via",
];

/// Identifies the caller of a request.
pub(crate) struct Gate {
    tokens: Option<Watched>,
    proxy: Option<TrustedProxy>,
    access: Access,
    /// The signing key of the key file. It takes precedence over that of the tokens file.
    key: Option<[u8; 32]>,
    /// The signing key if no file has one; it is lost when this process ends.
    random_key: [u8; 32],
    ended: EndedSessions,
}

impl Gate {
    pub(crate) fn open(
        access: Access,
        proxy: Option<TrustedProxy>,
        key: Option<[u8; 32]>,
    ) -> Result<Self, Error> {
        let mut random_key = [0; 32];
        getrandom::fill(&mut random_key)
            .map_err(|error| Error::Config(format!("no random bytes: {error}")))?;
        let tokens = match &access {
            Access::Tokens(path) => Some(Watched::open(path).map_err(Error::Config)?),
            Access::Loopback | Access::Everybody => None,
        };
        Ok(Self {
            tokens,
            proxy,
            access,
            key,
            random_key,
            ended: EndedSessions::default(),
        })
    }

    /// The key that signs sessions and claims.
    pub(crate) fn signing_key(&self) -> [u8; 32] {
        let of_file = || self.tokens.as_ref()?.current().signing_key();
        self.key.or_else(of_file).unwrap_or(self.random_key)
    }

    /// Begins a session of the caller with this token, and returns the value of the cookie.
    pub(crate) fn begin_session(&self, token: &str) -> Result<String, Problem> {
        let Some(tokens) = &self.tokens else {
            let detail = "the server has no tokens, so there are no sessions";
            return Err(Problem::new(Code::InvalidInput, detail));
        };
        let file = tokens.current();
        let value = session::begin(&self.signing_key(), &file, token, SystemTime::now());
        value.ok_or_else(|| self.unauthenticated(true))
    }

    /// Ends the session of a request, if it has one: also for others who copied the cookie.
    pub(crate) fn end_session(&self, headers: &HeaderMap) {
        if let Some((_, session)) = self.session(headers) {
            self.ended.add(&session, SystemTime::now());
        }
    }

    /// The session that the request's cookie names, whether it has ended or not.
    fn session(&self, headers: &HeaderMap) -> Option<(Principal, session::Signed)> {
        let file = self.tokens.as_ref()?.current();
        session::principal(&self.signing_key(), &file, headers, SystemTime::now())
    }

    pub(crate) fn tokens(&self) -> Option<&Watched> {
        self.tokens.as_ref()
    }

    /// Identifies the caller of a request.
    pub(crate) fn principal(&self, parts: &Parts) -> Result<Principal, Problem> {
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        let peer = peer.map(|peer| peer.0.ip());
        if let Some(proxy) = &self.proxy
            && peer.is_some_and(|peer| proxy.trusts(peer))
            && let Some(principal) = proxy.principal(&parts.headers)?
        {
            return Ok(principal);
        }
        if let Some(tokens) = &self.tokens {
            let token = bearer(parts)?;
            let found = match token {
                Some(token) => tokens.current().principal(token),
                None => {
                    let session = self.session(&parts.headers);
                    let live = session.filter(|(_, session)| !self.ended.contains(session));
                    live.map(|(principal, _)| principal)
                }
            };
            return found.ok_or_else(|| self.unauthenticated(token.is_some()));
        }
        match self.access {
            Access::Everybody => Ok(Principal::operator("everybody", Via::Embedder)),
            Access::Loopback if self.proxy.is_none() => {
                let is_local = peer.is_some_and(|peer| peer.to_canonical().is_loopback());
                if !is_local {
                    return Err(self.unauthenticated(false));
                }
                if let Some(header) = FORWARDED
                    .iter()
                    .find(|name| parts.headers.contains_key(**name))
                {
                    let detail = format!(
                        "the header {header} says that a proxy forwarded the request, and without tokens \
                         everybody behind it would be an operator; start dueq serve with --tokens FILE or \
                         --trust-proxy CIDR"
                    );
                    return Err(Problem::new(Code::Proxied, detail));
                }
                Ok(Principal::operator("loopback", Via::Loopback))
            }
            _ => Err(self.unauthenticated(false)),
        }
    }

    fn unauthenticated(&self, has_token: bool) -> Problem {
        let detail = match (&self.access, has_token) {
            (Access::Tokens(_), true) => "the token is unknown or was removed",
            (Access::Tokens(_), false) => "send a token: Authorization: Bearer TOKEN",
            _ => "only requests of the trusted proxy that name a user have access",
        };
        Problem::new(Code::Unauthenticated, detail)
    }
}

/// The access token in the header `Authorization`. A malformed header is refused, not ignored.
pub(crate) fn bearer(parts: &Parts) -> Result<Option<&str>, Problem> {
    let wrong = |reason: &str| {
        let detail = format!("header Authorization: {reason}; write Authorization: Bearer TOKEN");
        Err(Problem::new(Code::Unauthenticated, detail))
    };
    let mut headers = parts.headers.get_all(AUTHORIZATION).iter();
    let Some(value) = headers.next() else {
        return Ok(None);
    };
    if headers.next().is_some() {
        return wrong("it is there twice");
    }
    let Ok(text) = value.to_str() else {
        return wrong("it has other characters than ASCII");
    };
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
            Ok(Some(token.trim_matches(' ')))
        }
        _ => wrong("it is no bearer token"),
    }
}
