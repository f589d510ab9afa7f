//! Calls every route with every role, for a queue of the caller and for another, with and without
//! `--read-only`. The routes come from the OpenAPI document.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::instance::Instance;

/// The roles that have a right.
fn roles_with(right: &str) -> &'static [&'static str] {
    match right {
        "read" => &["viewer", "producer", "consumer", "operator"],
        "read-payload" => &["consumer", "operator"],
        "produce" => &["producer", "operator"],
        "consume" => &["consumer", "operator"],
        "operate" => &["operator"],
        other => panic!("the document has a right {other}"),
    }
}

struct Route {
    line: String,
    right: String,
    has_queue: bool,
    body: &'static str,
}

/// The routes of the document, with this queue in their paths.
async fn routes(instance: &Instance, queue: &str) -> Result<Vec<Route>> {
    let document = instance.read_as("viewer", "GET /openapi.json").await?;
    let mut routes = Vec::new();
    for (path, item) in document["paths"].as_object().context("paths")? {
        for (method, operation) in item.as_object().context("operations")? {
            let Some(right) = operation["x-right"].as_str() else {
                assert!(
                    ["/healthz", "/readyz", "/v1/session"].contains(&path.as_str()),
                    "{method} {path} has no right"
                );
                continue;
            };
            // The other names in a path need not exist: the guard runs before the handler.
            let filled: Vec<_> = path
                .split('/')
                .map(|segment| match segment {
                    "{queue}" => queue,
                    segment if segment.starts_with('{') => "x",
                    segment => segment,
                })
                .collect();
            let has_body = !operation["requestBody"].is_null();
            routes.push(Route {
                line: format!("{} {}", method.to_uppercase(), filled.join("/")),
                right: right.to_owned(),
                has_queue: path.contains("{queue}"),
                body: if has_body { "{}" } else { "" },
            });
        }
    }
    assert!(routes.len() >= 5, "the document misses routes");
    Ok(routes)
}

/// The names of a list of queues.
fn names(listed: &Value) -> Vec<&str> {
    let queues = listed["queues"].as_array().into_iter().flatten();
    queues
        .filter_map(|listed| listed["queue"].as_str())
        .collect()
}

/// The code of a 403, or `None` if the request got past the guard.
async fn refusal(instance: &Instance, role: &str, route: &Route) -> Result<Option<String>> {
    let answer = instance.ask_as(role, &route.line, route.body).await?;
    assert_ne!(answer.status, 401, "{role} {}: {answer:?}", route.line);
    match answer.status {
        403 => answer.code().map(Some),
        _ => Ok(None),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_allows_exactly_its_roles() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    instance.queue("orders").await?;
    for route in routes(&instance, "orders").await? {
        for role in ["viewer", "producer", "consumer", "operator"] {
            let may = roles_with(&route.right).contains(&role);
            let expected = (!may).then_some("forbidden");
            let code = refusal(&instance, role, &route).await?;
            assert_eq!(code.as_deref(), expected, "{role} {}", route.line);
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_route_serves_a_queue_of_another_caller() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let (own, foreign) = (
        instance.queue("other-1").await?,
        instance.queue("orders").await?,
    );
    for (queue, is_own) in [("other-1", true), ("orders", false)] {
        for route in routes(&instance, queue).await? {
            let expected = (route.has_queue && !is_own).then_some("foreign_queue");
            let code = refusal(&instance, "foreigner", &route).await?;
            assert_eq!(code.as_deref(), expected, "{}", route.line);
        }
    }
    assert_eq!(own.stats().await?.pushed, 1);
    assert!(!foreign.stats().await?.paused);
    let listed = instance.read_as("foreigner", "GET /v1/queues").await?;
    assert_eq!(names(&listed), ["other-1"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_server_refuses_every_change() -> Result<()> {
    let instance = Instance::with_tokens_and(|config| config.is_read_only = true).await?;
    let queue = instance.queue("orders").await?;
    for route in routes(&instance, "orders").await? {
        let is_read = matches!(&*route.right, "read" | "read-payload");
        let expected = (!is_read).then_some("read_only");
        let code = refusal(&instance, "operator", &route).await?;
        assert_eq!(code.as_deref(), expected, "{}", route.line);
    }
    assert!(!queue.stats().await?.paused);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn server_serves_only_its_queues() -> Result<()> {
    let only = |config: &mut dueq_serve::Config| {
        config.queues = vec![
            "orders".parse().expect("a pattern"),
            "mail-*".parse().expect("a pattern"),
        ]
    };
    let instance = Instance::with_tokens_and(only).await?;
    for name in ["orders", "mail-de", "secret"] {
        instance.queue(name).await?;
    }
    for route in routes(&instance, "secret")
        .await?
        .iter()
        .filter(|route| route.has_queue)
    {
        let code = refusal(&instance, "operator", route).await?;
        assert_eq!(code.as_deref(), Some("foreign_queue"), "{}", route.line);
    }
    let listed = instance.read_as("viewer", "GET /v1/queues").await?;
    assert_eq!(names(&listed), ["mail-de", "orders"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_health_needs_no_token() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    for route in routes(&instance, "orders").await? {
        let answer = instance.ask(&route.line, &[], route.body).await?;
        crate::assert_refused!(&answer, 401, "unauthenticated", "{}", route.line);
        assert!(answer.header("www-authenticate").is_some(), "{answer:?}");
    }
    for path in ["/healthz", "/readyz"] {
        let answer = instance.call(&format!("GET {path}")).await?;
        assert_eq!(
            (answer.status, answer.json()?),
            (200, serde_json::json!({ "status": "ok" }))
        );
    }
    Ok(())
}

/// The audit log answers "who did this?" for changes by operators. It has no lines for the work of
/// programs.
#[tokio::test(flavor = "multi_thread")]
async fn audit_log_has_changes_by_operators_only() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    instance.queue("orders").await?;
    for route in routes(&instance, "orders").await? {
        for role in ["viewer", "producer", "consumer", "operator"] {
            let before = instance.audit()?.len();
            instance.ask_as(role, &route.line, route.body).await?;
            let lines = &instance.audit()?[before..];
            let amends = route.line.starts_with("PATCH") || route.line.starts_with("DELETE");
            let is_action = route.right == "operate"
                || route.right == "produce" && amends && role == "operator";
            let may = roles_with(&route.right).contains(&role);
            let expected = if is_action && may { 2 } else { 0 };
            assert_eq!(lines.len(), expected, "{role} {}: {lines:?}", route.line);
        }
    }
    Ok(())
}
