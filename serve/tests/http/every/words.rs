//! Every operation describes wrong input in words of the caller, not of serde or Rust.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::every::declared::{ask, stage};

/// Words of serde and Rust, which no problem may contain.
const FOREIGN: [&str; 24] = [
    "u64",
    "u32",
    "u16",
    "u8 ",
    "i64",
    "i32",
    "f64",
    "usize",
    "expected bool",
    "struct",
    "variant",
    "enum ",
    "serde",
    "expected value",
    "expected ident",
    "EOF",
    "invalid digit",
    "invalid type",
    "line 1 column",
    "at line",
    "hex escape",
    "None",
    "Some(",
    "target type",
];

/// Checks every text in an answer that describes a problem.
fn check_words(context: &str, value: &Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(text) if name == "detail" => {
                        // The random id of an operation may contain "f64".
                        let is_id =
                            |word: &str| word.len() == 16 && u64::from_str_radix(word, 16).is_ok();
                        let words: Vec<&str> =
                            text.split(' ').filter(|word| !is_id(word)).collect();
                        let own = words.join(" ");
                        let foreign = FOREIGN.iter().find(|word| own.contains(**word));
                        assert_eq!(foreign, None, "{context}: {text}");
                    }
                    _ => check_words(context, value),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| check_words(context, item)),
        _ => {}
    }
}

/// Values of wrong types and ranges.
fn wrong_values() -> [Value; 12] {
    [
        json!(null),
        json!(true),
        json!(-1),
        json!(1.5),
        json!(99_999_999_999_u64),
        json!(""),
        json!("x y"),
        json!([]),
        json!([5, null]),
        json!({}),
        json!({ "a": 1 }),
        json!([["x"]]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bodies_are_refused_in_words_of_the_caller() -> Result<()> {
    let (instance, calls) = stage().await?;
    let document = instance.ask_as("operator", "GET /openapi.json", "").await?;
    let document = document.json()?;
    let schemas = &document["components"]["schemas"];
    let names = schemas.as_object().context("schemas")?.values();
    let names = names.filter_map(|schema| schema["properties"].as_object());
    let names: BTreeSet<_> = names.flat_map(|fields| fields.keys()).cloned().collect();
    let mut refused = 0;
    for call in calls.iter().filter(|call| call.body.starts_with('{')) {
        let fields: serde_json::Map<_, _> = serde_json::from_str(call.body)?;
        let mut bodies: Vec<String> = [
            "",
            " ",
            "{",
            "{\"",
            "{\"a\"",
            "{\"a\":",
            "{\"a\": 1",
            "{\"a\": 1,}",
            "{\"a\": \"\\ud800\"}",
            "{\"a\": \"\\ud800",
            "{\"a\": \"\\x\"}",
            "{\"a\": nul}",
            "{\"a\": NaN}",
            "{\"a\": 1e400}",
            "{\"a\": 01}",
            "{1: 2}",
            "nope",
            "[",
            "[]",
            "7",
            "null",
            "\"x\"",
            "{} {}",
            "\u{feff}{}",
            "{\"a\": \"\u{1}\"}",
            "{}",
        ]
        .map(str::to_owned)
        .into();
        bodies.push(format!("{}{}", "[".repeat(200), "]".repeat(200)));
        bodies.push(format!("{{\"a\": {}", "[".repeat(200)));
        // Each field of the operation with each wrong value. A value for an unknown field is
        // refused by its name.
        let described = &document["paths"][&call.path][call.method.to_lowercase()];
        let media_type = call.media_type.context("a type")?;
        let schema = &described["requestBody"]["content"][media_type]["schema"]["$ref"];
        let schema = schema.as_str().and_then(|name| name.rsplit('/').next());
        let own = &schemas[schema.unwrap_or_default()]["properties"];
        for name in &names {
            let values = wrong_values();
            let is_own = schema.is_none() || !own[name].is_null();
            for value in &values[..if is_own { values.len() } else { 1 }] {
                let mut fields = fields.clone();
                fields.insert(name.clone(), value.clone());
                bodies.push(Value::Object(fields).to_string());
            }
        }
        // Wrong values in the items of lists.
        for (name, item) in [
            ("messages", "{\"payload\": \"x\"}"),
            ("settlements", "{\"handle\": \"x\", \"action\": \"ack\"}"),
            ("extensions", "{\"handle\": \"x\", \"lease_ms\": 5}"),
            ("schedules", "{\"name\": \"x\", \"every\": \"1h\"}"),
        ] {
            if call.body.contains(name) {
                let item: serde_json::Map<_, _> = serde_json::from_str(item)?;
                for field in item.keys() {
                    for value in wrong_values() {
                        let mut item = item.clone();
                        item.insert(field.clone(), value);
                        bodies.push(json!({ name: [item] }).to_string());
                    }
                }
            }
        }
        for body in bodies {
            let answer = ask(&instance, call, &call.line, &[], &body).await?;
            let context = format!(
                "{} {}",
                call.line,
                body.chars().take(80).collect::<String>()
            );
            assert!(answer.status < 500, "{context}: {answer:?}");
            refused += usize::from(answer.status == 400);
            if !answer.body.is_empty() {
                check_words(&context, &answer.json()?);
            }
        }
    }
    assert!(refused > 500, "{refused}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_parameters_are_refused_in_words_of_the_caller() -> Result<()> {
    let (instance, calls) = stage().await?;
    let document = instance.ask_as("operator", "GET /openapi.json", "").await?;
    let document = document.json()?;
    let mut refused = 0;
    for call in &calls {
        let described = &document["paths"][&call.path][call.method.to_lowercase()];
        let (path, query) = call.line.split_once('?').unwrap_or((&call.line, ""));
        for parameter in described["parameters"].as_array().into_iter().flatten() {
            if parameter["in"] != "query" {
                continue;
            }
            let name = parameter["name"].as_str().context("a name")?;
            let others: Vec<_> = query
                .split('&')
                .filter(|one| !one.is_empty() && !one.starts_with(&format!("{name}=")))
                .collect();
            for value in [
                "",
                "x",
                "-1",
                "1.5",
                "99999999999999999999",
                "%ff",
                "2026-12-01T20:00:00+02:00",
            ] {
                let line = format!("{path}?{}&{name}={value}", others.join("&"));
                let line = line.replace("?&", "?");
                let answer = ask(&instance, call, &line, &[], call.body).await?;
                assert!(answer.status < 500, "{line}: {answer:?}");
                if answer.status == 400 {
                    refused += 1;
                    check_words(&line, &answer.json()?);
                    let says_plus = answer.body.contains("write %2B");
                    let is_moment = parameter["schema"]["format"] == "moment";
                    assert_eq!(
                        says_plus,
                        is_moment && value.contains('+'),
                        "{line}: {answer:?}"
                    );
                }
            }
            // The call without one of its required parameters.
            let answer = ask(
                &instance,
                call,
                &format!("{path}?{}", others.join("&")),
                &[],
                call.body,
            )
            .await?;
            if answer.status == 400 {
                check_words(path, &answer.json()?);
            }
        }
    }
    assert!(refused > 50, "{refused}");
    Ok(())
}
