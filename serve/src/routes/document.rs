//! Completes the OpenAPI document for all routes: names in paths, rules over several fields, and
//! links, which the macros of utoipa cannot express.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use tower_http::compression::CompressionLayer;
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{SecurityRequirement, Server};
use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use crate::edge::problem::{Document, MEDIA_TYPE};
use crate::routes::rules;
use crate::work::Shared;

/// The methods of a path.
const METHODS: [&str; 5] = ["get", "put", "post", "patch", "delete"];

/// The completed document.
pub(super) fn completed(document: &utoipa::openapi::OpenApi) -> Value {
    let mut document = serde_json::to_value(document).unwrap_or_default();
    let links = links(&document["paths"]);
    for (path, item) in entries(&mut document, "paths") {
        let names: Vec<_> = placeholders(path).filter_map(name_in_path).collect();
        for (method, operation) in fields(item) {
            for parameter in elements(operation, "parameters") {
                // The macros make an optional header nullable, but a header has no null.
                if parameter["in"] == "header" {
                    rules::without_null(&mut parameter["schema"]);
                }
            }
            with_names(operation, &names);
            if let Some(body) = operation.get_mut("requestBody") {
                optional_body(body);
            }
            for (status, response) in entries(operation, "responses") {
                if response["description"].as_str().is_none_or(str::is_empty) {
                    // OpenAPI requires a description; for a 200 the schema says everything.
                    response["description"] = match status.as_str() {
                        "200" => "Done".into(),
                        "404" => "The queue does not exist".into(),
                        "504" => "Redis did not answer in time".into(),
                        "507" => "The memory of Redis is full".into(),
                        status => format!("Status {status}").into(),
                    };
                }
                if status.starts_with(['4', '5']) {
                    let schema = json!({ "$ref": "#/components/schemas/Problem" });
                    response["content"] = json!({ MEDIA_TYPE: { "schema": schema } });
                }
                for (media_type, content) in entries(response, "content") {
                    raw(media_type, content);
                }
                let is_success = status.starts_with('2');
                if let Some(links) = links
                    .get(&format!("{method} {path}"))
                    .filter(|_| is_success)
                {
                    response["links"] = links.clone();
                }
            }
            // The connection sends this response, without a body.
            let too_large = json!({ "description": "The head of the request is too large" });
            operation["responses"]["431"] = too_large;
        }
    }
    for (name, rules) in rules::all() {
        if let Some(schema) = document.pointer_mut(&format!("/components/schemas/{name}")) {
            rules.apply(schema);
        }
    }
    if let Some(Value::Object(schemas)) = document.pointer_mut("/components/schemas") {
        rules::settlements(schemas);
        rules::listed_payload(schemas);
    }
    extended_problem(&mut document);
    without_null_defaults(&mut document);
    document
}

/// Describes a name in a path before its encoding. The schema cannot say that the second encoding
/// may be longer, so the text does.
fn name_in_path(name: &str) -> Option<Value> {
    let of_name = "The name, percent-encoded, or `~` and its base64url";
    let of_id = "The id, percent-encoded, or `~` and its base64url";
    let of_operation = "The id of the operation";
    let (description, format, pattern, longest) = match name {
        "queue" => (
            of_name,
            "queue-segment",
            "^[^\\u0000-\\u001f\\u007f/{}]+$",
            128,
        ),
        "name" => (of_name, "schedule-name", "^[A-Za-z0-9._:/-]+$", 100),
        "operation" => (of_operation, "operation-id", "^[0-9a-f]+$", 16),
        "id" => (of_id, "id-segment", "^[^\\u0000-\\u001f\\u007f]+$", 200),
        _ => return None,
    };
    let schema = json!({
        "type": "string", "format": format, "pattern": pattern, "minLength": 1, "maxLength": longest,
    });
    Some(json!({
        "name": name, "in": "path", "required": true, "description": description, "schema": schema,
    }))
}

/// Puts the names in the path before the other parameters of the operation.
fn with_names(operation: &mut Value, names: &[Value]) {
    let others = operation["parameters"].as_array().into_iter().flatten();
    let all: Vec<_> = names.iter().chain(others).cloned().collect();
    if !all.is_empty() {
        operation["parameters"] = all.into();
    }
}

/// Allows fields that routes add to problem documents.
fn extended_problem(document: &mut Value) {
    let fields = [
        (
            "pushed",
            "PushCounts",
            "What a call did that pushes many messages, and stopped.",
        ),
        (
            "settled",
            "Settlements",
            "What a call did that settles or extends many deliveries, and failed for some.",
        ),
    ];
    let problem = document.pointer_mut("/components/schemas/Problem/properties");
    let Some(Value::Object(properties)) = problem else {
        return;
    };
    for (field, schema, description) in fields {
        let schema = format!("#/components/schemas/{schema}");
        let schema = json!({ "$ref": schema, "description": description });
        let optional = json!({ "oneOf": [schema, { "type": "null" }] });
        properties.insert(field.to_owned(), optional);
    }
}

