//! The one check of what a caller may do: a layer around each group of routes. It knows the right
//! of the group, the roles and queues of the caller, and the queue in the path.

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::app::Shared;
use crate::audit;
use crate::auth::{Principal, Right};
use crate::path::{QueueName, queue_in};
use crate::problem::{Code, Problem};
use crate::shown::quoted;

pub(crate) async fn guard(
    State((app, right)): State<(Shared, Right)>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let (principal, queue) = match allow(&app, right, &parts) {
        Ok(allowed) => allowed,
        Err(problem) => return problem.into_response(),
    };
    if let Some(queue) = &queue {
        parts.extensions.insert(queue.clone());
    }
    let request = Request::from_parts(parts, body);
    if audit::asks_for_lines(right, &principal, &request) {
        return audit::audited(&app, &principal, queue.as_ref(), request, next).await;
    }
    next.run(request).await
}

fn allow(
    app: &Shared,
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
    if app.is_read_only && !right.is_read() {
        let detail = "the server was started with --read-only";
        return Err(Problem::new(Code::ReadOnly, detail));
    }
    check_right(&principal, right)?;
    let queue = queue_in(parts)?;
    if let Some(queue) = &queue {
        if !app.serves(queue.as_str()) {
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
