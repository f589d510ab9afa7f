//! The only check of what a caller may do: a layer around each group of routes. It compares the
//! right of the group and the queue in the path with the roles and queues of the caller.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::edge::Edge;
use crate::edge::audit;
use crate::edge::auth::{Principal, Right};
use crate::edge::path::{QueueName, queue_in};
use crate::edge::problem::{Code, Problem};
use crate::edge::shown::quoted;

pub(crate) async fn guard(
    State((edge, right)): State<(Arc<Edge>, Right)>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let (principal, queue) = match allow(&edge, right, &parts) {
        Ok(allowed) => allowed,
        Err(problem) => return problem.into_response(),
    };
    if let Some(queue) = &queue {
        parts.extensions.insert(queue.clone());
    }
    let request = Request::from_parts(parts, body);
    if audit::asks_for_lines(right, &principal, &request) {
        return audit::audited(&edge, &principal, queue.as_ref(), request, next).await;
    }
    next.run(request).await
}

fn allow(
    edge: &Edge,
    right: Right,
    parts: &Parts,
) -> Result<(Principal, Option<QueueName>), Problem> {
    let Some(principal) = parts.extensions.get::<Principal>().cloned() else {
        return Err(Problem::new(
            Code::Internal,
            "the route is not behind the front layer",
        ));
    };
    if !right.fits(&parts.method) {
        return Err(Problem::new(
            Code::Internal,
            "the method does not fit the right of its group",
        ));
    }
    if edge.is_read_only && !right.is_read() {
        let detail = "the server was started with --read-only";
        return Err(Problem::new(Code::ReadOnly, detail));
    }
    check_right(&principal, right)?;
    let queue = queue_in(parts)?;
    if let Some(queue) = &queue {
        if !edge.serves(queue.as_str()) {
            let detail = format!(
                "the server was started without queue {}",
                quoted(queue.as_str())
            );
            return Err(Problem::new(Code::ForeignQueue, detail));
        }
        if !principal.may_use(queue.as_str()) {
            let (name, queue) = (quoted(principal.name()), quoted(queue.as_str()));
            let detail = format!("{name} may not use queue {queue}");
            return Err(Problem::new(Code::ForeignQueue, detail));
        }
    }
    Ok((principal, queue))
}

impl Edge {
    /// Refuses a queue that the server does not serve or the caller may not use.
    pub(crate) fn allow(&self, principal: &Principal, queue: &str) -> Result<(), Problem> {
        if self.serves(queue) && principal.may_use(queue) {
            return Ok(());
        }
        let detail = format!("you may not use queue {}", quoted(queue));
        Err(Problem::new(Code::ForeignQueue, detail))
    }
}

/// Refuses a caller without this right.
pub(crate) fn check_right(principal: &Principal, right: Right) -> Result<(), Problem> {
    if principal.has(right) {
        return Ok(());
    }
    let names: Vec<_> = principal.roles().iter().map(|role| role.name()).collect();
    let roles = match names.join(", ") {
        roles if roles.is_empty() => "no role".to_owned(),
        roles => format!("the role {roles}"),
    };
    let detail = format!(
        "{} has {roles}, and this request needs the right {}",
        quoted(principal.name()),
        right.name()
    );
    Err(Problem::new(Code::Forbidden, detail))
}