/// The macros make an optional body nullable, but a body has no null.
fn optional_body(body: &mut Value) {
    let mut is_optional = false;
    for (_, content) in entries(body, "content") {
        let choices = content["schema"]["oneOf"].as_array().into_iter().flatten();
        let (null, other): (Vec<_>, Vec<_>) = choices
            .cloned()
            .partition(|choice| choice["type"] == "null");
        if let (false, [schema]) = (null.is_empty(), &other[..]) {
            content["schema"] = schema.clone();
            is_optional = true;
        }
    }
    for (media_type, content) in entries(body, "content") {
        raw(media_type, content);
    }
    if is_optional {
        body["required"] = false.into();
    }
}

/// If a field's default is `None`, the macros write the default null, which the field's type may
/// not allow.
fn without_null_defaults(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| name != "default" || !value.is_null());
            fields.values_mut().for_each(without_null_defaults);
        }
        Value::Array(elements) => elements.iter_mut().for_each(without_null_defaults),
        _ => {}
    }
}

/// Removes the schema of content that is not JSON, as OpenAPI 3.1 prescribes.
fn raw(media_type: &str, content: &mut Value) {
    if matches!(
        media_type,
        "application/octet-stream" | "application/x-ndjson"
    ) {
        content["schema"] = json!({});
    }
}

/// Links each operation that makes or changes something to the operations on it: those with its
/// path or a path below it that need no further name.
fn links(paths: &Value) -> Map<String, Value> {
    let mut all = Map::new();
    let paths = || paths.as_object().into_iter().flatten();
    for (path, item) in paths() {
        let names: Map<_, _> = placeholders(path)
            .map(|name| (name.to_owned(), format!("$request.path.{name}").into()))
            .collect();
        if names.is_empty() {
            continue;
        }
        let mut links = Map::new();
        for (other, item) in paths().filter(|(other, _)| is_below(other, path)) {
            if placeholders(other).count() > names.len() {
                continue;
            }
            for operation in METHODS.iter().filter_map(|method| item.get(method)) {
                if let Some(id) = operation["operationId"].as_str() {
                    links.insert(
                        id.to_owned(),
                        json!({ "operationId": id, "parameters": names }),
                    );
                }
            }
        }
        for method in METHODS.iter().filter(|method| **method != "get") {
            if item.get(method).is_some() {
                all.insert(format!("{method} {path}"), links.clone().into());
            }
        }
    }
    all
}

fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn placeholders(path: &str) -> impl Iterator<Item = &str> {
    path.split('/')
        .filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
}

fn entries<'a>(
    value: &'a mut Value,
    field: &str,
) -> impl Iterator<Item = (&'a String, &'a mut Value)> {
    value.get_mut(field).into_iter().flat_map(fields)
}

fn fields(value: &mut Value) -> impl Iterator<Item = (&String, &mut Value)> {
    value.as_object_mut().into_iter().flatten()
}

fn elements<'a>(value: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    let elements = value.get_mut(field).and_then(Value::as_array_mut);
    elements.into_iter().flatten()
}

pub(super) fn routes() -> Vec<UtoipaMethodRouter<Shared>> {
    let (schemas, paths, methods) = routes!(openapi);
    vec![(schemas, paths, methods.layer(CompressionLayer::new()))]
}

/// The parts of the document that do not come from routes.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "dueq",
        description = "A delay queue on Redis, over HTTP. Errors are problem documents (RFC 9457).",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    components(schemas(Document)),
    tags(
        (name = "queues", description = "Whole queues"),
        (name = "messages", description = "Single messages of a queue"),
        (name = "health", description = "For load balancers and supervisors"),
        (name = "about", description = "This document"),
    )
)]
struct Base;

/// The document without routes.
pub(super) fn document(url: &str) -> utoipa::openapi::OpenApi {
    let mut document = Base::openapi();
    env!("CARGO_PKG_VERSION").clone_into(&mut document.info.version);
    document.servers = Some(vec![Server::new(url)]);
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("A token of `dueq serve token`"))
        .build();
    let components = document.components.get_or_insert_default();
    components.add_security_scheme("token", SecurityScheme::Http(bearer));
    let none: [&str; 0] = [];
    document.security = Some(vec![SecurityRequirement::new("token", none)]);
    document
}

/// This document
#[utoipa::path(get, path = "/openapi.json", tag = "about", responses((status = 200, description = "OpenAPI 3.1", body = Object)))]
async fn openapi(State(app): State<Shared>) -> Response {
    let document = app.document.get().cloned().unwrap_or_default();
    ([(CONTENT_TYPE, "application/json")], document).into_response()
}
