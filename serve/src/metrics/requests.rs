//! Counts requests by route, method and class of status, and problems by code.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;

use crate::app::Shared;
use crate::metrics::Text;
use crate::problem::Code;

/// The classes of statuses: 1xx to 5xx.
const CLASSES: usize = 5;

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// By route and method. The routes are those of the router, so there are not many.
    routes: RwLock<BTreeMap<(String, &'static str), [AtomicU64; CLASSES]>>,
    problems: RwLock<BTreeMap<&'static str, AtomicU64>>,
}

/// The layer that counts.
pub(crate) async fn counted(State(app): State<Shared>, request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>();
    let prefix = app.hosts.public().map_or("", |url| url.path());
    let route = matched.map(|matched| {
        let path = matched.as_str();
        path.strip_prefix(prefix).unwrap_or(path).to_owned()
    });
    let method = method(request.method());
    let response = next.run(request).await;
    let requests = &app.meters.requests;
    requests.count(
        route.as_deref().unwrap_or("none"),
        method,
        response.status().as_u16(),
    );
    if let Some(code) = response.extensions().get::<Code>() {
        requests.problem(code.word());
    }
    response
}

fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

impl Requests {
    fn count(&self, route: &str, method: &'static str, status: u16) {
        let class = usize::from((status / 100).clamp(1, 5)) - 1;
        let key = (route.to_owned(), method);
        {
            let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(counts) = routes.get(&key) {
                counts[class].fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        routes.entry(key).or_default()[class].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a problem.
    pub(crate) fn problem(&self, code: &'static str) {
        {
            let problems = self.problems.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(count) = problems.get(code) {
                count.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        let mut problems = self
            .problems
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        problems
            .entry(code)
            .or_default()
            .fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn write(&self, text: &mut Text) {
        let name = "dueq_serve_requests_total";
        text.metric(
            name,
            "counter",
            "Requests by route, method and class of status.",
        );
        let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        for ((route, method), counts) in &*routes {
            for (class, count) in (1..).zip(counts) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    let status = format!("{class}xx");
                    let labels = [
                        ("route", &**route),
                        ("method", *method),
                        ("status", &*status),
                    ];
                    text.sample(name, &labels, count as f64);
                }
            }
        }
        let name = "dueq_serve_problems_total";
        text.metric(
            name,
            "counter",
            "Requests that were refused or failed, by the code of the problem.",
        );
        let problems = self.problems.read().unwrap_or_else(PoisonError::into_inner);
        for (code, count) in &*problems {
            text.sample(
                name,
                &[("code", *code)],
                count.load(Ordering::Relaxed) as f64,
            );
        }
    }
}
