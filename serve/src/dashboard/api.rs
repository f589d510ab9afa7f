//! Calls routes of `/v1` inside this process.

use std::net::SocketAddr;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::edge::audit::ByPage;
use crate::edge::auth::{Principal, Role};
use crate::edge::problem::{Code, MEDIA_TYPE, Problem};

/// The most bytes of a response that a page reads.
const MAX_BYTES: usize = 32 << 20;

/// The routes of `/v1` behind their guards, without the layer that finds out who calls.
#[derive(Clone)]
pub(super) struct Routes(pub(super) Router);

/// Calls `/v1` on behalf of the caller who asked for the page.
#[derive(Clone)]
pub(super) struct Api {
    routes: Router,
    principal: Principal,
    /// The address of the browser, for the audit log.
    peer: Option<ConnectInfo<SocketAddr>>,
}

/// A call that failed. Its problem document becomes the answer to the request.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    status: StatusCode,
    document: Value,
}

impl Api {
    pub(super) fn new(
        routes: Routes,
        principal: Principal,
        peer: Option<ConnectInfo<SocketAddr>>,
    ) -> Self {
        Self {
            routes: routes.0,
            principal,
            peer,
        }
    }

    /// Reads a path such as `/v1/queues`, and decodes the JSON.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.call(Method::GET, path, None).await
    }

    /// Sends a call that changes something. An answer without a body reads as null.
    pub(super) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, Failure> {
        self.call(method, path, body).await
    }

    /// Reads a payload.
    pub(super) async fn bytes(&self, path: &str) -> Result<Bytes, Failure> {
        self.answer(Method::GET, path, None).await
    }

    /// A copy of this client with the right to read payloads: for data that the server keeps and
    /// does not show.
    pub(super) fn with_payloads(&self) -> Self {
        Self {
            routes: self.routes.clone(),
            principal: self.principal.with_role(Role::Consumer),
            peer: self.peer,
        }
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, Failure> {
        let bytes = self.answer(method, path, body).await?;
        let text: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
        serde_json::from_slice(text).map_err(|error| internal(path, &error))
    }

    async fn answer(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Bytes, Failure> {
        let mut request = Request::builder().method(method).uri(path);
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let mut request = request.body(body).map_err(|error| internal(path, &error))?;
        let extensions = request.extensions_mut();
        extensions.insert(self.principal.clone());
        extensions.insert(ByPage);
        if let Some(peer) = self.peer {
            extensions.insert(peer);
        }
        let Ok(response) = self.routes.clone().oneshot(request).await;
        let status = response.status();
        let bytes = to_bytes(response.into_body(), MAX_BYTES).await;
        let bytes = bytes.map_err(|error| internal(path, &error))?;
        if status.is_success() {
            return Ok(bytes);
        }
        let document = serde_json::from_slice(&bytes).unwrap_or_default();
        Err(Failure { status, document })
    }
}

fn internal(path: &str, error: &dyn std::fmt::Display) -> Failure {
    let problem = Problem::new(Code::Internal, format!("{path}: {error}"));
    Failure {
        status: Code::Internal.status(),
        document: serde_json::from_slice(&problem.to_json()).unwrap_or_default(),
    }
}

impl Failure {
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// The word of the problem, such as `no_such_queue`.
    pub(super) fn code(&self) -> &str {
        self.document["code"].as_str().unwrap_or_default()
    }

    /// Whether the call was refused because the caller lacks the right.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(
            self.status,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
        )
    }

    /// Whether the server or Redis failed. False if only this one call was wrong.
    pub(super) fn is_of_server(&self) -> bool {
        self.status.is_server_error()
    }

    /// What failed and why.
    pub(super) fn detail(&self) -> &str {
        self.document["detail"].as_str().unwrap_or_default()
    }

    /// The whole problem document.
    pub(super) fn document(&self) -> &Value {
        &self.document
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let document = match self.document {
            Value::Null => json!({ "status": self.status.as_u16() }),
            document => document,
        };
        let headers = [(CONTENT_TYPE, MEDIA_TYPE)];
        (self.status, headers, document.to_string()).into_response()
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self {
            status: problem.code.status(),
            document: serde_json::from_slice(&problem.to_json()).unwrap_or_default(),
        }
    }
}
