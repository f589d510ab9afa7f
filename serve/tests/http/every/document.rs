//! The OpenAPI document. `scripts/conformance` tests the server against it.

use std::collections::HashSet;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::instance::Instance;

#[tokio::test(flavor = "multi_thread")]
async fn document_is_openapi_3_1_with_unique_operation_ids() -> Result<()> {
    let instance = Instance::open().await?;
    let document = instance.read("GET /openapi.json").await?;
    let version = document["openapi"].as_str().context("a version")?;
    assert!(version.starts_with("3.1."), "{version}");
    let mut ids = HashSet::new();
    for (path, item) in document["paths"].as_object().context("paths")? {
        for (method, operation) in item.as_object().context("operations")? {
            let id = operation["operationId"].as_str().context("an id")?;
            assert!(ids.insert(id.to_owned()), "two operations have the id {id}");
            for (status, response) in operation["responses"].as_object().context("responses")? {
                let text = response["description"].as_str();
                assert!(
                    text.is_some_and(|text| !text.is_empty()),
                    "{method} {path} {status}"
                );
            }
        }
    }
    let pause = &document["paths"]["/v1/queues/{queue}/pause"]["put"]["responses"];
    for status in [
        "200", "400", "401", "403", "404", "408", "413", "415", "421", "429", "502", "503",
    ] {
        assert!(!pause[status].is_null(), "{status} of {pause}");
    }
    assert!(
        document["components"]["schemas"]["Problem"].is_object(),
        "{document}"
    );
    assert_ne!(document["components"]["schemas"]["Queue"], Value::Null);
    Ok(())
}

/// Calls `found` with each object in the document.
fn walk(value: &Value, found: &mut impl FnMut(&Value)) {
    found(value);
    match value {
        Value::Object(fields) => fields.values().for_each(|value| walk(value, found)),
        Value::Array(elements) => elements.iter().for_each(|value| walk(value, found)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn document_has_no_dangling_references_or_links() -> Result<()> {
    let instance = Instance::open().await?;
    let document = instance.read("GET /openapi.json").await?;
    let (mut references, mut targets, mut operations) = (0, HashSet::new(), HashSet::new());
    walk(&document, &mut |value| {
        if let Some(reference) = value["$ref"].as_str() {
            let target = reference
                .strip_prefix('#')
                .and_then(|at| document.pointer(at));
            assert!(target.is_some(), "{reference} leads nowhere");
            references += 1;
        }
        for link in value["links"]
            .as_object()
            .into_iter()
            .flat_map(|links| links.values())
        {
            targets.insert(link["operationId"].to_string());
        }
        if value["responses"].is_object() {
            operations.insert(value["operationId"].to_string());
        }
    });
    assert!(
        references > 100 && targets.len() > 5,
        "{references} references, {targets:?}"
    );
    assert!(
        targets.is_subset(&operations),
        "{targets:?} of {operations:?}"
    );
    let push = &document["paths"]["/v1/queues/{queue}/messages/{id}"]["put"];
    assert_eq!(push["parameters"][0]["schema"]["maxLength"], 128, "{push}");
    assert!(
        push["responses"]["201"]["links"]["read_message"].is_object(),
        "{push}"
    );
    assert!(push["responses"]["404"]["links"].is_null(), "{push}");
    Ok(())
}
