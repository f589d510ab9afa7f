//! What every page reads from its request: the caller, the base path, the zone, the parameters, the
//! fields of a form.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{ConnectInfo, FromRequestParts, OriginalUri};
use axum::http::request::Parts;

use crate::dashboard::api::{Api, Failure, Routes};
use crate::dashboard::findings;
use crate::dashboard::form::{Fields, Form};
use crate::dashboard::frame::{Caller, Frame, Here, Preferences};
use crate::dashboard::show::{Clock, Zone};
use crate::dashboard::undo::Undo;
use crate::edge::auth::{Principal, Right};
use crate::edge::path::QueueName;
use crate::edge::problem::{Code, Problem};
use crate::wire::about::Finding;
use crate::work::Shared;

/// A request for a page.
pub(super) struct Page {
    /// Calls `/v1` on behalf of the page's caller.
    pub(super) api: Api,
    /// The recently cancelled messages.
    pub(super) undo: Arc<Undo>,
    /// The path that stands before all addresses: empty, or `/ops/dueq`.
    pub(super) base: String,
    /// The queue that the path names.
    pub(super) queue: Option<QueueName>,
    /// Formats times.
    pub(super) clock: Clock,
    /// What the fields of the page's forms show.
    pub(super) fields: Fields,
    /// Path and parameters, below the base path.
    address: String,
    params: Vec<(String, String)>,
    preferences: Preferences,
    caller: Caller,
    redis: Option<String>,
    /// The doctor's findings about the server.
    findings: Vec<Finding>,
}

/// The longest time that a page waits for the doctor's findings about the server.
const PATIENCE: Duration = Duration::from_millis(50);

impl FromRequestParts<Shared> for Page {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, Problem> {
        let missing = || Problem::new(Code::Internal, "the page is not behind its layers");
        let principal = parts.extensions.get::<Principal>().cloned();
        let principal = principal.ok_or_else(missing)?;
        let Extension(routes) = Extension::<Routes>::from_request_parts(parts, app)
            .await
            .map_err(|_| missing())?;
        let Extension(undo) = Extension::<Arc<Undo>>::from_request_parts(parts, app)
            .await
            .map_err(|_| missing())?;
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>().copied();
        let query = parts.uri.query().unwrap_or_default();
        let params: Vec<_> = form_urlencoded::parse(query.as_bytes())
            .into_owned()
            .collect();
        let preferences = Preferences::of(&parts.headers);
        let chosen = params.iter().find(|(name, _)| name == "tz");
        let zone = match chosen {
            Some((_, name)) => Zone::named(name)?,
            None => preferences.zone(),
        };
        app.poller.look([]);
        let findings = match principal.has(Right::Read) {
            true => app.doctor.glance(PATIENCE).await,
            false => None,
        };
        Ok(Self {
            findings: findings.map_or_else(Vec::new, |checkup| findings::of(&checkup)),
            base: base(parts),
            queue: crate::edge::path::queue_in(parts)?,
            clock: Clock::now(zone),
            fields: Fields::default(),
            address: parts
                .uri
                .path_and_query()
                .map_or_else(|| "/".to_owned(), ToString::to_string),
            params,
            preferences,
            caller: Caller::new(&principal, app),
            redis: redis(app),
            undo,
            api: Api::new(routes, principal, peer),
        })
    }
}

/// The path before the routes: that of `--public-url`, or the prefix under which another service
/// mounts the router.
pub(super) fn base(parts: &Parts) -> String {
    let whole = parts.extensions.get::<OriginalUri>();
    let whole = whole.map_or_else(|| parts.uri.path(), |uri| uri.0.path());
    // The mounted path without a trailing slash arrives here as `/`.
    let alone = (parts.uri.path() == "/").then_some(whole);
    let base = whole.strip_suffix(parts.uri.path()).or(alone);
    base.unwrap_or_default().to_owned()
}

/// If Redis has not answered for longer than this, pages say so.
const STALE_MS: u128 = 10_000;

/// Why the numbers may be old; `None` if they are current.
fn redis(app: &Shared) -> Option<String> {
    let snapshot = app.poller.snapshot();
    let age = snapshot.age().map(|age| age.as_millis());
    let seconds = age.unwrap_or_default() / 1_000;
    match (snapshot.failure(), age) {
        (Some(failure), None) => Some(format!("Redis does not answer: {failure}")),
        (Some(failure), Some(_)) => Some(format!(
            "Redis does not answer; counts are {seconds} s old: {failure}"
        )),
        // After a pause the counts are old until the poller has asked every queue again.
        (None, Some(age)) if age > STALE_MS && !snapshot.is_catching_up() => {
            Some(format!("The counts are {seconds} s old"))
        }
        _ => None,
    }
}

impl Page {
    /// The value of this parameter.
    pub(super) fn param(&self, name: &str) -> Option<&str> {
        let found = self.params.iter().find(|(param, _)| param == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The name of the queue in the path.
    pub(super) fn queue_name(&self) -> Result<&str, Problem> {
        let name = self.queue.as_ref().map(QueueName::as_str);
        name.ok_or_else(|| Problem::new(Code::Internal, "the page has no queue in its path"))
    }

    /// The page that shows a refused form again. If no field of the form is the reason, the failure.
    pub(super) fn refused(mut self, form: &Form, failure: Failure) -> Result<Self, Failure> {
        let refused = Fields::refused(form.pairs(), &failure);
        self.fields = refused.ok_or(failure)?;
        Ok(self)
    }

    /// Like [`Page::refused`], for a form that is in the address. The page goes on without the
    /// parameter that has the mistake.
    pub(super) fn without(mut self, problem: Problem) -> Result<Self, Failure> {
        let failure = Failure::from(problem);
        let fields = Fields::refused(&self.params, &failure).ok_or(failure)?;
        self.params.retain(|(name, _)| !fields.has_mistake(name));
        self.fields = fields;
        Ok(self)
    }

    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The frame around the page.
    pub(super) fn frame(&self, title: impl Into<String>, here: Here) -> Frame {
        let queue = self.queue.as_ref().map(QueueName::as_str);
        Frame::new(
            title.into(),
            here,
            self.base.clone(),
            self.address.clone(),
            &self.preferences,
            Some(self.caller.clone()),
        )
        .of_queue(queue)
        .at(&self.clock)
        .with_redis(self.redis.clone())
        .with_findings(&self.findings)
        .did(self.param("did"))
    }
}
