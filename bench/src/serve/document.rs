//! The reads in the OpenAPI document, with parameters for which they find something.

use anyhow::{Context, Result};
use serde_json::Value;

use super::fill::{MAIN, SCHEDULE};

/// Values for parameters in paths and queries, by name. A bar separates several values; an empty
/// text means that the parameter is left out. `id` is that of a waiting message.
pub(super) const KNOWN: [(&str, &str); 14] = [
    ("queue", MAIN),
    ("queues", MAIN),
    ("id", "w0000000000000000000000"),
    ("name", SCHEDULE),
    ("schedule", SCHEDULE),
    ("count", "60"),
    ("step_ms", "60000"),
    ("every", "15m"),
    ("limit", "1000"),
    ("payload_bytes", "65536"),
    ("state", "scheduled|ready|leased|dead"),
    ("order", "oldest|newest"),
    ("from", ""),
    ("after", ""),
];

/// A read, with all its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Read {
    /// The path in the document, with placeholders.
    pub(super) route: String,
    /// The address of the read. A read of a second page has the address of the first page here.
    pub(super) target: String,
    pub(super) is_second_page: bool,
}

impl Read {
    pub(super) fn new(route: &str, target: &str) -> Self {
        Self {
            route: route.to_owned(),
            target: target.to_owned(),
            is_second_page: false,
        }
    }

    pub(super) fn second_page(&self) -> Self {
        Self {
            is_second_page: true,
            ..self.clone()
        }
    }

    /// The name of the read in reports.
    pub(super) fn name(&self) -> String {
        let which = if self.is_second_page {
            ", second page"
        } else {
            ""
        };
        format!("{}{which}", self.target)
    }

    /// Whether the number of its calls grows with the number of queues.
    pub(super) fn is_search(&self) -> bool {
        self.route.ends_with("/search")
    }
}

/// All reads in the document. Each route is read with only its required parameters, and with all
/// parameters that are known or have a maximum; and once for each word of a parameter that has
/// words.
pub(super) fn reads(document: &Value) -> Result<Vec<Read>> {
    let mut reads = Vec::new();
    for (route, item) in document["paths"].as_object().context("no paths")? {
        let operation = &item["get"];
        if operation.is_null() {
            continue;
        }
        let segments = route.split('/').map(|segment| {
            let name = segment
                .strip_prefix('{')
                .and_then(|rest| rest.strip_suffix('}'));
            match name {
                Some(name) => known(name).unwrap_or("x"),
                None => segment,
            }
        });
        let path = segments.collect::<Vec<_>>().join("/");
        let of_query = operation["parameters"].as_array().into_iter().flatten();
        let of_query: Vec<_> = of_query.filter(|one| one["in"] == "query").collect();
        for with_optional in [false, true] {
            for target in targets(document, &path, &of_query, with_optional) {
                let read = Read::new(route, &target);
                if !reads.contains(&read) {
                    reads.push(read);
                }
            }
        }
    }
    Ok(reads)
}

/// The path with each combination of values for its parameters.
fn targets(document: &Value, path: &str, of_query: &[&Value], with_optional: bool) -> Vec<String> {
    let mut queries = vec![String::new()];
    for parameter in of_query {
        let is_required = parameter["required"] == true;
        if !is_required && !with_optional {
            continue;
        }
        let values = values(document, parameter, is_required);
        if values.is_empty() {
            continue;
        }
        let name = parameter["name"].as_str().unwrap_or_default();
        let with = |query: &String| -> Vec<String> {
            let sign = if query.is_empty() { '?' } else { '&' };
            let values = values.iter();
            values
                .map(|value| format!("{query}{sign}{name}={value}"))
                .collect()
        };
        queries = queries.iter().flat_map(with).collect();
    }
    queries
        .iter()
        .map(|query| format!("{path}{query}"))
        .collect()
}

/// The values with which a parameter is tried.
fn values(document: &Value, parameter: &Value, is_required: bool) -> Vec<String> {
    let name = parameter["name"].as_str().unwrap_or_default();
    if let Some(known) = known(name) {
        let values = known.split('|').filter(|value| !value.is_empty());
        return values.map(str::to_owned).collect();
    }
    let schema = resolved(document, &parameter["schema"]);
    if let Some(words) = words(document, schema) {
        return words;
    }
    for example in [&parameter["example"], &schema["example"]] {
        if let Some(text) = text(example) {
            return vec![text];
        }
    }
    // The largest page is the most expensive. The maximum of a time would find nothing.
    let most = text(&schema["maximum"]).filter(|_| !name.ends_with("ms"));
    most.or_else(|| is_required.then(|| "1".to_owned()))
        .into_iter()
        .collect()
}

/// The words that a schema allows, also if it allows null as well.
fn words(document: &Value, schema: &Value) -> Option<Vec<String>> {
    if let Some(words) = schema["enum"].as_array() {
        return Some(words.iter().filter_map(text).collect());
    }
    let one_of = schema["oneOf"].as_array().into_iter().flatten();
    one_of
        .map(|one| resolved(document, one))
        .find(|one| one["enum"].is_array())
        .and_then(|one| words(document, one))
}

fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    let pointer = schema["$ref"]
        .as_str()
        .and_then(|name| name.strip_prefix('#'));
    pointer
        .and_then(|pointer| document.pointer(pointer))
        .unwrap_or(schema)
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn known(name: &str) -> Option<&'static str> {
    let found = KNOWN.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_include_new_routes_and_parameters() {
        let parameter = |name: &str, required: bool, schema: Value| json!({ "in": "query", "name": name, "required": required, "schema": schema });
        let document = json!({
            "components": { "schemas": { "State": { "enum": ["ready", "dead"] } } },
            "paths": {
                "/v1/queues/{queue}/new/{other}": { "get": { "parameters": [
                    { "in": "path", "name": "queue" },
                    parameter("kind", true, json!({ "$ref": "#/components/schemas/State" })),
                    parameter("limit", false, json!({ "maximum": 5 })),
                    parameter("most", false, json!({ "maximum": 7 })),
                    parameter("from_ms", false, json!({ "maximum": 9 })),
                    parameter("way", false, json!({ "oneOf": [{ "type": "null" }, { "enum": ["up"] }] })),
                    parameter("from", false, json!({ "maximum": 9 })),
                    parameter("order", false, json!({ "type": "string" })),
                    parameter("cursor", false, json!({ "type": "string" })),
                ] } },
                "/v1/search": { "get": {} },
                "/v1/push": { "put": {} },
            },
        });
        let reads = reads(&document).expect("paths");
        let targets: Vec<_> = reads.iter().map(|read| &*read.target).collect();
        assert_eq!(
            targets,
            [
                "/v1/queues/main/new/x?kind=ready",
                "/v1/queues/main/new/x?kind=dead",
                "/v1/queues/main/new/x?kind=ready&limit=1000&most=7&way=up&order=oldest",
                "/v1/queues/main/new/x?kind=ready&limit=1000&most=7&way=up&order=newest",
                "/v1/queues/main/new/x?kind=dead&limit=1000&most=7&way=up&order=oldest",
                "/v1/queues/main/new/x?kind=dead&limit=1000&most=7&way=up&order=newest",
                "/v1/search",
            ]
        );
        assert!(reads[6].is_search() && !reads[0].is_search());
    }
}
