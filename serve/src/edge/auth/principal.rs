//! The caller of a request, and what the caller may do.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::edge::auth::{NamePattern, Right, Role};
use crate::edge::problem::{Code, Problem};

/// How the caller proved its identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    /// A connection from this machine, to a server without tokens.
    Loopback,
    /// An access token.
    Token,
    /// The cookie of a session, which began with a token.
    Session,
    /// The headers of a trusted proxy.
    Proxy,
    /// None of these: the service that mounts the router had to check the caller.
    Embedder,
}

impl Via {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Token => "token",
            Self::Session => "session",
            Self::Proxy => "proxy",
            Self::Embedder => "embedder",
        }
    }
}

/// The caller of a request. The front layer adds it to the request.
#[derive(Debug, Clone)]
pub(crate) struct Principal(Arc<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    name: String,
    via: Via,
    roles: Vec<Role>,
    queues: Vec<NamePattern>,
}

impl Principal {
    pub(crate) fn new(
        name: impl Into<String>,
        via: Via,
        roles: Vec<Role>,
        queues: Vec<NamePattern>,
    ) -> Self {
        Self(Arc::new(Inner {
            name: name.into(),
            via,
            roles,
            queues,
        }))
    }

    /// A caller with the role of an operator on all queues.
    pub(crate) fn operator(name: &str, via: Via) -> Self {
        Self::new(name, via, vec![Role::Operator], vec![NamePattern::all()])
    }

    /// This caller, identified by a session.
    pub(crate) fn in_session(&self) -> Self {
        Self(Arc::new(Inner {
            via: Via::Session,
            ..Inner::clone(&self.0)
        }))
    }

    /// This caller with one more role, for reads that the server does on the caller's behalf and
    /// does not show.
    pub(crate) fn with_role(&self, role: Role) -> Self {
        let mut inner = Inner::clone(&self.0);
        inner.roles.push(role);
        Self(Arc::new(inner))
    }

    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }

    /// The kind of the name, because a user of the proxy may have the name of a token.
    pub(crate) fn kind(&self) -> &'static str {
        match self.0.via {
            Via::Proxy => "user",
            Via::Loopback | Via::Token | Via::Session | Via::Embedder => "token",
        }
    }

    pub(crate) fn via(&self) -> Via {
        self.0.via
    }

    pub(crate) fn roles(&self) -> &[Role] {
        &self.0.roles
    }

    pub(crate) fn queues(&self) -> &[NamePattern] {
        &self.0.queues
    }

    pub(crate) fn has(&self, right: Right) -> bool {
        self.0.roles.iter().any(|role| role.has(right))
    }

    pub(crate) fn may_use(&self, queue: &str) -> bool {
        self.0.queues.iter().any(|pattern| pattern.matches(queue))
    }
}

impl<S: Sync> FromRequestParts<S> for Principal {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let found = parts.extensions.get::<Self>().cloned();
        found.ok_or_else(|| Problem::new(Code::Internal, "the route has no guard"))
    }
}
